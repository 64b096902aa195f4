"""`Series`: one metric of a run over its steps, aligned over seeds."""

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from rlkit.training.logs.records import Record


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series:
    """K moments, S seeds (S = 0 if the metric was logged for all seeds together only).

    Missing values are NaN. Of several values at one moment, the last counts.
    """

    env_steps: np.ndarray  # [K], integers, increasing
    wall_seconds: np.ndarray  # [K], averaged over the seeds
    together: np.ndarray  # [K], as logged for all seeds together
    seeds: np.ndarray  # [S, K]


def series(records: Sequence[Record], metric: str) -> Series:
    """`metric` in the records of one run, aligned by env_steps, the only axis seeds share.

    Every seed of the run has a row, even one that never had the metric.
    """
    matching = [record for record in records if metric in record.metrics]
    steps = sorted({record.env_steps for record in matching})
    places = {step: place for place, step in enumerate(steps)}
    is_per_seed = any(record.seed is not None for record in matching)
    rows = {seed: row for row, seed in enumerate(seeds_in(records) if is_per_seed else ())}
    values = np.full((1 + len(rows), len(steps)), np.nan)  # the last row: all seeds together
    seconds: dict[int, list[float]] = defaultdict(list)
    for record in matching:
        place = places[record.env_steps]
        values[-1 if record.seed is None else rows[record.seed], place] = record.metrics[metric]
        seconds[place].append(record.wall_seconds)
    return Series(
        env_steps=np.array(steps, np.int64),
        wall_seconds=np.array([np.mean(seconds[place]) for place in range(len(steps))]),
        together=values[-1],
        seeds=values[:-1],
    )


def seeds_in(records: Sequence[Record]) -> list[int]:
    """The indices of the seeds with records of their own; none in a run of one seed."""
    return sorted({record.seed for record in records if record.seed is not None})
