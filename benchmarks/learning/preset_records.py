"""What was recorded of each preset: a file with a line for each seed."""

from pathlib import Path
from typing import Any

from goals import GOALS, settings

import rows
from records import HERE

DIRECTORY = HERE / "results" / "learning"


def _path(name: str) -> Path:
    return DIRECTORY / f"{name.replace('/', '--')}.jsonl"


def read(name: str) -> list[dict[str, Any]]:
    """The rows of a preset that were made with its present file, by seed."""
    return rows.read(_path(name), settings(name))


def add(name: str, row: dict[str, Any]) -> None:
    """Adds a row, which replaces that of the same seed."""
    rows.add(_path(name), settings(name), row, key=("seed",))


def missing(name: str) -> list[int]:
    """The seeds that a preset was not trained on yet."""
    known = {row["seed"] for row in read(name)}
    return [seed for seed in range(GOALS[name].seeds) if seed not in known]
