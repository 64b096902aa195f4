"""For a mapped axis of devices: keys of their own; sums, means and moments over all of them."""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array

Tree = TypeVar("Tree")


def own_key(key: Array, axis_name: str | None) -> Array:
    """A key for this device, from one that all of them have; the same if there is no such axis."""
    return key if axis_name is None else jax.random.fold_in(key, jax.lax.axis_index(axis_name))


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


def moments(x: Array, axis_name: str | None) -> tuple[Array, Array]:
    """Mean and variance of `x`, over all devices."""
    mean = x.mean()
    variance = jnp.square(x - mean).mean()
    if axis_name is None:
        return mean, variance
    # Of each device, in a single reduction: that of all is the mean of theirs and theirs of means.
    means, variances = jax.lax.all_gather(jnp.stack([mean, variance]), axis_name, axis=1)
    mean = means.mean()
    return mean, (variances + jnp.square(means - mean)).mean()
