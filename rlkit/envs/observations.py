"""Whether observations fit the space that their environment declares. Must not import JAX."""

import numpy as np
from gymnasium import spaces

from rlkit.errors import EnvContractError, require

FAR = 10.0  # widths of a Box from its bounds at which an observation is no rounding or overshoot


def check_observation(
    space: spaces.Space, obs: object, path: str = "observation", *, bounds: bool = False
) -> None:
    """Raises `EnvContractError` if an observation's structure, shapes or dtypes do not fit `space`.

    Vector environments silently broadcast, reshape and round what does not fit. With `bounds`,
    numbers must fit too, see `is_far_outside`.
    """
    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            if not isinstance(obs, dict) or name not in obs:
                raise EnvContractError(
                    f"{path} has no key {name!r}, which its space {space} declares; return all keys"
                )
            check_observation(part, obs[name], f"{path}[{name!r}]", bounds=bounds)
    elif isinstance(space, spaces.Tuple):
        if not isinstance(obs, tuple) or len(obs) != len(space.spaces):
            raise EnvContractError(
                f"{path} is not a tuple of {len(space.spaces)} as its space {space} declares;"
                " return one"
            )
        for index, part in enumerate(space.spaces):
            check_observation(part, obs[index], f"{path}[{index}]", bounds=bounds)
    else:
        array = np.asarray(obs)
        if array.shape != space.shape:
            raise EnvContractError(
                f"{path} has shape {array.shape}, but its space {space} has {space.shape}; correct"
                " one of them"
            )
        if not np.can_cast(array.dtype, space.dtype or array.dtype, "same_kind"):
            raise EnvContractError(
                f"{path} has dtype {array.dtype}, but its space {space} has {space.dtype}; correct"
                " one of them"
            )
        if bounds:
            check_bounds(space, array, path)


def check_bounds(space: spaces.Space, array: np.ndarray, path: str) -> None:
    """Raises `EnvContractError`, with the first that is wrong, for what `is_far_outside` finds.

    `array` is one observation or a batch [B, ...] of them.
    """
    wrong = is_far_outside(space, array)
    if wrong.any():
        front = array.ndim - len(space.shape or ())
        first = array[tuple(np.argwhere(wrong)[0][:front])]
        raise EnvContractError(
            f"{path} {np.array2string(first, threshold=4)} is far outside its space {space};"
            " correct the bounds, or scale the observation"
        )


def check_exact(array: np.ndarray, dtype: np.dtype, path: str) -> None:
    """Raises `EnvContractError` unless `dtype` has room for all integers of `array`."""
    number = beyond(array, dtype)
    require(number is None, *no_room(path, number, dtype), EnvContractError)


def beyond(array: np.ndarray, dtype: np.dtype) -> int | None:
    """The integer in `array` that is farthest outside of `dtype`; None: all fit, or are floats."""
    if dtype.kind not in "iu" or not array.size:
        return None
    low, high = int(array.min()), int(array.max())
    room = np.iinfo(dtype)
    outside = [number for number in (low, high) if not room.min <= number <= room.max]
    return max(outside, key=abs, default=None)


def no_room(path: str, number: object, dtype: np.dtype) -> tuple[str, str]:
    """What is wrong with an integer that `dtype` has no room for, and the cure."""
    return (
        f"{path} contains {number}, which does not fit into {dtype}, which JAX uses",
        "return it as float32, scaled to about [-1, 1]",
    )


def is_far_outside(space: spaces.Space, array: np.ndarray) -> np.ndarray:
    """Where an array [..., *space.shape] holds numbers that no encoding of `space` has room for.

    Bounds of a Box of floats are hints, so only what is `FAR` outside of them counts. NaN and
    infinity are reported elsewhere.
    """
    if isinstance(space, spaces.Box):
        with np.errstate(over="ignore"):  # infinite bounds have infinite widths
            low, high = space.low.astype(np.float64), space.high.astype(np.float64)
            room = FAR * (high - low) if array.dtype.kind == "f" else 0.0
            low, high = low - room, high + room
    elif isinstance(space, spaces.Discrete):
        low, high = space.start, space.start + space.n - 1
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    else:  # MultiBinary
        low, high = 0, 1
    return ((array < low) | (array > high)) & np.isfinite(array)
