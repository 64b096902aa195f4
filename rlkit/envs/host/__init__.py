"""Gymnasium, Atari and EnvPool simulators as host adapters, in this process or in worker processes.

May import `envs.base` and `envs.ids`, but nothing from `envs.jittable`, `envs.probes` or above.
"""
