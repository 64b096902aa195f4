"""Stores: where the files of a sweep are for good, and where its groups work meanwhile."""
