"""Simulators stepped from Python: Gymnasium, Atari and EnvPool as host adapters, in processes of
their own where asked.

May import `envs.base`; knows no jittable environment, no check and no registry.
"""
