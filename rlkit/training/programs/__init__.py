"""What the Trainer calls: a run as compiled functions, on the device or around simulators on the
host; episodes for evaluation and recording.

`protocol` says what a program is, `factory` chooses between `device` and `host`. On the host,
`host_functions` are compiled, `host_collector` steps `env_groups`, `schedules` order the two.

May import `training.core` and `training.compile`; knows no files and no logs.
"""
