"""Launchers: where the groups of trials of a sweep are trained, and by which processes."""
