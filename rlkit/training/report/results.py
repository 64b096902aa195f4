"""The table of results: what each entry is, what it reached, how long it took."""

import dataclasses
from collections.abc import Sequence
from xml.etree.ElementTree import Element

import numpy as np

from rlkit.training.logs.human_units import human_seconds
from rlkit.training.logs.loaded_run import LoadedRun
from rlkit.training.report.entries import Entry, Look, last_of
from rlkit.training.report.html import Child, element
from rlkit.training.report.tables import table

RETURN, SPEED = "eval/avg_return", "train/steps_per_second"
_CENTERS = {"mean": "mean", "interquartile_mean": "interquartile mean", "median": "median"}
_COLUMNS = (
    *("Run", "Algorithm", "Environment", "Seeds", "Steps per seed"),
    *("Last evaluation", "Best evaluation", "Steps per second", "Wall time", "State"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """The evaluation return at one place of a curve."""

    env_steps: float
    value: float
    interval: tuple[float, float] | None
    """Of 95 %, over seeds; None: there is one seed."""


def scores(entry: Entry, look: Look) -> tuple[Score, Score | None] | None:
    """(last, best) evaluation of an entry; None: it was not evaluated.

    An evaluation before the first update is never the best.
    """
    curve = entry.curve(RETURN)
    if curve is None:
        return None
    center = curve.center(look.center)
    last = last_of(center)
    if last is None:
        return None
    band = curve.band("interval", look.center)

    def at(place: int) -> Score:
        edges = None if band is None else (float(band[0][place]), float(band[1][place]))
        is_known = edges is not None and bool(np.isfinite(edges).all())
        return Score(
            env_steps=float(curve.x[place]),
            value=float(center[place]),
            interval=edges if is_known else None,
        )

    untrained = [
        record.env_steps
        for run in entry.runs
        for record in run.records
        if record.kind == "eval" and record.updates == 0
    ]
    trained = np.where(curve.x > max(untrained, default=-1), center, np.nan)
    return at(last), at(int(np.nanargmax(trained))) if np.isfinite(trained).any() else None


def results_table(entries: Sequence[Entry], look: Look) -> Element:
    """A row for each entry."""
    caption = (
        f"Returns are those of evaluation episodes with the most likely actions, the"
        f" {_CENTERS[look.center]} over seeds; in brackets, a 95 % bootstrap interval over seeds,"
        " or ± the standard deviation over the last episodes of a single seed. The best evaluation"
        " is the highest of many, so it flatters. Steps per second count all seeds of a run; wall"
        " time is that of all runs of a row, added up, also of trials that trained together."
    )
    return table([caption], _COLUMNS, [_row(entry, look) for entry in entries], "results")


def _row(entry: Entry, look: Look) -> list[Child | None]:
    found = scores(entry, look)
    last, best = found or (None, None)
    speeds = [speed for run in entry.runs if (speed := _speed(run)) is not None]
    of_runs = f" ({len(entry.runs)} runs)" if len(entry.runs) > 1 else ""
    return [
        entry.name,
        entry.algorithm,
        entry.env,
        f"{entry.num_seeds}{of_runs}",
        _range([_env_steps(run) for run in entry.runs]),
        None if last is None else _score(last, _spread(entry)),
        None if best is None else _best(best),
        f"{np.mean(speeds):,.0f}" if speeds else None,
        human_seconds(sum(_seconds(run) for run in entry.runs)),
        ", ".join(dict.fromkeys(run.status for run in entry.runs)),
    ]


def _score(score: Score, spread: float | None = None) -> str:
    if score.interval is not None:
        low, high = score.interval
        return f"{score.value:,.4g} [{low:,.4g}, {high:,.4g}]"
    return f"{score.value:,.4g}" + ("" if spread is None else f" ± {spread:,.3g}")


def _best(score: Score) -> Element:
    at = element("span", f"at {score.env_steps:,.0f} steps", class_="quiet below")
    return element("span", _score(score), at)


def _spread(entry: Entry) -> float | None:
    """The standard deviation over the episodes of the last evaluation; None: nobody wrote it down.

    The summary of a run that trains on is that of its part before.
    """
    run = entry.runs[0]
    steps = _env_steps(run)
    is_last = run.summary.get("env_steps", steps) == steps
    found = run.summary.get("eval_return_std") if entry.num_seeds == 1 and is_last else None
    return found if isinstance(found, float | int) and np.isfinite(found) else None


def _env_steps(run: LoadedRun) -> int:
    return max((x.env_steps for x in run.records), default=run.summary.get("env_steps", 0))


def _seconds(run: LoadedRun) -> float:
    return max((x.wall_seconds for x in run.records), default=run.summary.get("wall_seconds", 0.0))


def _speed(run: LoadedRun) -> float | None:
    """The usual speed of an outer iteration, without the time for compiling."""
    if SPEED not in run.metrics:
        return None
    speeds = run.series(SPEED).together
    return float(np.median(speeds[np.isfinite(speeds)])) if np.isfinite(speeds).any() else None


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
