"""Actions on their way to environments on the host. Must not import JAX."""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlkit.errors import EnvContractError, require


def valid_actions(space: gymnasium.Space, action: Any, num_envs: int, part: str = "") -> Any:
    """Actions [N, ...] as new arrays in the dtypes of `space`, clipped to the bounds of a Box.

    `part` names them in errors: "['move']" of a Dict. Raises `EnvContractError` if their structure
    or shape is another.
    """
    if space.dtype is None:  # a Dict or Tuple; the usual case comes first, it is the hot path
        return _valid_parts(space, action, num_envs, part)
    action = np.array(action, dtype=space.dtype)
    if action.shape != (num_envs, *(space.shape or ())):
        raise EnvContractError(
            f"actions{part} have shape {action.shape}; pass {(num_envs, *(space.shape or ()))}"
        )
    if isinstance(space, spaces.Box):
        np.maximum(action, space.low, out=action)
        np.minimum(action, space.high, out=action)
    return action


def _valid_parts(space: gymnasium.Space, action: Any, num_envs: int, part: str) -> Any:
    """`valid_actions` of a Dict or Tuple."""
    if isinstance(space, spaces.Dict):
        names = space.spaces.keys()
        fits = isinstance(action, Mapping) and action.keys() == names
        _require_structure(fits, action, f"a dict of {', '.join(map(repr, names))}", part)
        return {
            name: valid_actions(own, action[name], num_envs, f"{part}[{name!r}]")
            for name, own in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        size = len(space.spaces)
        fits = isinstance(action, tuple) and len(action) == size
        _require_structure(fits, action, f"a tuple of {size}", part)
        return tuple(
            valid_actions(own, action[index], num_envs, f"{part}[{index}]")
            for index, own in enumerate(space.spaces)
        )
    raise EnvContractError(f"actions{part} of {space} are not supported; use Dict or Tuple")


def map_parts(function: Callable[[Any], Any], action: Any) -> Any:
    """`function` of each array of an action, in the action's structure."""
    if isinstance(action, dict):
        return {name: map_parts(function, part) for name, part in action.items()}
    if isinstance(action, tuple):
        return tuple(map_parts(function, part) for part in action)
    return function(action)


def as_lists(action: Any) -> Any:
    """An action with lists and numbers in place of arrays, to be shown."""
    return map_parts(lambda x: x.tolist() if isinstance(x, (np.ndarray, np.generic)) else x, action)


def arrays_of(action: Any) -> list[Any]:
    """The arrays of an action, one part after the other."""
    if isinstance(action, dict):
        return [x for name in sorted(action) for x in arrays_of(action[name])]
    if isinstance(action, tuple):
        return [x for part in action for x in arrays_of(part)]
    return [action]


def _require_structure(fits: bool, action: Any, wanted: str, part: str) -> None:
    parts = ""
    if isinstance(action, Mapping):
        parts = f" of {', '.join(map(repr, action))}"
    elif isinstance(action, tuple):
        parts = f" of {len(action)}"
    what = f"actions{part} are a {type(action).__name__}{parts}"
    require(fits, what, f"pass {wanted}", EnvContractError)
