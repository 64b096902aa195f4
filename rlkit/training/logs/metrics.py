"""Metrics for people: turns the results of a program into records, returns and scores."""

import dataclasses
from collections.abc import Container

import numpy as np

from rlkit.algorithms.metrics import UNSOUND
from rlkit.errors import require
from rlkit.ops.counters import StepCounter
from rlkit.training.logs.records import Kind, Record
from rlkit.types import Counters, Measurements

HostMetrics = dict[str, np.ndarray]  # arrays [] or, with several seeds, [S]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Moment:
    """When something was recorded."""

    env_steps: int  # of one seed
    updates: int
    wall_seconds: float


def train_records(
    metrics: HostMetrics, moment: Moment, *, num_seeds: int, steps_per_second: float
) -> list[Record]:
    """One record; with several seeds, one per seed and their mean.

    Sums over finished episodes become averages. A NaN metric has no entry: no episode finished, or
    no step measured it. `steps_per_second` counts all seeds.
    """
    averages = _averages(metrics)
    rows = [
        {f"train/{name}": value for name, value in row.items()}
        for row in _per_seed(averages, num_seeds, optional=averages)
    ]
    mean = {**_mean(rows), "train/steps_per_second": steps_per_second}
    return _records("train", moment, rows, mean)


def eval_records(evaluation: Measurements, moment: Moment, *, num_seeds: int) -> list[Record]:
    """Means over the episodes [E] or [S, E] of an evaluation.

    Other measurements of a module keep their names.
    """
    means: HostMetrics = {}
    for name, value in flat_names(evaluation).items():
        axis = tuple(range(1, np.ndim(value))) if num_seeds > 1 else None
        # An environment may report a number only after some episodes.
        mean = mean_of_known if name.startswith("done_info/") else np.mean
        means[EVALUATION_NAMES.get(name, name)] = mean(np.asarray(value, np.float64), axis=axis)
    rows = [
        {f"eval/{name}": value for name, value in row.items()}
        for row in _per_seed(means, num_seeds, optional=("avg_return", "avg_length"))
    ]
    return _records("eval", moment, rows, _mean(rows))


EVALUATION_NAMES = {
    "return": "avg_return",
    "length": "avg_length",
    "sampled_return": "sampled_avg_return",
    "sampled_length": "sampled_avg_length",
}


def mean_of_known(values: np.ndarray, axis: tuple[int, ...] | None = None) -> np.ndarray:
    """The mean of the finite values over these axes (None: all); NaN if there are none."""
    known = np.isfinite(values)
    count = known.sum(axis)
    return np.where(known, values, 0.0).sum(axis) / np.where(count > 0, count, np.nan)


def seed_returns(
    evaluation: Measurements, num_seeds: int, *, name: str = "return"
) -> np.ndarray | None:
    """Mean of each seed, [S] ([1] for one seed), of `name`; None if the evaluation lacks it."""
    episodes = episode_returns(evaluation, num_seeds, name=name)
    return None if episodes is None else episodes.mean(1)


def episode_returns(
    evaluation: Measurements, num_seeds: int, *, name: str = "return"
) -> np.ndarray | None:
    """Each episode of each seed, [S, E] ([1, E] for one seed), of `name`; None if it lacks it."""
    if name not in evaluation:
        return None
    return np.asarray(evaluation[name], np.float64).reshape(num_seeds, -1)


def score(evaluation: Measurements, num_seeds: int, *, name: str = "return") -> float | None:
    """The score that ranks checkpoints: the mean return over seeds with a finite return.

    Or that of another measurement, by its `name`. None if there is none.
    """
    returns = seed_returns(evaluation, num_seeds, name=name)
    if returns is None or not np.isfinite(returns).any():
        return None
    return float(returns[np.isfinite(returns)].mean())


def exact_counts(counters: Counters | None) -> tuple[int, int] | None:
    """(environment steps, updates) of the first seed as integers; None without counters."""
    if counters is None:
        return None
    env_steps, updates = (
        x.to_int() if isinstance(x, StepCounter) else int(np.ravel(x)[0]) for x in counters
    )
    return env_steps, updates


def _averages(metrics: HostMetrics) -> HostMetrics:
    """Per-episode averages instead of sums, leaves [] or [S]; NaN if no episode finished."""
    found = {
        name: np.asarray(value, np.float64)
        for name, value in metrics.items()
        if not name.startswith("sum/")
    }
    sums = {
        name.removeprefix("sum/"): np.asarray(value, np.float64)
        for name, value in metrics.items()
        if name.startswith("sum/") and not name.startswith(UNSOUND)
    }
    if "episodes" in sums:
        episodes = np.where(sums["episodes"] > 0, sums["episodes"], np.nan)
        found["avg_return"] = sums.pop("episode_return") / episodes
        found["avg_length"] = sums.pop("episode_length") / episodes
    return {**found, **sums}


def _per_seed(
    metrics: HostMetrics, num_seeds: int, *, optional: Container[str]
) -> list[dict[str, float]]:
    """One dict of floats per seed, without `optional` metrics that are NaN.

    Raises `ConfigError` for a metric that is neither a scalar nor, with several seeds, of shape
    [S].
    """
    for name, value in metrics.items():
        shape = np.shape(value)
        require(
            shape == () or (num_seeds > 1 and shape == (num_seeds,)),
            f"the metric {name!r} has shape {shape[1:] if num_seeds > 1 else shape}, not ()",
            "reduce it to a scalar in training_step, such as its .mean()",
        )
    rows = [
        {
            name: float(np.ravel(value)[seed if np.size(value) > 1 else 0])
            for name, value in metrics.items()
        }
        for seed in range(num_seeds)
    ]
    return [
        {name: value for name, value in row.items() if not (name in optional and np.isnan(value))}
        for row in rows
    ]


def _mean(rows: list[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: float(np.mean([row[name] for row in rows if name in row])) for name in names}


def _records(
    kind: Kind, moment: Moment, rows: list[dict[str, float]], mean: dict[str, float]
) -> list[Record]:
    when = dataclasses.asdict(moment)
    per_seed = (
        [Record(kind=kind, seed=seed, metrics=row, **when) for seed, row in enumerate(rows)]
        if len(rows) > 1
        else []
    )
    return [*per_seed, Record(kind=kind, seed=None, metrics=mean, **when)]


def average_records(rows: list[dict[str, float]], *, like: Record) -> list[Record]:
    """A record for each seed, if there are several, then their mean; when and what as in `like`."""
    moment = Moment(env_steps=like.env_steps, updates=like.updates, wall_seconds=like.wall_seconds)
    return _records(like.kind, moment, rows, _mean(rows))


def flat_names(tree: Measurements, prefix: str = "") -> Measurements:
    """Measurements in one dict; what is in a dict in it is called `outer/inner`."""
    flat: Measurements = {}
    for name, value in tree.items():
        flat |= (
            flat_names(value, f"{prefix}{name}/")
            if isinstance(value, dict)
            else {f"{prefix}{name}": value}
        )
    return flat
