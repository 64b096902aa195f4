"""Leaves of pytrees as plain arrays with descriptions, for checkpoints and digests."""

import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlkit.errors import CheckpointError, require
from rlkit.types import PyTree
from rlkit.validation import PlainData

_require = functools.partial(require, error=CheckpointError)


def tree_digest(tree: PyTree) -> str:
    """SHA-256 over path, dtype, shape and bytes of every leaf, ordered by path.

    Equal only for bit-equal trees.
    """
    found, host = fetch({"tree": tree})["tree"]
    digest = hashlib.sha256()
    for entry, array in sorted(zip(found, host, strict=True), key=lambda pair: pair[0]["path"]):
        digest.update(
            json.dumps([entry["path"], entry["dtype"], entry["shape"], entry["key"]]).encode()
            + b"\0"
        )
        digest.update(array_bytes(array))
    return digest.hexdigest()


def fetch(items: Mapping[str, PyTree]) -> dict[str, tuple[list[PlainData], list[np.ndarray]]]:
    """The leaves of each item on the host, after their descriptions; keys become their data."""
    described = {name: describe_all(tree) for name, tree in items.items()}
    values = {
        n: [jax.random.key_data(leaf) if e["key"] else leaf for e, leaf in found]
        for n, found in described.items()
    }
    host = jax.device_get(values)
    return {
        n: ([entry for entry, _ in described[n]], [np.asarray(leaf) for leaf in host[n]])
        for n in described
    }


def describe_all(tree: PyTree) -> list[tuple[PlainData, Any]]:
    """(description, leaf) of every leaf: path, dtype, shape and key implementation.

    Keys are described by their data.
    """
    found = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = jax.tree_util.keystr(path)
        data = leaf if hasattr(leaf, "dtype") and hasattr(leaf, "shape") else np.asarray(leaf)
        shape, dtype, implementation = data.shape, data.dtype, None
        if jnp.issubdtype(dtype, jax.dtypes.prng_key):
            single, implementation = key_type(dtype)
            shape, dtype = (*shape, *single.shape), single.dtype
        dtype = np.dtype(dtype)
        number = dtype.kind == "b" or (dtype.kind not in "mM" and jnp.issubdtype(dtype, np.number))
        _require(
            number, f"the leaf {name} is a {type(leaf).__name__}", "checkpoints hold numbers only"
        )
        found.append(
            (
                {
                    "path": name,
                    "dtype": dtype.name,
                    "shape": list(shape),
                    "key": implementation,
                },
                leaf,
            )
        )
    distinct = len({entry["path"] for entry, _ in found}) == len(found)
    _require(distinct, "two leaves have the same path", "rename the keys of the tree")
    return found


@functools.cache  # a trace at each save would stay in JAX's caches for ever
def key_type(dtype: Any) -> tuple[jax.ShapeDtypeStruct, str]:
    """(shape and dtype of the data of one key, its implementation)."""
    names: list[str] = []  # jax.random.key_impl accepts arrays and tracers, not ShapeDtypeStruct

    def data(key: Array) -> Array:
        names.append(str(jax.random.key_impl(key)))
        return jax.random.key_data(key)

    return jax.eval_shape(data, jax.ShapeDtypeStruct((), dtype)), names[0]


def rebuild(array: np.ndarray, implementation: str | None, target: PyTree) -> PyTree:
    if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
        return array  # a JAX array would lose half of the bits
    placed = (
        target.committed
        if isinstance(target, jax.Array)
        else getattr(target, "sharding", None) is not None
    )
    # At once where it belongs: the whole may be too large for a single device.
    value = jax.device_put(array, target.sharding) if placed else jnp.array(array)
    return jax.random.wrap_key_data(value, impl=implementation) if implementation else value


def leaf_name(index: int) -> str:
    return f"leaf_{index:05}"


def entry_text(entry: PlainData) -> str:
    shape = list(entry["shape"])
    return f"key<{entry['key']}>{shape[:-1]}" if entry["key"] else f"{entry['dtype']}{shape}"


def array_bytes(array: np.ndarray) -> memoryview:
    # bfloat16 has no buffer protocol of its own.
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
