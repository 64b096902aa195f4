"""Bytes between processes, through their devices; and the arrays that are divided among them."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rlkit.types import PyTree

CHUNK = 2**22  # bytes of each process at once, so that devices need memory for few of them
_AXIS = "processes"


def exchanged(mine: np.ndarray, sizes: Sequence[int], *, is_heard: bool = True) -> list[np.ndarray]:
    """The bytes of all processes, [P] arrays of `sizes`; all call it, with [B] uint8.

    Where it is not heard, nothing is kept, and the arrays are empty.
    """
    longest = max(sizes)
    chunk = min(CHUNK, 1 << max(longest - 1, 1).bit_length())  # few sizes are few programs
    parts: list[list[np.ndarray]] = [[] for _ in sizes]
    for start in range(0, longest, chunk):
        block = np.zeros(chunk, np.uint8)
        own = mine[start : start + chunk]
        block[: len(own)] = own
        rows = _all_blocks(block)
        if not is_heard:
            rows.block_until_ready()
            continue
        for part, row, size in zip(parts, np.asarray(rows), sizes, strict=True):
            part.append(row[: max(min(size - start, chunk), 0)])
    return [np.concatenate(part) if part else np.zeros(0, np.uint8) for part in parts]


def _all_blocks(block: np.ndarray) -> jax.Array:
    mesh, replicate = _program()
    own = next(d for d in mesh.devices.flat if d.process_index == jax.process_index())
    whole = jax.make_array_from_single_device_arrays(
        (mesh.size, len(block)),
        NamedSharding(mesh, PartitionSpec(_AXIS)),
        [jax.device_put(block[None], own)],
    )
    return replicate(whole)


@functools.cache
def _program() -> tuple[Mesh, Any]:
    first = {d.process_index: d for d in sorted(jax.devices(), key=lambda d: -d.id)}
    mesh = Mesh(np.array([first[index] for index in sorted(first)]), (_AXIS,))
    return mesh, jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, PartitionSpec()))


def own_pieces(leaf: jax.Array) -> np.ndarray:
    """The bytes, [B] uint8, that this process alone must give for a divided array (no keys)."""
    index, shards = jax.process_index(), {s.device: s for s in leaf.addressable_shards}
    own = [shards[device] for device, _ in _pieces(leaf) if device.process_index == index]
    return joined([np.asarray(shard.data) for shard in own])


def whole_of(leaf: jax.Array, parts: list[np.ndarray]) -> np.ndarray:
    """A divided array from the pieces of all processes, each of which lose theirs in `parts`."""
    whole = np.empty(leaf.shape, leaf.dtype)
    for device, index in _pieces(leaf):
        target = whole[index]
        part = parts[device.process_index]
        target[...] = part[: target.nbytes].view(leaf.dtype).reshape(target.shape)
        parts[device.process_index] = part[target.nbytes :]
    return whole


def _pieces(leaf: jax.Array) -> list[tuple[Any, tuple[slice, ...]]]:
    """Each part of an array once: (the device whose copy is taken, where it is)."""
    places = leaf.sharding.devices_indices_map(leaf.shape)
    found: dict[str, tuple[Any, Any]] = {}
    for device in sorted(places, key=lambda d: (d.process_index, d.id)):
        found.setdefault(str(places[device]), (device, places[device]))
    return list(found.values())


def joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The bytes of arrays, one after the other, [B] uint8."""
    flat = [np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in arrays]
    return np.concatenate(flat) if flat else np.zeros(0, np.uint8)


def without_keys(tree: PyTree) -> tuple[list[Any], list[str | None], Any]:
    """The leaves of a tree with the data of keys in place of keys; their kinds; the structure."""
    leaves, structure = jax.tree.flatten(tree)
    kinds = [str(jax.random.key_impl(x)) if _is_key(x) else None for x in leaves]
    plain = [x if k is None else jax.random.key_data(x) for x, k in zip(leaves, kinds, strict=True)]
    return plain, kinds, structure


def with_keys(leaves: Sequence[Any], kinds: Sequence[str | None], structure: Any) -> PyTree:
    """The tree that `without_keys` took apart."""
    made = [
        x if kind is None else jax.random.wrap_key_data(jnp.asarray(x), impl=kind)
        for x, kind in zip(leaves, kinds, strict=True)
    ]
    return jax.tree.unflatten(structure, made)


def _is_key(leaf: object) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
