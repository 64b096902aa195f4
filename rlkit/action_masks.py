"""Action masks: which actions a state allows, as a part of its observation. Must not import JAX.

A masked environment observes a Dict whose part "action_mask" has 1 for each action that is allowed
now, and 0 for the others: [n] for Discrete(n), and those of all choices one after the other for
MultiDiscrete. Since masks are observed, they are wherever observations are: in rollouts and replay
memories, in evaluations and videos, and among the inputs of an exported policy.
"""

from typing import Any

import numpy as np
from gymnasium import spaces

from rlkit.errors import SpaceError, require

Space = spaces.Space
ACTION_MASK = "action_mask"
OBSERVATION = "observation"  # the other part, if what is masked is no Dict


def has_mask(observation_space: Space) -> bool:
    """Whether observations hold a mask."""
    return isinstance(observation_space, spaces.Dict) and ACTION_MASK in observation_space.spaces


def num_choices(action_space: Space) -> tuple[int, ...]:
    """The number of actions of each choice. Raises `SpaceError` for actions that are not chosen."""
    if isinstance(action_space, spaces.Discrete):
        return (int(action_space.n),)
    require(
        isinstance(action_space, spaces.MultiDiscrete),
        f"an action mask is for Discrete and MultiDiscrete actions, not for {action_space}",
        f"leave it out, or call that part of the observation something else than {ACTION_MASK!r}",
        SpaceError,
    )
    assert isinstance(action_space, spaces.MultiDiscrete)
    return tuple(int(n) for n in action_space.nvec.ravel())


def check_mask(observation_space: Space, action_space: Space) -> None:
    """Raises `SpaceError` if observations hold a mask that does not fit the actions."""
    if not has_mask(observation_space):
        return
    assert isinstance(observation_space, spaces.Dict)
    mask, size = observation_space.spaces[ACTION_MASK], sum(num_choices(action_space))
    whole = mask.dtype is not None and mask.dtype.kind in "biu"
    require(
        whole and mask.shape is not None and int(np.prod(mask.shape)) == size,
        f"the action mask {mask} does not fit {action_space}",
        f"declare it as MultiBinary({size}): 1 for each action that is allowed",
        SpaceError,
    )
    require(
        len(observation_space.spaces) > 1,
        "the observation is nothing but an action mask",
        f"add what the agent sees, for example as {OBSERVATION!r}",
        SpaceError,
    )


def mask_in(obs: Any) -> Any:
    """The mask in an observation, None without one."""
    return obs.get(ACTION_MASK) if isinstance(obs, dict) else None


def masked_space(observation_space: Space, action_space: Space) -> spaces.Dict:
    """The space of `with_mask`. Raises `SpaceError` if there is a mask, or for other actions."""
    require(
        not has_mask(observation_space),
        f"the observation has an {ACTION_MASK!r} already, and another one would be added",
        "leave one of them out",
        SpaceError,
    )
    mask = spaces.MultiBinary(sum(num_choices(action_space)))
    if isinstance(observation_space, spaces.Dict):
        return spaces.Dict({**observation_space.spaces, ACTION_MASK: mask})
    return spaces.Dict({OBSERVATION: observation_space, ACTION_MASK: mask})


def with_mask(obs: Any, mask: Any) -> dict[str, Any]:
    """An observation with its mask."""
    return {**(obs if isinstance(obs, dict) else {OBSERVATION: obs}), ACTION_MASK: mask}


def unmasked_space(observation_space: Space) -> Space:
    """The space of `without_mask`."""
    if not isinstance(observation_space, spaces.Dict):
        return observation_space
    rest = without_mask(observation_space.spaces)
    return rest if isinstance(rest, Space) else spaces.Dict(rest)


def without_mask(obs: Any) -> Any:
    """What networks see of an observation: what was there before `with_mask`."""
    if not isinstance(obs, dict) or ACTION_MASK not in obs:
        return obs
    rest = {name: part for name, part in obs.items() if name != ACTION_MASK}
    return rest[OBSERVATION] if rest.keys() == {OBSERVATION} else rest
