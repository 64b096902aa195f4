"""The length of a gradient."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

LARGE = 2**14  # numbers of an array; measured in docs/speed.md


def global_norm(tree: Any) -> Array:
    """The square root of the sum of all squares, [] float; as `optax.tree.norm`, to rounding."""
    return jnp.sqrt(sum((_sum_of_squares(x) for x in jax.tree.leaves(tree)), jnp.float32(0.0)))


def _sum_of_squares(x: Array) -> Array:
    if x.size <= LARGE:
        return jnp.square(x).sum()
    # Adam squares gradients as well. XLA would compute the square once and write it to memory for both; that of half of x is
    # another number, and stays in the kernel that sums. Halves and fourfolds are exact.
    return 4.0 * jnp.square(0.5 * x).sum()
