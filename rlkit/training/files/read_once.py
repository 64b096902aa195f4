"""A checkpoint that process 0 reads, for all processes that train a run."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from rlkit.training.compile import placing
from rlkit.training.compile.devices import host_device
from rlkit.training.files.checkpoint_leaves import key_type
from rlkit.training.files.checkpointer import Checkpointer, Which
from rlkit.training.files.stored_step import Restored
from rlkit.training.processes.group import Processes
from rlkit.training.processes.transfer import without_keys
from rlkit.types import PyTree
from rlkit.validation import PlainData


def read(
    processes: Processes,
    checkpointer: Checkpointer,
    which: Which,
    target: Callable[[PlainData], dict[str, PyTree]],
) -> Restored:
    """See `Checkpointer.restore`: process 0 reads, and sends to the others what is theirs.

    Each process puts what belongs on its devices there, and nothing else.
    """
    if processes.count == 1:
        return checkpointer.restore(which, target)
    found: list[Restored] = []

    def reading() -> PlainData:
        found.append(checkpointer.restore(which, lambda metadata: _on_host(target(metadata))))
        skipped = [list(pair) for pair in found[0].skipped]
        return {
            "step": found[0].step,
            "metadata": found[0].metadata,
            "score": found[0].score,
            "skipped": skipped,
        }

    told: Any = processes.on_main(reading)
    items = target(told["metadata"])
    leaves, structure = jax.tree.flatten(items)
    kinds = [_key_kind(leaf) for leaf in leaves]
    mine = without_keys(found[0].items)[0] if found else []
    arrays = processes.from_main(mine, [_data_of(leaf) for leaf in leaves])
    placed = [_placed(*each) for each in zip(arrays, kinds, leaves, strict=True)]
    return Restored(
        step=told["step"],
        items=jax.tree.unflatten(structure, placed),
        metadata=told["metadata"],
        score=told["score"],
        skipped=tuple((step, why) for step, why in told["skipped"]),
    )


def _on_host(tree: PyTree) -> PyTree:
    """The same shapes, in the memory of the host."""
    there = SingleDeviceSharding(host_device())
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=there), tree)


def _key_kind(leaf: Any) -> str | None:
    """The implementation of random keys; None: the leaf holds none."""
    return key_type(leaf.dtype)[1] if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else None


def _data_of(leaf: Any) -> jax.ShapeDtypeStruct:
    """The shape and dtype of what is sent in place of a leaf."""
    if _key_kind(leaf) is None:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    data = key_type(leaf.dtype)[0]
    return jax.ShapeDtypeStruct((*leaf.shape, *data.shape), data.dtype)


def _placed(array: np.ndarray, kind: str | None, target: Any) -> Any:
    if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
        return array  # a JAX array would lose half of the bits
    sharding = getattr(target, "sharding", None)
    value = jnp.array(array) if sharding is None else placing.placed(array, sharding)
    return value if kind is None else jax.random.wrap_key_data(value, impl=kind)
