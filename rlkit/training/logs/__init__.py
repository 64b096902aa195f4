"""The log of a run: records, their metrics, and the loggers and plots that show them.

May import `training.config` and `training.compile`; knows no environment, agent or algorithm.
"""
