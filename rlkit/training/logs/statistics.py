"""What several seeds say together: deviations, interquartile means, bootstrap intervals."""

import numpy as np

RESAMPLES = 2000
LEVEL = 0.95
_BLOCK = 64  # places at a time, for the memory


def standard_deviation(values: np.ndarray) -> float:
    """That of a sample, divided by n - 1; 0 for a single value."""
    return float(np.std(values, ddof=1)) if np.size(values) > 1 else 0.0


def interquartile_mean(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """The mean of the middle half along an axis; of three values or fewer, of all.

    A quarter of the values, rounded down, is left out at either end, as in Agarwal et al. 2021
    ("Deep Reinforcement Learning at the Edge of the Statistical Precipice"). NaN if one is NaN.
    """
    ordered = np.sort(np.moveaxis(values, axis, 0), axis=0)
    out = len(ordered) // 4
    middle = ordered[out : len(ordered) - out].mean(axis=0)
    is_missing = np.isnan(ordered[-1])  # NaN is sorted last, and would be left out as the best
    return np.where(is_missing, np.nan, middle)[()]


def bootstrap_interval(
    values: np.ndarray, statistic: str = "mean", *, resamples: int = RESAMPLES
) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) of the 95 % percentile bootstrap of a statistic over seeds, values [S, ...].

    The same seeds are drawn at all places, so that each resample is a whole curve. Draws are fixed:
    the same values have the same interval.
    """
    dice = np.random.default_rng(0)
    drawn = dice.integers(len(values), size=(resamples, len(values)))
    flat = values.reshape(len(values), -1)
    tail = 100 * (1 - LEVEL) / 2
    edges = [
        np.percentile(STATISTICS[statistic](part[drawn], axis=1), [tail, 100 - tail], axis=0)
        for part in np.array_split(flat, -(-flat.shape[1] // _BLOCK) or 1, axis=1)
    ]
    low, high = np.concatenate(edges, axis=1).reshape(2, *values.shape[1:])
    return low, high


STATISTICS = {"mean": np.mean, "interquartile_mean": interquartile_mean, "median": np.median}
