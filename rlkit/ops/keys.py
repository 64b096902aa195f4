"""`as_key`: a seed or a key, as a key."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlkit.errors import ConfigError


def is_seed(key: object) -> bool:
    """Whether it is an integer, which stands for the key that it is the seed of."""
    return isinstance(key, (int, np.integer)) and not isinstance(key, bool)


def as_key(key: Array | int) -> Array:
    """A typed key; an integer is the seed of one. Raises `ConfigError` for anything else."""
    return jax.random.key(key) if is_seed(key) else typed_keys(key)


def typed_keys(key: object) -> Array:
    """`key`, if it is an array of typed keys. Raises `ConfigError` for anything else."""
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    shape, dtype = getattr(key, "shape", ()), getattr(key, "dtype", None)
    is_legacy = shape[-1:] == (2,) and dtype == np.uint32
    given = "a legacy key (PRNGKey)" if is_legacy else repr(key)
    raise ConfigError(
        f"key must be a typed key or a seed, got {given}; pass jax.random.key(0), or 0"
    )
