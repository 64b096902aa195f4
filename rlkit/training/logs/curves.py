"""Curves of runs: one metric over steps or time, for each seed, and what the seeds say together."""

import dataclasses
import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from rlkit.errors import require
from rlkit.training.directories import SWEEP
from rlkit.training.logs.loaded_run import LoadedRun
from rlkit.training.logs.statistics import STATISTICS, bootstrap_interval
from rlkit.validation import PlainData

XAxis = Literal["env_steps", "updates", "wall_seconds", "training_seconds"]
Center = Literal["mean", "interquartile_mean", "median"]
Band = Literal["standard_error", "interval", "min_max", "none"]
Group = Literal["run", "settings", "algorithm"]
Kind = tuple[str | None, str | None]  # environment and algorithm of a run

# What runs with the same settings may have of their own: where they are, what they write, how many
# seeds they train at once.
_OWN = {"seed", "parent"}
_OWN_OF_TRAINER = {
    *("run_dir", "num_seeds", "logger_config", "checkpointer_config", "restore_checkpoint"),
    *("log_every", "log_iterations", "eval_every", "checkpoint_every"),
    *("debug", "max_queued", "deterministic"),
}


class Mark(NamedTuple):
    """A place on the x axis: where a phase began, or (without a name) the run was extended."""

    x: float
    name: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """One run, or several as one: P points, S seeds. Missing values are NaN."""

    name: str
    algorithm: str | None  # None: config.yaml does not say
    env: str | None
    x: np.ndarray  # [P], increasing
    seeds: np.ndarray  # [S, P], at least one
    logged_mean: np.ndarray | None = None  # [P], over the seeds; None: to be computed
    marks: tuple[Mark, ...] = ()

    def center(self, how: Center) -> np.ndarray:
        """The statistic over seeds, [P]; NaN where a seed is missing, since it would jump.

        But a mean is the logged one where there is one: it is over the seeds that have a value, as
        those of training returns, which not all seeds have in each outer iteration.
        """
        if how == "mean" and self.logged_mean is not None:
            return self.logged_mean
        return STATISTICS[how](self.seeds, axis=0)

    def band(self, how: Band, center: Center) -> tuple[np.ndarray, np.ndarray] | None:
        """(low, high) around the center, [P] each; None: there is none."""
        if how == "none" or len(self.seeds) < 2:
            return None
        if how == "min_max":
            return self.seeds.min(axis=0), self.seeds.max(axis=0)
        if how == "interval":
            return bootstrap_interval(self.seeds, center)
        error = self.seeds.std(axis=0, ddof=1) / np.sqrt(len(self.seeds))
        middle = self.center(center)
        return middle - error, middle + error

    def smoothed(self, points: int) -> "Curve":
        """Each value is the mean of the last `points` of its seed, or of as many as there are."""
        if points == 1:
            return self
        mean = self.logged_mean
        return dataclasses.replace(
            self,
            seeds=_trailing_mean(self.seeds, points),
            logged_mean=None if mean is None else _trailing_mean(mean[None], points)[0],
        )


def curve_of(run: LoadedRun, name: str, metric: str, x: XAxis) -> Curve:
    """The curve of a run. Raises `ConfigError` without a finite value of the metric."""
    found = run.series(metric)
    together, seeds = (
        np.where(np.isfinite(values), values, np.nan) for values in (found.together, found.seeds)
    )
    require(
        bool(np.isfinite(together).any() or np.isfinite(seeds).any()),
        f"{run.directory} has no finite value of {metric!r}",
        "check whether the run diverged, or choose another metric",
    )
    axis, marks = _x_axis(run, x, found.env_steps, found.wall_seconds)
    mean = None
    if not len(seeds):
        seeds = together[None]
    elif np.isfinite(together).any():
        mean = np.where(np.isnan(together), seeds.mean(axis=0), together)
    return Curve(
        name=name,
        algorithm=run.algorithm,
        env=run.env,
        x=axis,
        seeds=seeds,
        logged_mean=mean,
        marks=marks,
    )


def trial_names(runs: Sequence[LoadedRun]) -> list[str] | None:
    """Names of trials of one sweep with the settings that differ; None for other runs."""
    trials = {run.directory.resolve().parent for run in runs}
    if len(runs) < 2 or len(trials) > 1 or not (trials.pop().parent / SWEEP).is_file():
        return None
    settings = [_flat(_compared(run.config)) for run in runs]
    names = dict.fromkeys(name for each in settings for name in each)
    differing = [name for name in names if len({repr(each.get(name)) for each in settings}) > 1]
    return [
        " ".join([run.directory.name, *(_named(name, each.get(name)) for name in differing)])
        for run, each in zip(runs, settings, strict=True)
    ]


def _flat(settings: PlainData, path: str = "") -> PlainData:
    """Every setting by its path."""
    flat: PlainData = {}
    for name, value in settings.items():
        whole = f"{path}{name}"
        flat |= _flat(value, f"{whole}.") if isinstance(value, dict) else {whole: value}
    return flat


def _named(path: str, value: object) -> str:
    shown = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"{path.rpartition('.')[2]}={shown}"


def _x_axis(
    run: LoadedRun, x: XAxis, env_steps: np.ndarray, wall_seconds: np.ndarray
) -> tuple[np.ndarray, tuple[Mark, ...]]:
    """Where these environment steps lie on the axis, and its marks."""
    steps = env_steps.astype(float)
    found = sorted([*((at, "") for at in run.extended_at), *run.phases_at])
    if x == "env_steps":
        return steps, tuple(Mark(float(at), name) for at, name in found)
    places = steps, wall_seconds
    if x == "updates":
        known = {record.env_steps: float(record.updates) for record in run.records}
        places = steps, np.array([known[step] for step in env_steps.tolist()])
    elif x == "training_seconds":
        places = steps, _training_seconds(run, steps)
    marks = np.interp(np.array([at for at, _ in found], float), *places).tolist()
    names = [name for _, name in found]
    return places[1], tuple(map(Mark, marks, names))


def _training_seconds(run: LoadedRun, env_steps: np.ndarray) -> np.ndarray:
    """Seconds of training up to these environment steps, without compiling and the warm-up.

    Each row has the speed of all seeds since the row before, which counts no compiling.
    """
    speed = run.series("train/steps_per_second")
    first = min(record.env_steps for record in run.records)
    passed = np.diff(speed.env_steps, prepend=first) * run.num_seeds
    seconds = np.cumsum(np.nan_to_num(passed / speed.together))
    return np.interp(env_steps, [first, *speed.env_steps], [0.0, *seconds])


def grouped(curves: Sequence[Curve], settings: Sequence[PlainData], by: Group) -> list[Curve]:
    """The runs of an environment that have the same settings, or algorithm, as one curve.

    Their seeds are those of all of its runs, on the stretch of the axis that they share.
    """
    if by == "run":
        return list(curves)
    kinds = [(curve.env, curve.algorithm) for curve in curves]
    joined = [joined_curve([curves[i] for i in group]) for group in groups(kinds, settings, by)]
    if not are_told_apart([(curve.env, curve.algorithm) for curve in joined]):
        return joined
    return [dataclasses.replace(curve, name=curve.algorithm or curve.name) for curve in joined]


def groups(kinds: Sequence[Kind], settings: Sequence[PlainData], by: Group) -> list[list[int]]:
    """The places of the runs that belong together; each has an (env, algorithm) and settings."""
    members: dict[object, list[int]] = defaultdict(list)
    for place, ((env, algorithm), own) in enumerate(zip(kinds, settings, strict=True)):
        named = (algorithm, repr(own.get("custom"))) if algorithm else place
        key = {"run": place, "algorithm": named, "settings": _comparable(own)}[by]
        members[env, key].append(place)
    return list(members.values())


def are_told_apart(kinds: Sequence[Kind]) -> bool:
    """Whether the algorithm tells the groups of an environment apart, so that it names them."""
    return len(set(kinds)) == len(kinds)


def _comparable(settings: PlainData) -> str:
    """The settings that make runs different from each other, as text."""
    return json.dumps(_compared(settings), sort_keys=True, default=repr)


def _compared(settings: PlainData) -> PlainData:
    own = {name: value for name, value in settings.items() if name not in _OWN}
    trainer = own.get("trainer")
    if isinstance(trainer, dict):
        own["trainer"] = {k: x for k, x in trainer.items() if k not in _OWN_OF_TRAINER}
    return own


def joined_curve(curves: list[Curve]) -> Curve:
    """One curve with the name of the first and the seeds of all.

    Raises `ConfigError` if they share no stretch of the x axis.
    """
    first = curves[0]
    if len(curves) == 1:
        return first
    x = first.x
    if any(not np.array_equal(curve.x, x) for curve in curves):
        low, high = max(c.x[0] for c in curves), min(c.x[-1] for c in curves)
        known = np.unique(np.concatenate([curve.x for curve in curves]))
        x = known[(known >= low) & (known <= high)]
    names = " and ".join(curve.name for curve in curves)
    fix = "choose another --x, or another --group"
    require(len(x) > 0, f"{names} share no stretch of the x axis", fix)
    seeds = np.concatenate([_at(x, curve) for curve in curves])
    marks = tuple(sorted({mark for curve in curves for mark in curve.marks}))
    return dataclasses.replace(first, x=x, seeds=seeds, logged_mean=None, marks=marks)


def _at(x: np.ndarray, curve: Curve) -> np.ndarray:
    """The seeds [S, P] at other places; at its own as they are, some of which may be one place."""
    if np.array_equal(x, curve.x):
        return curve.seeds
    return np.array([np.interp(x, curve.x, seed) for seed in curve.seeds])


def _trailing_mean(values: np.ndarray, points: int) -> np.ndarray:
    """The mean of the last `points` values [S, P]; what is missing counts not and stays missing."""
    points = min(points, values.shape[1])
    padded = np.pad(values, ((0, 0), (points - 1, 0)), constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, points, axis=1)  # [S, P, points]
    known = np.isfinite(windows)
    total, count = np.where(known, windows, 0.0).sum(-1), known.sum(-1)
    means = np.divide(total, count, out=np.full(values.shape, np.nan), where=count > 0)
    return np.where(np.isfinite(values), means, np.nan)
