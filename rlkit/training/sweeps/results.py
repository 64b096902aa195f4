"""What the trials of a sweep reached: kept row by row, ranked, and as a table. No JAX."""

import csv
import dataclasses
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from rlkit.training.logs.records import Record
from rlkit.training.logs.series import series
from rlkit.training.logs.statistics import bootstrap_interval
from rlkit.training.logs.strict_json import number_from_json
from rlkit.training.sweeps.config import Rank
from rlkit.validation import PlainData

RETURN = "eval/avg_return"
State = Literal["finished", "stopped", "failed"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialResult:
    """What one trial reached up to a rung."""

    trial: int
    """Its number, from 0."""
    rung: int
    """The rung up to which it was trained, from 0."""
    settings: PlainData
    """What it changes, by name."""
    scores: tuple[float, ...]
    """What ranks it, of each seed; () if it failed."""
    env_steps: int
    """Environment steps of each seed."""
    skipped_updates: int = 0
    """Updates that were skipped because something was not finite."""
    failure: str | None = None
    """The error that ended it; None: it did not fail."""

    @property
    def score(self) -> float:
        """The mean of the scores; minus infinity without one that is a number."""
        known = [score for score in self.scores if math.isfinite(score)]
        return sum(known) / len(known) if len(known) == len(self.scores) > 0 else -math.inf

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % bootstrap interval of the score over seeds; None of one seed, or of none."""
        if len(self.scores) < 2 or not np.isfinite(self.scores).all():
            return None
        low, high = bootstrap_interval(np.array(self.scores)[:, None])
        return float(low[0]), float(high[0])


def score_of(records: Sequence[Record], rank: Rank) -> tuple[float, ...]:
    """What ranks a trial, of each seed, see `SweepConfig.rank`; () if it was never evaluated."""
    if rank == "area":
        records = [record for record in records if record.updates > 0]
    found = series(records, RETURN)
    if not len(found.env_steps):
        return ()
    seeds = found.seeds if len(found.seeds) else found.together[None]  # [S, K]
    return tuple((seeds[:, -1] if rank == "final" else seeds.mean(1)).tolist())


Results = dict[tuple[int, int], TrialResult]
"""What trials reached, by (rung, trial)."""


def from_rows(text: str) -> Results:
    """Results by (rung, trial), from a row of JSON for each; an unfinished last row is left out."""
    found = {}
    for row in text.split("\n")[:-1]:
        values = json.loads(row)
        scores = tuple(map(number_from_json, values.pop("scores")))
        result = TrialResult(scores=scores, **values)
        found[result.rung, result.trial] = result
    return found


def to_rows(results: Iterable[TrialResult]) -> str:
    """The opposite of `from_rows`."""
    rows = ""
    for result in results:
        values = dataclasses.asdict(result)
        values["scores"] = [x if math.isfinite(x) else None for x in result.scores]
        rows += json.dumps(values, allow_nan=False) + "\n"
    return rows


def ranked(results: Mapping[tuple[int, int], TrialResult]) -> list[TrialResult]:
    """The last result of each trial: those of later rungs first, then by score, best first."""
    last = {trial: results[rung, trial] for rung, trial in sorted(results)}
    return sorted(last.values(), key=lambda found: (-found.rung, -found.score, found.trial))


def table(results: Sequence[TrialResult], num_rungs: int) -> str:
    """The results as text, in columns."""
    names = list(dict.fromkeys(name for result in results for name in result.settings))
    known = any(result.interval is not None for result in results)  # not with one seed
    rows = [["trial", *names, "return", *["95 %"] * known, "steps", "note"]]
    for result in results:
        interval = result.interval
        rows.append(
            [
                f"{result.trial:03d}",
                *(shown(result.settings.get(name)) for name in names),
                f"{result.score:.2f}" if math.isfinite(result.score) else "-",
                *["" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"] * known,
                f"{result.env_steps:,}",
                note(result, num_rungs),
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def as_csv(results: Sequence[TrialResult]) -> str:
    """The results as comma-separated values, with a column for each setting and seed."""
    names = list(dict.fromkeys(name for result in results for name in result.settings))
    seeds = range(max((len(result.scores) for result in results), default=0))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ["return", "low", "high", *(f"return_seed_{seed}" for seed in seeds)]
    writer.writerow(["trial", *names, *columns, "env_steps", "rung", "skipped_updates", "failure"])
    for result in results:
        low, high = result.interval or ("", "")
        scores = [result.scores[seed] if seed < len(result.scores) else "" for seed in seeds]
        score = result.score if math.isfinite(result.score) else ""
        settings = [result.settings.get(name, "") for name in names]
        ends = [result.env_steps, result.rung, result.skipped_updates, result.failure or ""]
        writer.writerow([result.trial, *settings, score, low, high, *scores, *ends])
    return text.getvalue()


def note(result: TrialResult, num_rungs: int) -> str:
    """What there is to say about a trial, in a few words."""
    if result.failure is not None:
        return f"failed: {result.failure}"
    parts = [f"stopped at rung {result.rung + 1} of {num_rungs}"] * (result.rung + 1 < num_rungs)
    if result.skipped_updates:
        parts.append(f"diverged: {result.skipped_updates:,} updates skipped")
    return ", ".join(parts)


def shown(value: Any) -> str:
    """A setting in a table."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return "x".join(map(str, value))
    return str(value)
