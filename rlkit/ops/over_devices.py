"""Sums and means over a mapped axis of devices, of many arrays at once."""

from typing import TypeVar

import jax
import jax.numpy as jnp

Tree = TypeVar("Tree")


def psum(tree: Tree, axis_name: str) -> Tree:
    """`jax.lax.psum` of a tree, as one reduction for each dtype.

    Devices wait for each other in each reduction, and a gradient is a dozen small arrays.
    """
    leaves, structure = jax.tree.flatten(tree)
    arrays = [jnp.asarray(x) for x in leaves]
    found = list(arrays)
    for dtype in dict.fromkeys(x.dtype for x in arrays):
        places = [i for i, x in enumerate(arrays) if x.dtype == dtype]
        joined = jnp.concatenate([arrays[i].ravel() for i in places])
        total, start = jax.lax.psum(joined, axis_name), 0
        for i in places:
            end = start + arrays[i].size
            found[i] = total[start:end].reshape(arrays[i].shape)
            start = end
    return jax.tree.unflatten(structure, found)


def pmean(tree: Tree, axis_name: str) -> Tree:
    """`jax.lax.pmean` of a tree, as one reduction for each dtype."""
    size = jax.lax.axis_size(axis_name)
    return jax.tree.map(lambda x: x / size, psum(tree, axis_name))
