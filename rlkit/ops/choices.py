"""Choices among the actions that a mask allows."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlkit.ops.random_bits import as_integers


def allowed(mask: Array, sizes: Sequence[int]) -> Array:
    """The mask [B, ...] as bool [B, A], for choices among so many actions each.

    A choice of which nothing is allowed allows everything: what comes after a termination has no
    value, but must be a number. (Elsewhere it is an error, see `algorithms/finite.py`.)

    >>> allowed(jnp.array([[0, 1, 1], [1, 0, 0]]), (1, 2)).astype(int).tolist()
    [[1, 1, 1], [1, 1, 1]]
    """
    parts = _split(mask.reshape(mask.shape[0], -1) != 0, sizes)
    return jnp.concatenate([part | ~part.any(-1, keepdims=True) for part in parts], axis=-1)


def has_no_choice(mask: Array, sizes: Sequence[int]) -> Array:
    """Whether a choice of the mask [B, ...] has nothing that is allowed, [B] bool."""
    parts = _split(mask.reshape(mask.shape[0], -1) != 0, sizes)
    return jnp.stack([~part.any(-1) for part in parts]).any(0)


def random_index(bits: Array, allowed: Array) -> Array:
    """An index [B] int32 of what is allowed [B, A], each as likely, from bits [2, B] uint32.

    >>> bits = jnp.array([[0, 2**31, 2**32 - 1], [0, 0, 0]], jnp.uint32)
    >>> random_index(bits, jnp.array([[False, True, True, False]] * 3)).tolist()
    [1, 2, 2]
    """
    number = as_integers(bits, allowed.sum(-1))  # of those that are allowed
    return (jnp.cumsum(allowed, axis=-1) > number[:, None]).argmax(-1).astype(jnp.int32)


def random_indices(key: Array, allowed: Array, sizes: Sequence[int]) -> Array:
    """`random_index` for each choice, [B, choices]; the key is consumed."""
    bits = jax.random.bits(key, (len(sizes), 2, len(allowed)))
    parts = _split(allowed, sizes)
    return jnp.stack([random_index(*each) for each in zip(bits, parts, strict=True)], axis=-1)


def _split(x: Array, sizes: Sequence[int]) -> list[Array]:
    return jnp.split(x, np.cumsum(sizes)[:-1].tolist(), axis=-1)
