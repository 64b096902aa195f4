"""Where arrays are when the devices of a run belong to several processes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from rlkit.types import PyTree


def placed(tree: PyTree, shardings: PyTree) -> PyTree:
    """Arrays that every process has in whole, or that are divided already, as `shardings` say.

    `shardings` is a prefix of the tree. Processes do not talk; what is there already is not copied.
    """

    def subtree(sharding: Sharding, part: PyTree) -> PyTree:
        return jax.tree.map(lambda x: _placed(x, sharding), part)

    return jax.tree.map(subtree, shardings, tree)


def own_part(tree: PyTree) -> PyTree:
    """What the first device of this process has of arrays that are divided among processes."""
    return jax.tree.map(_local, tree)


def _placed(leaf: Any, sharding: Sharding) -> Any:
    if isinstance(leaf, jax.Array):
        if leaf.sharding.is_equivalent_to(sharding, leaf.ndim):
            return leaf
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            data = _placed(jax.random.key_data(leaf), sharding)
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
        if sharding.is_fully_addressable:
            return jax.device_put(_local(leaf), sharding)
        if not leaf.is_fully_addressable and not leaf.is_fully_replicated:
            return jax.jit(lambda x: x, out_shardings=sharding)(leaf)
        leaf = _local(leaf)
    whole = np.asarray(leaf)
    whole = whole.astype(jax.dtypes.canonicalize_dtype(whole.dtype), copy=False)
    return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])


def _local(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        return leaf
    return leaf.addressable_data(0)
