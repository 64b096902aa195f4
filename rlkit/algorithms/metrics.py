"""Metrics of several updates or training steps, reduced to one."""

from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from rlkit.ops.over_devices import psum
from rlkit.types import Metrics
from rlkit.xla_cpu.packing import Packed

T = TypeVar("T")
SKIPPED = "sum/skipped_updates"
"""The metric that counts updates that were not taken, because something was not finite."""
NON_FINITE = "sum/non_finite_steps"
"""The metric that counts steps in which an environment returned NaN or infinity and was reset."""
UNSOUND = "sum/unsound_"
"""Prefix of metrics that count what no run can go on from; for checks, and never logged."""


def as_floats(metrics: Metrics) -> Metrics:
    """Casts metrics that are averaged to floating point, so that they can be NaN."""
    return {
        name: x if name.startswith("sum/") else jnp.asarray(x, jnp.result_type(x, float))
        for name, x in metrics.items()
    }


def not_measured(like: Metrics) -> Metrics:
    """Metrics of a skipped computation: NaN, or 0 for those that add up."""
    return {
        name: jnp.full(x.shape, 0 if name.startswith("sum/") else jnp.nan, x.dtype)
        for name, x in like.items()
    }


def over_devices(metrics: Metrics, axis_name: str | None) -> Metrics:
    """Reduced over the mapped axis of devices, if there is one: `sum/…` adds up, all others average
    what is not NaN, see `reduce_metrics`.
    """
    if axis_name is None:
        return metrics
    sums = {name: x for name, x in metrics.items() if name.startswith("sum/")}
    means = {name: x for name, x in metrics.items() if name not in sums}
    known = {name: ~jnp.isnan(x) for name, x in means.items()}
    counts = {name: x.astype(float) for name, x in known.items()}
    means = {name: jnp.where(known[name], x, 0) for name, x in means.items()}
    sums, means, counts = psum((sums, means, counts), axis_name)
    means = {name: x / counts[name] for name, x in means.items()}  # NaN if it is on all devices
    return {name: (sums if name in sums else means)[name] for name in metrics}


def reduce_metrics(stacked: Packed) -> Metrics:
    """Reduces metrics over their first axis: `sum/…` adds up, all others average what is not NaN.

    NaN stands for what was not measured, such as the metrics of a step that was not taken; it
    remains if nothing was measured. NumPy arrays give NumPy arrays.
    """
    sums, means = (
        stacked.replace(vectors=[over(x) for x in stacked.vectors]).unpack()
        for over in (_sum, _mean_of_known)
    )
    return {name: (sums if name.startswith("sum/") else means)[name] for name in means}


EACH = "each/"
"""Prefix of metrics [K] of the single iterations of an outer iteration, beside the reduced ones."""


def of_each(stacked: Packed, axis: int = 0) -> Metrics:
    """The metrics of each iteration, named `each/...`, with their K rows moved to that axis."""
    return {
        f"{EACH}{name}": x if axis == 0 else np.moveaxis(x, 0, axis)
        for name, x in stacked.unpack().items()
    }


def split_each(metrics: dict[str, T]) -> tuple[dict[str, T], dict[str, T]]:
    """(the reduced metrics, those of each iteration under their own names; {}: not kept)."""
    reduced = {name: x for name, x in metrics.items() if not name.startswith(EACH)}
    each = {name.removeprefix(EACH): x for name, x in metrics.items() if name.startswith(EACH)}
    return reduced, each


def _sum(x: Array | np.ndarray) -> Array | np.ndarray:
    if isinstance(x, np.ndarray) and x.dtype.kind == "f":
        # NumPy adds row to row, rounding each time.
        return x.sum(0, dtype=np.float64).astype(x.dtype)
    return x.sum(0)


def _mean_of_known(x: Array | np.ndarray) -> Array | np.ndarray:
    library: Any = np if isinstance(x, np.ndarray) else jnp
    known = ~library.isnan(x)
    mean = library.mean(
        x, axis=0, where=known | ~known.any(0), dtype=np.float64 if library is np else None
    )
    return mean.astype(np.float32) if library is np else mean  # NaN if all values are
