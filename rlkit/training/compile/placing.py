"""Where arrays are when the devices of a run belong to several processes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from rlkit.types import PyTree


def placed(tree: PyTree, shardings: PyTree, are_rows: PyTree = False) -> PyTree:
    """Arrays that every process has in whole, or that are divided already, as `shardings` say.

    Of those that `are_rows`, each process has the rows of its own environments. Both are prefixes
    of the tree. Processes do not talk; what is there already is not copied.
    """
    if are_rows is False:
        are_rows = jax.tree.map(lambda _: False, shardings)

    def subtree(sharding: Sharding, is_rows: bool, part: PyTree) -> PyTree:
        place = _joined if is_rows else _placed
        return jax.tree.map(lambda x: place(x, sharding), part)

    return jax.tree.map(subtree, shardings, are_rows, tree)


def own_rows(tree: PyTree, are_rows: PyTree = True) -> PyTree:
    """The rows of this process in arrays, or in those that `are_rows`, a prefix of the tree."""

    def subtree(is_rows: bool, part: PyTree) -> PyTree:
        return jax.tree.map(_own_rows, part) if is_rows else part

    return jax.tree.map(subtree, are_rows, tree)


def is_divided(leaf: object) -> bool:
    """Whether no process has all of an array."""
    is_array = isinstance(leaf, jax.Array)
    return is_array and not (leaf.is_fully_addressable or leaf.is_fully_replicated)


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
        if is_divided(leaf):
            return jax.jit(lambda x: x, out_shardings=sharding)(leaf)
        leaf = _local(leaf)
    whole = np.asarray(leaf)
    whole = whole.astype(jax.dtypes.canonicalize_dtype(whole.dtype), copy=False)
    return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])


def _joined(leaf: Any, sharding: Sharding) -> Any:
    """An array of which this process has some rows."""
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return leaf
    rows = np.asarray(leaf)
    rows = rows.astype(jax.dtypes.canonicalize_dtype(rows.dtype), copy=False)
    return jax.make_array_from_process_local_data(sharding, rows)


def _own_rows(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        return leaf
    shards = {str(shard.index): shard for shard in leaf.addressable_shards}
    if len(shards) == 1:  # without waiting for it
        return leaf.addressable_data(0)
    ordered = sorted(shards.values(), key=lambda shard: [at.start or 0 for at in shard.index])
    sizes = zip(leaf.shape, ordered[0].data.shape, strict=True)
    axis = next(axis for axis, (size, own) in enumerate(sizes) if size != own)
    return np.concatenate([np.asarray(shard.data) for shard in ordered], axis)


def _local(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        return leaf
    return leaf.addressable_data(0)
