"""Batches of a Gymnasium vector environment, as arrays in JAX's dtypes."""

import functools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from rlkit.envs.observations import beyond, check_exact
from rlkit.spaces import COMPOSITE, Space, bounds, jax_dtype
from rlkit.types import Obs, PyTree


def cast(obs: Obs, dtypes: PyTree) -> Obs:
    """A copy of observations [N, ...] in `dtypes` (a dict, a tuple or a dtype)."""
    if isinstance(dtypes, dict):
        return {name: cast(obs[name], dtype) for name, dtype in dtypes.items()}
    if isinstance(dtypes, tuple):
        return tuple(cast(part, dtype) for part, dtype in zip(obs, dtypes, strict=True))
    return obs.astype(dtypes)


def put(batch: Obs, index: int, obs: Obs) -> None:
    """Writes one observation into row `index` of a batch."""
    if isinstance(batch, dict):
        for name, part in batch.items():
            put(part, index, obs[name])
    elif isinstance(batch, tuple):
        for part, own in zip(batch, obs, strict=True):
            put(part, index, own)
    else:
        batch[index] = obs


def wide_parts(space: Space, *path: Any) -> Iterator[tuple[tuple[Any, ...], np.dtype]]:
    """Where in an observation there may be integers that JAX has no room for, and its dtype."""
    if isinstance(space, COMPOSITE):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for name, part in parts:
            yield from wide_parts(part, *path, name)
    elif any(beyond(np.asarray(bound), jax_dtype(space)) is not None for bound in bounds(space)):
        yield path, jax_dtype(space)


def check_wide(obs: Obs, wide: Sequence[tuple[tuple[Any, ...], np.dtype]]) -> None:
    """Raises `EnvContractError` for integers of observations that the cast would wrap around."""
    for path, dtype in wide:
        part = functools.reduce(operator.getitem, path, obs)
        check_exact(np.asarray(part), dtype, "observation" + "".join(f"[{x!r}]" for x in path))


def final_numbers(reports: np.ndarray, num_envs: int) -> dict[str, np.ndarray]:
    """Final infos as float32 arrays [N, ...]; NaN for missing values or values of another shape."""
    arrays: dict[str, np.ndarray] = {}
    for index, report in enumerate(reports):
        for name, value in report or ():
            array = arrays.setdefault(
                name, np.full((num_envs, *np.shape(value)), np.nan, np.float32)
            )
            if array.shape[1:] == np.shape(value):
                array[index] = value
    return arrays
