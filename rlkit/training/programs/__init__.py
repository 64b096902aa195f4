"""What the Trainer calls: a run as compiled functions, on the device or around simulators on the
host.

May import `training.core` and `training.compile`; knows no files and no logs.
"""
