"""The curves of a report as plain data, which its script draws."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from rlkit.training.logs.curves import Curve, XAxis
from rlkit.training.report.entries import Entry, Look, metrics_in
from rlkit.validation import PlainData

AXES: dict[XAxis, str] = {
    "env_steps": "environment steps",
    "updates": "gradient steps",
    "wall_seconds": "wall time",
}
MOST_POINTS = 1000  # of a line: more than a screen has pixels for, and the file stays small
MOST_SEEDS = 10  # drawn one by one

# What is looked at first, in this order, with a name for people.
CHOSEN = {
    "eval/avg_return": "Evaluation return",
    "train/avg_return": "Training return",
    "eval/avg_length": "Evaluation episode length (steps)",
    "train/loss": "Loss",
    "train/policy_loss": "Policy loss",
    "train/value_loss": "Value loss",
    "train/critic_loss": "Critic loss",
    "train/actor_loss": "Actor loss",
    "train/entropy": "Entropy of the policy (nats)",
    "train/temperature": "Temperature",
    "train/explained_variance": "Explained variance",
    "train/approx_kl": "KL divergence (nats)",
    "train/q_value": "Q-value",
    "train/grad_norm": "Gradient norm",
    "train/steps_per_second": "Speed (steps per second)",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chart:
    """One metric of the entries of one environment."""

    metric: str
    title: str
    alt: str
    is_chosen: bool
    lines: list[PlainData]
    """Of each entry that has the metric: its place among the entries; y [P]; low and high [P], or
    null; seeds [S, P], none if they are many or one. On each axis, x [P] and marks, where a
    phase of that name began, or (without one) the run was extended.
    """


def charts_of(
    entries: Sequence[Entry], env: str | None, look: Look, metrics: Sequence[str]
) -> list[Chart]:
    """The charts of an environment: of `metrics`, or else of all, those that are `CHOSEN` first."""
    places = {place: entry for place, entry in enumerate(entries) if entry.env == env}
    known = metrics_in([run for entry in places.values() for run in entry.runs])
    chosen = [name for name in metrics or CHOSEN if name in known]
    own = [] if metrics else [name for name in known if name.startswith("user/")]
    others = [] if metrics else sorted(set(known) - {*chosen, *own})
    charts = []
    for metric in [*chosen, *own, *others]:
        found = {place: entry.curve(metric, look.smooth) for place, entry in places.items()}
        curves = {place: x for place, x in found.items() if x is not None}
        if curves:
            named = {entries[place].name: curve for place, curve in curves.items()}
            charts.append(
                Chart(
                    metric=metric,
                    title=CHOSEN.get(metric, metric),
                    alt=_alt(CHOSEN.get(metric, metric), named, look),
                    is_chosen=metric not in others,
                    lines=[
                        {"entry": place, **_line(entries[place], metric, curve, look)}
                        for place, curve in curves.items()
                    ],
                )
            )
    return charts


def _line(entry: Entry, metric: str, curve: Curve, look: Look) -> PlainData:
    center = curve.center(look.center)
    low, high = curve.band(look.band, look.center) or (None, None)
    kept = thinned(center)
    seeds = curve.seeds if 1 < len(curve.seeds) <= MOST_SEEDS else []
    along = {x: entry.along(metric, x, curve.x) for x in AXES if x != "env_steps"}
    along["env_steps"] = curve.x
    marks = np.array([mark.x for mark in curve.marks], float)
    return {
        "x": {name: _numbers(x[kept], 12) for name, x in along.items()},
        "y": _numbers(center[kept]),
        "low": None if low is None else _numbers(low[kept]),
        "high": None if high is None else _numbers(high[kept]),
        "seeds": [_numbers(seed[kept]) for seed in seeds],
        "marks": {name: _numbers(np.interp(marks, curve.x, x)) for name, x in along.items()},
        "names": [mark.name for mark in curve.marks],
    }


def thinned(values: np.ndarray, most: int = MOST_POINTS) -> np.ndarray:
    """The places [K] of the points to draw: the least and the greatest of each stretch, the ends.

    So no spike is lost. All, if there are at most `most`.
    """
    if len(values) <= most:
        return np.arange(len(values))
    kept = {0, len(values) - 1}
    for places in np.array_split(np.arange(len(values)), most // 2 - 1):
        known = places[np.isfinite(values[places])]
        if known.size:
            kept |= {int(known[values[known].argmin()]), int(known[values[known].argmax()])}
    return np.array(sorted(kept))


def _numbers(values: np.ndarray, digits: int = 7) -> list[float | None]:
    """As JSON, which has no NaN. float32 has seven digits; counts of steps have more."""
    return [float(f"{x:.{digits}g}") if np.isfinite(x) else None for x in values.tolist()]


def _alt(title: str, curves: dict[str, Curve], look: Look) -> str:
    """The chart in a sentence, for people who do not see it."""
    ends = []
    for name, curve in curves.items():
        known = curve.center(look.center)
        known = known[np.isfinite(known)]
        if known.size:
            ends.append(f"{name} from {known[0]:.4g} to {known[-1]:.4g}")
    return f"{title} over environment steps: {'; '.join(ends)}."
