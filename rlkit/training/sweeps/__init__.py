"""Sweeps: many trials of one run with other hyperparameters, as few compiled programs as possible.

Above everything else in `training`: a trial is a run like any other.
"""
