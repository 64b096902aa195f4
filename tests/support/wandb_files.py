"""What W&B's files of an offline run hold, by its own messages."""

import json
import pathlib
import shutil
import struct
import sys
from collections.abc import Iterator
from typing import Any


def wandb_files(directory: pathlib.Path) -> list[pathlib.Path]:
    """The files of all offline runs below `directory`, oldest run first.

    Ends W&B's own process, which may still be writing when a run is finished.
    """
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()
    return sorted(directory.rglob("run-*.wandb"), key=_start)


def wandb_history(directory: pathlib.Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of all offline runs below `directory`, oldest run first, with the run ids."""
    rows, ids = [], []
    for path in wandb_files(directory):
        for kind, entry in _entries(path):
            if kind == "history":
                rows.append(_items(entry.history.item))
            elif kind == "run":
                ids.append(entry.run.run_id)
    return rows, ids


def wandb_labels(path: pathlib.Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a file says of its run: its labels and its config."""
    labels, config = {}, {}
    for kind, entry in _entries(path):
        update = entry.run.config if kind == "run" else entry.config
        if kind in ("run", "config"):
            config |= {item.key: json.loads(item.value_json) for item in update.update if item.key}
        if kind == "run":
            labels = {
                "project": entry.run.project,
                "name": entry.run.display_name,
                "group": entry.run.run_group,
                "tags": list(entry.run.tags),
                "notes": entry.run.notes,
            }
    return labels, config


def wandb_summary(path: pathlib.Path) -> dict[str, Any]:
    """The summary of a run, with names such as `eval/avg_return.max`."""
    summary = {}
    for kind, entry in _entries(path):
        if kind == "summary":
            summary |= _items(entry.summary.update, ".")
    return summary


def lay_out_artifacts(path: pathlib.Path, directory: pathlib.Path) -> list[dict[str, Any]]:
    """Copies the files staged for the artifacts of a run to `directory`; returns their metadata."""
    found = []
    for kind, entry in _entries(path):
        if kind == "artifact":
            found.append({"type": entry.artifact.type, **json.loads(entry.artifact.metadata)})
            for file in entry.artifact.manifest.contents:
                target = directory / file.path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file.local_path, target)
    return found


def _start(path: pathlib.Path) -> int:
    """When a run was started, in nanoseconds; of one killed early, when its file was written."""
    for kind, entry in _entries(path):
        if kind == "run":
            return entry.run.start_time.ToNanoseconds()
    return path.stat().st_mtime_ns


def _items(items: Any, separator: str = "/") -> dict[str, Any]:
    return {
        item.key or separator.join(item.nested_key): json.loads(item.value_json) for item in items
    }


def _entries(path: pathlib.Path) -> Iterator[tuple[str, Any]]:
    """The messages of a file, each with its kind."""
    from wandb.proto import wandb_internal_pb2

    for data in _chunks(path.read_bytes()):
        entry = wandb_internal_pb2.Record()
        entry.ParseFromString(data)
        yield entry.WhichOneof("record_type"), entry


def _chunks(content: bytes) -> Iterator[bytes]:
    """Splits W&B's file, in the log format of LevelDB: blocks of 32 KiB with chunks of crc, length,
    place (full, first, …).
    """
    place, entry = 7, b""
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        _, length, chunk = struct.unpack("<IHB", content[place : place + 7])
        entry += content[place + 7 : place + 7 + length]
        place += 7 + length
        if chunk in (1, 4):  # full, last
            yield entry
            entry = b""
