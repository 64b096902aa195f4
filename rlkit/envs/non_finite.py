"""What is done about environments that return NaN or infinity. Must not import JAX."""

from typing import Any, Literal, get_args

import numpy as np

from rlkit.errors import require

NonFinite = Literal["raise", "reset"]
CHOICES: tuple[NonFinite, ...] = get_args(NonFinite)
TRIES = 10  # resets of an environment in a row, until its first observation is finite
INSTEAD = (
    "pass non_finite='reset' to the environment to end the episode instead of the run (on the"
    ' command line: --env-arguments \'{"non_finite": "reset"}\')'
)
LARGEST = float(np.finfo(np.float32).max)


def chosen(setting: str | None, env: object) -> NonFinite:
    """The setting, or if it is None the attribute `non_finite` of `env`, else "raise".

    Raises `ConfigError` for anything else.
    """
    given = getattr(env, "non_finite", "raise") if setting is None else setting
    require(
        given in CHOICES,
        f"{'' if setting is not None else f'{type(env).__name__}.'}non_finite is {given!r}",
        'use "raise" (NaN or infinity ends the run) or "reset" (it ends the episode)',
    )
    return "reset" if given == "reset" else "raise"


def is_finite(tree: Any) -> bool:
    """Whether float32 holds all numbers of an observation or reward, as NumPy values in it."""
    if isinstance(tree, dict):
        return all(map(is_finite, tree.values()))
    if isinstance(tree, tuple):
        return all(map(is_finite, tree))
    array = np.asarray(tree)
    # False for NaN, infinity, and what becomes infinity in float32
    return array.dtype.kind != "f" or bool((np.abs(array) <= LARGEST).all())
