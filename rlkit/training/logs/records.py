"""Records: the rows of a run's log, in memory and in a JSONL file.

A JSONL file holds one `Record` per row, in UTF-8, each ended by a newline:

    {"kind": "eval", "env_steps": 4096, "updates": 12, "wall_seconds": 1.5, "seed": null, "metrics":
    {"eval/avg_return": 21.0}}

- `kind`: "train", "eval", "user", "text", "event", "warning" or "error";
- `env_steps`, `updates`: whole numbers, environment and gradient steps of one seed so far;
- `wall_seconds`: seconds since the start;
- `seed`: whole number, or null for all seeds together (their average);
- `metrics`: names to numbers. JSON has no NaN or infinity: NaN is written null, infinities
  "Infinity" and "-Infinity"; reading gives the same floats back;
- `text`: a string; only in rows that have one.

Readers ignore keys they do not know and a last row without its newline (its writer was killed).
"""

import dataclasses
import json
import os
from pathlib import Path
from typing import Literal

from rlkit.errors import ConfigError
from rlkit.training.logs.strict_json import number_from_json, to_strict_json
from rlkit.validation import PlainData

Kind = Literal["train", "eval", "user", "text", "event", "warning", "error"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """One row of a run's log; see the module's docstring for units."""

    kind: Kind
    env_steps: int
    updates: int
    wall_seconds: float
    seed: int | None = None
    """None: averaged over all seeds"""
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    text: str | None = None

    def to_json(self) -> str:
        """One line of strict JSON, without newline. Metrics may be anything that `float` takes."""
        row: PlainData = {
            "kind": self.kind,
            "env_steps": int(self.env_steps),
            "updates": int(self.updates),
        }
        row["wall_seconds"] = float(self.wall_seconds)
        row["seed"] = None if self.seed is None else int(self.seed)
        row["metrics"] = {name: float(value) for name, value in self.metrics.items()}
        if self.text is not None:
            row["text"] = self.text
        return to_strict_json(row)

    @classmethod
    def from_json(cls, line: str) -> "Record":
        """Parses the output of `to_json`; raises `ConfigError` for anything else."""
        try:
            row = json.loads(line)
            known = {
                field.name: row[field.name]
                for field in dataclasses.fields(cls)
                if field.name in row
            }
            known["wall_seconds"] = number_from_json(row["wall_seconds"])
            known["metrics"] = {
                name: number_from_json(value) for name, value in row["metrics"].items()
            }
            return cls(**known)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"not a record: {line[:80]!r} ({error}); delete that line") from None


def read_records(path: str | os.PathLike[str]) -> list[Record]:
    """All records of a JSONL file. Raises `ConfigError` for a missing file or invalid rows."""
    try:
        rows = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        fix = "pass the metrics.jsonl of a run directory (as written by `rlkit train`)"
        raise ConfigError(
            f"cannot read records from {path}: {error.strerror or error}; {fix}"
        ) from None
    records = []
    for number, row in enumerate(
        rows[:-1], start=1
    ):  # after the last newline: nothing, or an incomplete row
        try:
            records.append(Record.from_json(row.decode()))
        except ValueError as error:  # a ConfigError or UnicodeDecodeError
            raise ConfigError(f"{path}, line {number}: {error}") from None
    return records


def headline(error: str) -> str:
    """A one-line summary: the first line, or that of the error below the frames of a traceback.

    Notes may follow it, such as JAX's on the frames that it leaves out.
    """
    last = error.strip().rpartition("Traceback (most recent call last):\n")[2].splitlines()
    return next((line for line in last if not line.startswith(" ")), last[-1])
