"""`StoredStep`: one step of a checkpointer on disk, verified when it is read, never unpickled.

A step is a directory `<step>/` with one Orbax array item per name given to `Checkpointer.save`, and
two JSON items. `signature` lists path, dtype, shape and CRC-32 of every leaf, because Orbax neither
notices flipped bits nor rejects a different dtype; `record` holds score and metadata, the step, and
the checksum of the signature, so that neither can be another step's. Leaves are stored under
positional names, because Orbax confuses the keys `a.b` and `a`/`b`.
"""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import shutil
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from rlkit.errors import CheckpointError, require
from rlkit.training.files.checkpoint_leaves import (
    array_bytes,
    describe_all,
    entry_text,
    leaf_name,
    rebuild,
)
from rlkit.training.files.late_callbacks import late_callbacks_dropped
from rlkit.types import PyTree
from rlkit.validation import PlainData

SIGNATURE, RECORD = "signature", "record"
Target = Mapping[str, PyTree] | Callable[[PlainData], Mapping[str, PyTree]]
Fetched = Mapping[str, tuple[list[PlainData], list[np.ndarray]]]
"""The descriptions and the leaves of each item, as `checkpoint_leaves.fetch` gives them."""
_require = functools.partial(require, error=CheckpointError)
_SHOWN = 5  # differing leaves listed in an error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Restored:
    """What `Checkpointer.restore` read."""

    step: int
    """The step that was read."""
    items: dict[str, PyTree]
    """The requested items, in the structure of their targets."""
    metadata: PlainData
    """The metadata given to `save`."""
    score: float | None
    """The score given to `save`."""
    skipped: tuple[tuple[int, str], ...] = ()
    """Skipped damaged steps, newest first, each with the reason."""


class DamagedStepError(CheckpointError):
    """A step whose files are missing, truncated or altered."""


def contents(record: PlainData, fetched: Fetched) -> dict[str, ocp.args.CheckpointArgs]:
    """What Orbax is to write for a step, by item; `record` is plain JSON data."""
    signature = {
        name: [
            entry | {"crc32": zlib.crc32(array_bytes(leaf))}
            for entry, leaf in zip(*pair, strict=True)
        ]
        for name, pair in fetched.items()
    }
    sealed_signature = sealed(signature)
    tied = record | {"signature_crc32": sealed_signature["crc32"]}
    written: dict[str, ocp.args.CheckpointArgs] = {
        SIGNATURE: ocp.args.JsonSave(sealed_signature),
        RECORD: ocp.args.JsonSave(sealed(tied)),
    }
    for name, (_, leaves) in fetched.items():
        # Orbax refuses empty arrays.
        if stored := {leaf_name(i): leaf for i, leaf in enumerate(leaves) if leaf.size}:
            written[name] = ocp.args.StandardSave(stored)
    return written


class StoredStep:
    """One step in the directory of a checkpointer; raises `DamagedStepError` where it is damaged.

    Any other failure is a `CheckpointError` that names the step and the directory.
    """

    def __init__(self, directory: pathlib.Path, step: int):
        self.path = directory / str(step)
        self._step, self._name = step, f"step {step} of {directory}"

    def record(self) -> PlainData:
        """What was recorded with the step: its number, scores and metadata."""
        record = self._read_json(RECORD)
        is_own = record["step"] == self._step
        require(is_own, "record is that of another step", "it was moved here", DamagedStepError)
        return record

    def read(self, reader: ocp.Checkpointer, target: Target) -> Restored:
        """The items that `target` names, bit for bit; see `Checkpointer.restore`."""
        record, signature = self.record(), self._read_json(SIGNATURE)
        is_own = record.get("signature_crc32") in (None, _text_crc(signature))  # None: early ones
        fault = "record belongs to other arrays"
        require(is_own, fault, "one of the two was moved here", DamagedStepError)
        target = target(record["metadata"]) if callable(target) else target
        self._require_items(target, signature)
        wanted = {name: describe_all(tree) for name, tree in target.items()}
        self._require_match(wanted, signature)
        items = {}
        for name, tree in target.items():
            arrays = self._read_arrays(reader, name, signature[name])
            leaves = [
                rebuild(arrays[entry["path"]], entry["key"], leaf) for entry, leaf in wanted[name]
            ]
            items[name] = jax.tree.unflatten(jax.tree.structure(tree), leaves)
        metadata, score = record["metadata"], record["score"]
        return Restored(step=self._step, items=items, metadata=metadata, score=score)

    def copy(self, items: Sequence[str], directory: pathlib.Path, *, metadata: PlainData) -> None:
        """Copies some items, with the score and new metadata, to another `directory`."""
        record, signature = self.record(), self._read_json(SIGNATURE)
        self._require_items(items, signature)
        target = directory / str(self._step)
        for name in items:
            shutil.copytree(self.path / name, target / name)
        kept = sealed({name: signature[name] for name in items})
        tied = record | {"signature_crc32": kept["crc32"], "metadata": metadata}
        for name, body in ((SIGNATURE, kept), (RECORD, sealed(tied))):
            (target / name).mkdir(parents=True)
            (target / name / "metadata").write_text(json.dumps(body))

    def keep_others_out(self) -> None:
        """Takes others' right to write from the directory and all in it, whatever the umask is."""
        with contextlib.suppress(OSError):  # it was removed, or the disk knows no such rights
            if self.path.stat().st_mode & 0o022 == 0:
                return
            for folder, _, files in os.walk(self.path):
                for found in (folder, *(os.path.join(folder, name) for name in files)):
                    os.chmod(found, os.stat(found).st_mode & ~0o022)

    def _read_json(self, name: str) -> PlainData:
        try:
            found = json.loads((self.path / name / "metadata").read_bytes())
            body = found["body"]
            intact = found["crc32"] == _text_crc(body)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedStepError(f"{name} is unreadable: {first_line(error)}") from None
        require(intact, f"{name} was altered", "its checksum differs", DamagedStepError)
        return body

    def _require_items(self, names: Iterable[str], signature: PlainData) -> None:
        has = f"it has {', '.join(signature) or 'none'}"
        for name in names:
            _require(name in signature, f"{self._name} has no item {name!r}", has)

    def _require_match(
        self, wanted: dict[str, list[tuple[dict, Any]]], signature: dict[str, list[dict]]
    ) -> None:
        lines = []
        for name, entries in wanted.items():
            want = {entry["path"]: entry_text(entry) for entry, _ in entries}
            found = {entry["path"]: entry_text(entry) for entry in signature[name]}
            for path in want | found:
                if want.get(path) != found.get(path):
                    lines.append(
                        f"{name}{path}: wanted {want.get(path, 'nothing')}, found"
                        f" {found.get(path, 'nothing')}"
                    )
        more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        problem = f"{self._name} does not match: {'; '.join(lines[:_SHOWN])}{more}"
        _require(not lines, problem, "use the settings that it was saved with")

    def _read_arrays(
        self, reader: ocp.Checkpointer, name: str, signature: list[PlainData]
    ) -> dict[str, np.ndarray]:
        """The verified leaves of an item by path."""
        # Broadcast scalars give Orbax dtype and shape without taking memory.
        expected = [
            np.broadcast_to(np.zeros((), jnp.dtype(entry["dtype"])), entry["shape"])
            for entry in signature
        ]
        stored = {leaf_name(i): leaf for i, leaf in enumerate(expected) if leaf.size}
        try:
            with late_callbacks_dropped():
                wanted = ocp.args.StandardRestore(stored)
                read = reader.restore(self.path / name, wanted) if stored else {}
        except Exception as error:  # Orbax and TensorStore raise anything, even a bare Exception
            raise DamagedStepError(f"{name} is unreadable: {first_line(error)}") from None
        arrays = {}
        for i, (entry, like) in enumerate(zip(signature, expected, strict=True)):
            leaf = np.asarray(read.get(leaf_name(i), like))
            same = (leaf.shape, leaf.dtype, zlib.crc32(array_bytes(leaf))) == (
                like.shape,
                like.dtype,
                entry["crc32"],
            )
            fault = f"{name}{entry['path']} was altered"
            require(same, fault, "its checksum differs", DamagedStepError)
            arrays[entry["path"]] = leaf
        return arrays


def sealed(body: object) -> PlainData:
    """Plain JSON data with its checksum; raises `CheckpointError` for other data."""
    try:
        body = json.loads(json.dumps(body))
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"metadata is not plain JSON data: {error}; use numbers, strings, lists, dicts"
        ) from None
    return {"body": body, "crc32": _text_crc(body)}


def first_line(error: BaseException) -> str:
    """Kind and first line of an error, for a sentence about it."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0][:160]}"


def _text_crc(body: object) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())
