"""Converts EnvPool's spaces and values to rlkit's: dtypes, image axes, infinite bounds."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from gymnasium import spaces

from rlkit.errors import SpaceError, require
from rlkit.spaces import Space, jax_dtype
from rlkit.types import Obs

# EnvPool's bookkeeping, not part of the environment.
OWN_INFO = {
    "env_id",
    "players",
    "elapsed_step",
}


@contextlib.contextmanager
def ignore_precision_warnings() -> Iterator[None]:
    """Hides Gymnasium's precision warning: EnvPool declares bounds as float64."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*precision lowered by casting", UserWarning)
        yield


def convert(space: object) -> Any:
    """`space` with 32-bit Boxes, images [H, W, C], and infinite bounds for unbounded dimensions.

    EnvPool's unbounded float spaces often range from the smallest POSITIVE number to the largest
    (C++'s numeric_limits).
    """
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: convert(part) for name, part in space.spaces.items()})
    if not isinstance(space, spaces.Box):
        return space
    low, high, dtype = space.low, space.high, jax_dtype(space)
    if np.issubdtype(space.dtype, np.floating):
        finfo = np.finfo(low.dtype)
        low = np.where((low == finfo.tiny) | (low <= finfo.min), -np.inf, low)
        high = np.where(high >= finfo.max, np.inf, high)
    if _is_channels_first(space):
        low, high = np.moveaxis(low, 0, -1), np.moveaxis(high, 0, -1)
    return spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype.type)


def _is_channels_first(space: Space) -> bool:
    """Whether `space` holds images [C, H, W]: uint8, fewer channels than rows and columns."""
    shape = space.shape or ()
    return (
        isinstance(space, spaces.Box)
        and space.dtype == np.uint8
        and len(shape) == 3
        and shape[0] < min(shape[1:])
    )


def observation(space: Space, raw: Obs) -> Obs:
    """Converts observations [N, ...] of EnvPool's `space` to those of `convert(space)`."""
    if isinstance(space, spaces.Dict):
        return {name: observation(part, raw[name]) for name, part in space.spaces.items()}
    if _is_channels_first(space):
        raw = np.ascontiguousarray(np.moveaxis(raw, 1, -1))
    # EnvPool's arrays are newly allocated in every step.
    return raw.astype(jax_dtype(space), copy=False)


def rescaled(space: Space) -> spaces.Box:
    """The actions in [-1, 1] for `space`; raises `SpaceError` unless that is a bounded Box."""
    bounded = isinstance(space, spaces.Box) and space.is_bounded()
    require(
        bounded,
        f"rescale_actions needs a Box with finite bounds, not {space}",
        "leave rescale_actions out",
        SpaceError,
    )
    return spaces.Box(-1.0, 1.0, space.shape, np.float32)


def action_range(space: Space) -> tuple[np.ndarray | np.integer, np.ndarray | np.integer]:
    """Per dimension of a Discrete or MultiDiscrete space: lowest action, number of actions."""
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.nvec
    assert isinstance(space, spaces.Discrete)
    return space.start, space.n


def replace_rows(obs: Obs, rows: np.ndarray, fresh: Obs) -> Obs:
    """A copy of `obs` with `rows` replaced by `fresh`."""

    def put(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        out = old.copy()
        out[rows] = new
        return out

    return jax.tree.map(put, obs, fresh)


def broken_rows(*results: Any) -> np.ndarray:
    """Which environments [N] returned NaN or infinity in these arrays [N, ...]."""
    leaves = jax.tree.leaves(results)
    bad = [~np.isfinite(x).reshape(len(x), -1).all(1) for x in leaves if x.dtype.kind == "f"]
    return np.any(bad, axis=0) if bad else np.zeros(len(leaves[0]), bool)


def final_info(info: dict[str, Any], done: np.ndarray) -> dict[str, Any]:
    """Numbers in the infos of finished episodes, [N, ...]; 0 in other rows."""
    final = {}
    for name, value in _flat(info):
        if value.dtype.kind in "biuf" and len(value) == len(done):
            final[name] = np.zeros(value.shape, jax.dtypes.canonicalize_dtype(value.dtype))
            final[name][done] = value[done]
    return final


def _flat(info: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, np.ndarray]]:
    for name, value in info.items():
        if prefix + name in OWN_INFO:
            continue
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
