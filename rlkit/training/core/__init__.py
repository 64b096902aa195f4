"""The pure core: what a learner is (`Module`), `fit`, the outer iteration, and evaluation.
Everything here may be traced.

May import `algorithms`, `agents` and `envs`; knows no file, no log and no `jax.jit`.
"""
