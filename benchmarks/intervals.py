"""Areas under learning curves and interquartile means, and how sure they are."""

import dataclasses

import numpy as np

from rlkit.training.logs.statistics import bootstrap_interval

RESAMPLES = 20_000
LEVEL = 0.95
Curve = np.ndarray  # [PARTS], the mean training return of each tenth; NaN where no episode ended


@dataclasses.dataclass(frozen=True)
class Difference:
    """What rlkit has more than the reference, and the interval that it lies in."""

    value: float
    low: float
    high: float

    @property
    def is_behind(self) -> bool:
        """Whether the interval excludes zero against rlkit."""
        return self.high < 0.0

    @property
    def is_ahead(self) -> bool:
        """Whether the interval excludes zero in favour of rlkit."""
        return self.low > 0.0

    def __str__(self) -> str:
        digits = 1 if max(abs(self.low), abs(self.high)) >= 1 else 3
        value, low, high = (f"{x:+.{digits}f}" for x in (self.value, self.low, self.high))
        return f"{value} ({low} to {high})"


def curve(return_sums: list[float], episodes: list[int]) -> Curve:
    """The mean return of the episodes that ended in each tenth of a run."""
    counts = np.asarray(episodes, float)
    return np.divide(return_sums, counts, out=np.full(counts.shape, np.nan), where=counts > 0)


def area(curve: Curve) -> float:
    """The area under a curve: its mean over the tenths in which episodes ended."""
    return float(np.nanmean(curve))


def difference(ours: list[float], theirs: list[float]) -> Difference:
    """Of two means over seeds, with a bootstrap interval of 95 % that is stratified by contender.

    The seeds of each contender are drawn with replacement, apart from the other's; the interval is
    between percentiles (Agarwal et al. 2021, section 4.1, for one task).
    """
    dice = np.random.default_rng(0)
    found = _drawn(ours, dice).mean(axis=1) - _drawn(theirs, dice).mean(axis=1)
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(found, [tail, 100 - tail])
    return Difference(float(np.mean(ours) - np.mean(theirs)), float(low), float(high))


def interval(values: list[float]) -> tuple[float, float]:
    """The bootstrap interval of 95 % of the interquartile mean over seeds."""
    found = bootstrap_interval(np.array(values), "interquartile_mean", resamples=RESAMPLES)
    return float(found[0]), float(found[1])


def _drawn(values: list[float], dice: np.random.Generator) -> np.ndarray:
    """As many values as there are, drawn with replacement, again and again: [RESAMPLES, n]."""
    return np.asarray(values)[dice.integers(len(values), size=(RESAMPLES, len(values)))]
