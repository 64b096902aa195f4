"""Checks of what a user asks of curves; a mistake is an error that says what to type."""

from collections.abc import Sequence
from typing import Literal, get_args

from rlkit.errors import did_you_mean, require, require_positive_integer
from rlkit.training.logs.curves import Band, Center, Group
from rlkit.training.logs.loaded_run import LoadedRun


def check_curves(
    *, group: Group, center: Center, band: Band | Literal["auto"], smooth: int
) -> None:
    """Raises `ConfigError` for groups, statistics or smoothing that do not exist."""
    require_one_of("group", group, Group)
    require_one_of("center", center, Center)
    if band != "auto":
        require_one_of("band", band, Band)
    require(
        center == "mean" or band != "standard_error",
        f"the standard error is that of the mean, not of the {center}",
        "use band='interval' (--band interval)",
    )
    require_positive_integer("smooth", smooth, example=5)


def usual_band(center: Center) -> Band:
    """What surrounds the center of several seeds, unless the user says so."""
    return "standard_error" if center == "mean" else "interval"


def require_one_of(what: str, value: object, kinds: object) -> None:
    """Raises `ConfigError` unless the value is one of those of a `Literal`."""
    known = get_args(kinds)
    require(value in known, f"unknown {what} {value!r}", did_you_mean(str(value), known))


def require_apart(runs: Sequence[LoadedRun]) -> None:
    """Raises `ConfigError` if a run is given twice: its seeds would count twice."""
    places = [run.directory.resolve() for run in runs]
    twice = next((place for place in places if places.count(place) > 1), None)
    require(
        twice is None, f"{twice} is given twice", "leave one out, so that each seed counts once"
    )
