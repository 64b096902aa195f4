"""What was recorded of each cell: a file with a line for each contender and seed."""

import dataclasses
import json
import threading
from pathlib import Path
from typing import Any

from cells import CELLS, Cell, settings
from intervals import Curve, curve

from records import HERE

DIRECTORY = HERE / "results" / "curves"
_LOCK = threading.Lock()  # contenders of a cell are recorded by threads


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
    path = directory / f"{name}.jsonl"
    if not path.exists():
        return []
    found = [json.loads(line) for line in path.read_text().splitlines()]
    now = json.loads(json.dumps(settings(CELLS[name])))
    return [Row(row["contender"], row["seed"], row) for row in found if row.pop("settings") == now]


def add(name: str, contender: str, row: dict[str, Any], directory: Path = DIRECTORY) -> None:
    """Adds a row, which replaces that of the same contender and seed."""
    with _LOCK:
        new = (contender, row["seed"])
        kept = [r for r in read(name, directory) if (r.contender, r.seed) != new]
        lines = [{"contender": r.contender, **r.fields} for r in kept]
        lines.append({"contender": contender, **row})
        lines.sort(key=lambda line: (line["contender"], line["seed"]))
        told = settings(CELLS[name])
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{name}.jsonl"
        path.with_suffix(".new").write_text(
            "".join(json.dumps({**line, "settings": told}) + "\n" for line in lines)
        )
        path.with_suffix(".new").replace(path)


def missing(name: str, contender: str, directory: Path = DIRECTORY) -> list[int]:
    """The seeds of a cell that a contender was not trained on yet."""
    cell: Cell = CELLS[name]
    known = {row.seed for row in read(name, directory) if row.contender == contender}
    return [seed for seed in range(cell.seeds) if seed not in known]
