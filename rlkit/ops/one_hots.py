"""One-hot vectors of several integers."""

import jax
import jax.numpy as jnp
from jax import Array


def one_hots(index: Array, counts: tuple[int, ...]) -> Array:
    """Integers [..., K] from 0, of `counts` values each, as one vector [..., sum of the counts].

    What is out of range is zeros. Counts that repeat, as those of a grid whose cells have two
    numbers each, are computed together: a kernel for each integer would take longer than a layer.
    """
    period = _period(counts)
    groups = index.reshape(*index.shape[:-1], -1, period)  # [..., K / period, period]
    parts = [jax.nn.one_hot(groups[..., i], counts[i]) for i in range(period)]
    return jnp.concatenate(parts, axis=-1).reshape(*index.shape[:-1], -1)


def _period(counts: tuple[int, ...]) -> int:
    """The length of the shortest list that, repeated, is `counts`."""
    size = len(counts)
    divisors = (n for n in range(1, size + 1) if size % n == 0)
    return next(n for n in divisors if counts == counts[:n] * (size // n))
