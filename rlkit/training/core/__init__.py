"""The pure core: `Module`, `fit`, the outer iteration and evaluation; all of it may be traced.

May import `algorithms`, `agents` and `envs`; knows no file, no log and no `jax.jit`.
"""
