"""JAX environments: the `JaxEnv` contract, `vectorize`, wrappers, and Gymnax.

May import `envs.base` and `envs.ids`, but nothing from `envs.host`, `envs.probes` or above.
"""
