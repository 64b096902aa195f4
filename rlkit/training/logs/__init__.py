"""What a run says: records, the metrics in them, and the loggers and pictures they end in.

May import `training.compile` and the settings; knows no environment, agent or algorithm.
"""
