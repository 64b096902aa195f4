"""The only place of `jax.jit`: ahead-of-time compilation, seeds in parallel, the compilation cache.

May import `xla_cpu` and `types`; knows no environment, agent or algorithm.
"""
