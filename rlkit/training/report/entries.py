"""What a report compares: runs, or groups of runs that differ in their seeds."""

import contextlib
import dataclasses
from collections.abc import Sequence

import numpy as np

from rlkit.errors import ConfigError
from rlkit.training.logs.curves import (
    Band,
    Center,
    Curve,
    Group,
    XAxis,
    are_told_apart,
    curve_of,
    groups,
    joined_curve,
)
from rlkit.training.logs.loaded_run import LoadedRun
from rlkit.training.logs.loaded_runs import LoadedRuns


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """A run, or a group of runs as one: a row of tables, a line of charts."""

    name: str
    algorithm: str | None
    env: str | None
    runs: LoadedRuns
    run_names: tuple[str, ...]

    @property
    def num_seeds(self) -> int:
        """The seeds of all of its runs."""
        return sum(run.num_seeds for run in self.runs)

    def curve(self, metric: str, smooth: int = 1) -> Curve | None:
        """The seeds of all runs with the metric, over environment steps.

        Each value is the mean of `smooth` logged ones. None: it has no finite value, or the runs
        share no steps.
        """
        curves = [each.smoothed(smooth) for each in self._curves(metric, "env_steps")]
        try:
            return joined_curve(curves) if curves else None
        except ConfigError:
            return None

    def along(self, metric: str, x: XAxis, env_steps: np.ndarray) -> np.ndarray:
        """Where these steps of the metric's curve lie on another axis, on average over the runs."""
        pairs = zip(self._curves(metric, "env_steps"), self._curves(metric, x), strict=True)
        return np.mean([np.interp(env_steps, steps.x, other.x) for steps, other in pairs], axis=0)

    def _curves(self, metric: str, x: XAxis) -> list[Curve]:
        """One for each run that has a finite value."""
        found = []
        for run in self.runs:
            if metric in run.metrics:
                with contextlib.suppress(ConfigError):
                    found.append(curve_of(run, self.name, metric, x))
        return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Look:
    """What stands for several seeds."""

    center: Center
    band: Band
    smooth: int


def entries_of(runs: LoadedRuns, by: Group) -> list[Entry]:
    """The entries of runs, in the order of their first ones."""
    names = runs.names
    kinds = [(run.env, run.algorithm) for run in runs]
    members = groups(kinds, [run.config for run in runs], by)
    is_named = by != "run" and are_told_apart([kinds[group[0]] for group in members])
    algorithms = [runs[group[0]].algorithm for group in members]
    entries = []
    for group in members:
        first = runs[group[0]]
        entries.append(
            Entry(
                name=_name(first, algorithms) if is_named else names[group[0]],
                algorithm=first.algorithm,
                env=first.env,
                runs=LoadedRuns(runs[i] for i in group),
                run_names=tuple(names[i] for i in group),
            )
        )
    return entries


def _name(run: LoadedRun, algorithms: Sequence[str | None]) -> str:
    """That of the algorithm, which also trained in another environment if it is there twice."""
    name = str(run.algorithm)
    return name if algorithms.count(name) == 1 else f"{name} on {run.env}"


def metrics_in(runs: Sequence[LoadedRun]) -> list[str]:
    """All metrics of these runs, in the order in which they first appear."""
    return list(dict.fromkeys(name for run in runs for name in run.metrics))


def last_of(values: np.ndarray) -> int | None:
    """The place of the last finite value; None: there is none."""
    known = np.flatnonzero(np.isfinite(values))
    return int(known[-1]) if known.size else None
