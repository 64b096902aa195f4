"""What was recorded of each cell: a file with a line for each contender and seed."""

import dataclasses
from pathlib import Path
from typing import Any

from cells import CELLS, Cell, settings

import rows
from intervals import Curve, curve
from records import HERE

DIRECTORY = HERE / "results" / "curves"


@dataclasses.dataclass(frozen=True)
class Row:
    """The curve of one contender on one seed."""

    contender: str
    seed: int
    fields: dict[str, Any]

    @property
    def curve(self) -> Curve:
        """The mean return of each tenth."""
        return curve(self.fields["return_sums"], self.fields["episodes"])


def read(name: str, directory: Path = DIRECTORY) -> list[Row]:
    """The rows of a cell that were made with its present settings."""
    found = rows.read(directory / f"{name}.jsonl", settings(CELLS[name]))
    return [Row(row["contender"], row["seed"], row) for row in found]


def add(name: str, contender: str, row: dict[str, Any], directory: Path = DIRECTORY) -> None:
    """Adds a row, which replaces that of the same contender and seed."""
    path = directory / f"{name}.jsonl"
    rows.add(
        path, settings(CELLS[name]), {"contender": contender, **row}, key=("contender", "seed")
    )


def missing(name: str, contender: str, directory: Path = DIRECTORY) -> list[int]:
    """The seeds of a cell that a contender was not trained on yet."""
    cell: Cell = CELLS[name]
    known = {row.seed for row in read(name, directory) if row.contender == contender}
    return [seed for seed in range(cell.seeds) if seed not in known]
