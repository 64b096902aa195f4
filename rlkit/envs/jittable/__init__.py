"""Environments that compile: the contract of a JAX environment, its vectorisation, wrappers, and
Gymnax.

May import `envs.base` and `envs.ids`; knows nothing of simulators on the host.
"""
