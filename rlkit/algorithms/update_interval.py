"""Work that is only done in every n-th update of a run."""

from collections.abc import Callable

import jax
from jax import Array
from jax.extend.core import jaxpr_as_fun

from rlkit.errors import require
from rlkit.ops.counters import StepCounter
from rlkit.types import PyTree

MAX_EVERY = 2**16  # see `StepCounter.remainder`


def only_every(
    every: int,
    updates: StepCounter,
    due: Callable[[], PyTree],
    not_due: Callable[[PyTree], PyTree],
) -> PyTree:
    """`due()` if `every` divides the count of updates, else what `compute_if` returns.

    The count is equal on all devices, so they agree on whether there are gradients to average.
    """
    return due() if every == 1 else compute_if(updates.remainder(every) == 0, due, not_due)


def compute_if(
    is_due: Array, due: Callable[[], PyTree], not_due: Callable[[PyTree], PyTree]
) -> PyTree:
    """`due()` if `is_due` ([] bool), else `not_due(shapes)`, given the shapes that `due` returns.

    Only one of them is computed, except under `vmap`. `due` is traced once, however deep such
    choices are nested; with `eval_shape` and `cond`, it would be twice at each level.
    """
    jaxpr, shapes = jax.make_jaxpr(due, return_shape=True)()
    structure = jax.tree.structure(shapes)

    def computed() -> PyTree:
        return structure.unflatten(jaxpr_as_fun(jaxpr)())

    return jax.lax.cond(is_due, computed, lambda: not_due(shapes))


def check_every(name: str, every: object) -> None:
    """Raises `ConfigError` for an interval that cannot be counted."""
    require(
        isinstance(every, int) and not isinstance(every, bool) and 1 <= every <= MAX_EVERY,
        f"{name}.every must be a whole number of updates from 1 to {MAX_EVERY}, got {every!r}",
        "use 1 for every update, 2 for every second one",
    )
