"""The only place for `jax.jit`: ahead-of-time compilation, parallel seeds, compilation cache.

May import `xla_cpu` and `types`; knows no environment, agent or algorithm.
"""
