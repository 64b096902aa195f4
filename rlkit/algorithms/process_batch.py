"""What a user does to each batch before the loss sees it."""

import inspect
from collections.abc import Callable

import jax

from rlkit.errors import require
from rlkit.ops.over_devices import own_key
from rlkit.signatures import require_takes, signature_of
from rlkit.types import Key, PyTree

ProcessBatch = Callable[[PyTree], PyTree] | Callable[[PyTree, Key], PyTree]
"""`process_batch(batch) -> batch`, or `process_batch(batch, key) -> batch` to draw at random."""
_NOT_SECOND = (
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)
OWN_STREAM = 0x70726F63  # folded into the key of an update, whose other draws stay as they are


def takes_key(process_batch: ProcessBatch) -> bool:
    """Whether it asks for a key: its second argument is named so, or has no default.

    Raises `ConfigError` if it cannot be called like that.
    """
    fix = "pass a function of the batch, or of the batch and a key"
    is_function = callable(process_batch)
    require(is_function, f"process_batch must be a function, got {process_batch!r}", fix)
    signature = signature_of(process_batch)
    asks = signature is not None and any(
        each.kind not in _NOT_SECOND and (each.name == "key" or each.default is each.empty)
        for each in list(signature.parameters.values())[1:2]
    )
    require_takes(process_batch, ("batch", "key")[: 1 + asks], "process_batch", fix)
    return asks


def process(
    process_batch: ProcessBatch | None, batch: PyTree, key: Key, axis_name: str | None
) -> PyTree:
    """The batch that the loss gets. `key` is that of its update, and is not consumed.

    On several devices each part of the batch gets a key of its own.
    """
    if process_batch is None:
        return batch
    if takes_key(process_batch):
        key = own_key(jax.random.fold_in(key, OWN_STREAM), axis_name)
        processed = process_batch(batch, key)  # pyright: ignore[reportCallIssue]
    else:
        processed = process_batch(batch)  # pyright: ignore[reportCallIssue]
    require(
        processed is not None,
        "process_batch must return the batch, got None",
        "write return batch.replace(...), for instance",
    )
    return processed
