"""What the Trainer calls: the compiled functions of a run, and episodes to evaluate and record.

`protocol` defines a program; `factory` chooses between `jittable_program`, which compiles the
environments too, and `host_program`, which runs simulators on the host. There, `host_functions` are
compiled, `host_collector` steps `env_groups`, and `schedules` order the two.

May import `training.core` and `training.compile`; knows no files and no logs.
"""
