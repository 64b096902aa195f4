"""`as_key`: a seed or a key, as a key."""

import jax
from jax import Array


def as_key(key: Array | int) -> Array:
    """A typed key; an integer is the seed of one."""
    return jax.random.key(key) if isinstance(key, int) else key
