"""Rows that are recorded one seed at a time: a file of JSON lines for each cell of a table."""

import json
import threading
from pathlib import Path
from typing import Any

_LOCK = threading.Lock()  # cells are filled by threads


def read(path: Path, settings: object) -> list[dict[str, Any]]:
    """The rows of a file that were made with these settings, without them."""
    if not path.exists():
        return []
    now = json.loads(json.dumps(settings))
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in found if row.pop("settings") == now]


def add(path: Path, settings: object, row: dict[str, Any], key: tuple[str, ...]) -> None:
    """Adds a row, which replaces the one that is equal in `key`, and all of other settings."""
    with _LOCK:
        kept = [old for old in read(path, settings) if any(old[k] != row[k] for k in key)]
        lines = sorted([*kept, row], key=lambda line: [line[k] for k in key])
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text("".join(json.dumps({**line, "settings": settings}) + "\n" for line in lines))
        new.replace(path)
