"""Observations and states in the dtypes that they are declared with."""

import jax
import jax.numpy as jnp

from rlkit.spaces import Space, jax_dtype, leaf_tree
from rlkit.types import Obs, PyTree


def cast_obs(obs: Obs, space: Space) -> Obs:
    """Observations in the dtypes of `space` (64-bit ones as 32-bit); free if they already agree."""
    return jax.tree.map(
        lambda leaf, x: jax.lax.convert_element_type(x, jax_dtype(leaf)),
        leaf_tree(space),
        obs,
    )


def cast_like(old: PyTree, new: PyTree) -> PyTree:
    """The new tree in the dtypes of the old one."""
    return jax.tree.map(
        lambda o, n: (
            jax.lax.convert_element_type(n, o.dtype) if jnp.result_type(n) != o.dtype else n
        ),
        old,
        new,
    )
