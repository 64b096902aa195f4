"""Compares what one call of a Gymnasium environment returned with its spaces.

Mistakes are (key, `Finding`). The key identifies the mistake, so that one made in every step is
reported once.
"""

import math
import numbers
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from rlkit.envs.jittable.contract import Finding
from rlkit.envs.observations import beyond, no_room
from rlkit.spaces import Space, bounds, jax_dtype

Problems = Iterator[tuple[str, Finding]]

STEP = "return obs, reward, terminated, truncated, info"
OLD_STEP = f"{STEP}: terminated when the task ends, truncated when a time limit cuts the episode"


def reset_problems(name: str, space: Space, result: Any) -> Problems:
    """Mistakes in what `reset` returned."""
    if is_pair(result):
        yield from obs_problems(f"{name} observation", space, result[0], "reset()")
        return
    if isinstance(result, tuple) and len(result) == 2 and not _in(space, result):
        what = f"{name}.reset returned info of type {type(result[1]).__name__}, not a dict"
        yield "reset info", Finding("error", what, "return obs, {}")
        return
    got = f"{len(result)} values" if isinstance(result, tuple) else f"one {type(result).__name__}"
    got = "only the observation" if _in(space, result) else got
    what = f"{name}.reset returned {got}, not (observation, info)"
    yield (
        "reset",
        Finding(
            "error",
            what,
            "return obs, {}",
            "that is the interface of old Gym; Gymnasium's reset returns two values",
        ),
    )


def step_problems(name: str, space: Space, result: object, moment: str) -> Problems:
    """Mistakes in what `step` returned; `moment` names the step."""
    if not (isinstance(result, tuple) and len(result) == 5):
        old = isinstance(result, tuple) and len(result) == 4
        count = (
            f"{len(result)} values" if isinstance(result, tuple) else f"one {type(result).__name__}"
        )
        what = f"{name}.step returned {count} instead of five" + (
            ": (observation, reward, done, info) of old Gym" if old else ""
        )
        why = (
            "with done alone, a time limit looks like the end of the task, and agents learn wrong"
            " values"
            if old
            else ""
        )
        yield "step", Finding("error", what, OLD_STEP, why)
        return
    obs, reward, terminated, truncated, info = result
    yield from obs_problems(f"{name} observation", space, obs, moment)
    yield from _reward_problems(name, reward, moment)
    yield from _flag_problems(name, "terminated", terminated, moment)
    yield from _flag_problems(name, "truncated", truncated, moment)
    if not isinstance(info, dict):
        what = f"{name}.step returned info of type {type(info).__name__}, not a dict ({moment})"
        yield "info", Finding("error", what, "return {} if there is nothing to say")


def is_pair(result: object) -> bool:
    """Whether it is a pair (observation, info)."""
    return isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)


def _reward_problems(name: str, reward: Any, moment: str) -> Problems:
    label = f"{name}.step reward"
    if isinstance(reward, (bool, np.bool_)):
        yield (
            "reward type",
            Finding("warning", f"{label} is a bool ({moment})", "return float(reward)"),
        )
    elif not isinstance(reward, (numbers.Real, np.integer, np.floating)):
        what = (
            f"{label} is of type {type(reward).__name__} and shape {np.shape(reward)}, not a number"
            f" ({moment})"
        )
        if not _is_scalar(reward, "iuf"):
            yield (
                "reward type",
                Finding("error", what, "return float(reward), a single number"),
            )
            return
        yield "reward type", Finding("warning", what, "return float(reward)")
    if not math.isfinite(reward):
        fix = (
            "look for a division by zero, the log or root of a negative number, or an action on"
            " its bound"
        )
        why = (
            "one such reward makes the loss and then all parameters NaN; rlkit would stop the run"
            " there"
        )
        yield "reward finite", Finding("error", f"{label} is {float(reward)} ({moment})", fix, why)


def _flag_problems(name: str, flag: str, value: object, moment: str) -> Problems:
    if isinstance(value, (bool, np.bool_)):
        return
    harmless = _is_scalar(value, "biu")
    what = f"{name}.step {flag} is {value!r} of type {type(value).__name__}, not a bool ({moment})"
    yield flag, Finding("warning" if harmless else "error", what, f"return bool({flag})")


def _is_scalar(value: Any, kinds: str) -> bool:
    """Whether it is one number of these NumPy kinds, or an array [] of any library."""
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in kinds


def obs_problems(label: str, space: Space, obs: object, moment: str) -> Problems:
    """Mistakes in one observation or a part of it."""
    if isinstance(space, spaces.Dict):
        yield from _dict_problems(label, space, obs, moment)
    elif isinstance(space, spaces.Tuple):
        yield from _tuple_problems(label, space, obs, moment)
    else:
        yield from _leaf_problems(label, space, obs, moment)


def leaves(space: Space, obs: Any, path: str = "") -> Iterator[tuple[str, Space, Any]]:
    """(path, space, value) of every leaf of an observation with the structure of `space`."""
    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            yield from leaves(part, obs[name], f"{path}[{name!r}]")
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from leaves(part, obs[index], f"{path}[{index}]")
    else:
        yield path, space, obs


def _dict_problems(label: str, space: spaces.Dict, obs: object, moment: str) -> Problems:
    if not isinstance(obs, Mapping):
        what = f"{label} is of type {type(obs).__name__}, but its space is a Dict ({moment})"
        yield (
            f"{label} structure",
            Finding("error", what, "return a dict with the keys of the space"),
        )
    elif obs.keys() != space.spaces.keys():
        missing, extra = (
            sorted(space.spaces.keys() - obs.keys()),
            sorted(map(str, obs.keys() - space.spaces.keys())),
        )
        what = f"{label} lacks the keys {missing} and has the unknown keys {extra} ({moment})"
        yield (
            f"{label} structure",
            Finding("error", what, "return the keys of the space in every observation"),
        )
    else:
        for name, part in space.spaces.items():
            yield from obs_problems(f"{label}[{name!r}]", part, obs[name], moment)


def _tuple_problems(label: str, space: spaces.Tuple, obs: object, moment: str) -> Problems:
    if not isinstance(obs, tuple) or len(obs) != len(space.spaces):
        got = f"{len(obs)} values" if isinstance(obs, tuple) else f"of type {type(obs).__name__}"
        what = f"{label} is {got}, but its space is a Tuple of {len(space.spaces)} ({moment})"
        yield (
            f"{label} structure",
            Finding("error", what, "return a tuple with one value per part of the space"),
        )
    else:
        for index, part in enumerate(space.spaces):
            yield from obs_problems(f"{label}[{index}]", part, obs[index], moment)


def _leaf_problems(label: str, space: Space, value: object, moment: str) -> Problems:
    try:
        array = np.asarray(value)
    except ValueError:  # a ragged list
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        what = f"{label} is of type {type(value).__name__} ({array.dtype}), not numbers ({moment})"
        yield f"{label} shape", Finding("error", what, f"return np.asarray(obs, np.{space.dtype})")
        return
    if isinstance(space, spaces.Box) and isinstance(value, (list, tuple)):
        what = f"{label} is a {type(value).__name__}, not an array ({moment})"
        yield f"{label} type", Finding("warning", what, f"return np.asarray(obs, np.{space.dtype})")
        array = (
            array.astype(space.dtype)
            if np.can_cast(array.dtype, space.dtype, "same_kind")
            else array
        )
    if array.shape != space.shape:
        what = f"{label} has shape {array.shape}, but its space has {space.shape} ({moment})"
        yield (
            f"{label} shape",
            Finding("error", what, "make them agree, in every step and after every reset"),
        )
        return
    yield from _dtype_problems(label, space, array, moment)
    yield from _range_problems(label, space, array, moment)


def _dtype_problems(label: str, space: Space, array: np.ndarray, moment: str) -> Problems:
    wanted = np.dtype(space.dtype or np.float32)
    if not np.can_cast(array.dtype, wanted, "same_kind"):
        lossy = array.dtype.kind == "f" and bool((array != np.trunc(array)).any())
        what = (
            f"{label} is {array.dtype}, but its space has"
            f" {wanted}{': fractions would be cut off' if lossy else ''} ({moment})"
        )
        other = "float32" if array.dtype.kind == "f" else array.dtype
        fix = f"return np.asarray(obs, np.{wanted}), or declare the space as {other}"
        why = "" if lossy else "rlkit refuses it, since other values would be changed by a cast"
        yield f"{label} dtype", Finding("error", what, fix, why)
    elif (
        isinstance(space, spaces.Box)
        and array.dtype != wanted
        and not np.can_cast(array.dtype, wanted)
    ):
        what = f"{label} is {array.dtype}, but its space has {wanted} ({moment})"
        why = "rlkit casts it, but Gymnasium's own checker and other libraries refuse it"
        yield (
            f"{label} dtype",
            Finding("warning", what, f"return np.asarray(obs, np.{wanted})", why),
        )


def _range_problems(label: str, space: Space, array: np.ndarray, moment: str) -> Problems:
    if not np.isfinite(array).all():
        why = "one such value makes all parameters NaN; rlkit would stop the run there"
        fix = "look for the division or root that causes it, or for an unstable simulation"
        yield (
            f"{label} finite",
            Finding("error", f"{label} is NaN or infinite ({moment})", fix, why),
        )
        return
    low, high = bounds(space)
    # With some slack, since a bound such as pi differs between float32 and float64.
    soft = np.dtype(space.dtype or np.float32).kind == "f"
    slack = 1e-4 * np.maximum(1.0, np.abs(np.where(np.isfinite(high), high, 0.0))) if soft else 0
    outside = np.argwhere(np.atleast_1d((array < low - slack) | (array > high + slack)))
    if outside.size:
        index = tuple(outside[0]) if array.ndim else ()
        limits = (
            f"[{np.broadcast_to(low, array.shape)[index]},"
            f" {np.broadcast_to(high, array.shape)[index]}]"
        )
        where = f"{list(map(int, index))}" if index else ""
        what = f"{label}{where} is {array[index]}, outside {limits} ({moment})"
        why = "" if soft else "out-of-range integers are lost in one-hot encodings, or wrap around"
        fix = "widen the bounds of observation_space, or clip the observation"
        yield f"{label} range", Finding("warning" if soft else "error", what, fix, why)
    elif (number := beyond(array, jax_dtype(space))) is not None:
        what, fix = no_room(label, number, jax_dtype(space))
        yield f"{label} range", Finding("error", f"{what} ({moment})", fix)


def _in(space: Space, value: object) -> bool:
    return not any(finding.severity == "error" for _, finding in obs_problems("", space, value, ""))
