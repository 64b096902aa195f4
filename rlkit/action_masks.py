"""Action masks: which actions a state allows, as a part of its observation. Must not import JAX.

A masked environment observes a Dict whose part "action_mask" has 1 for each action that is allowed
now, and 0 for the others: [n] for Discrete(n), and those of all choices one after the other for
MultiDiscrete. Since masks are observed, they are wherever observations are: in rollouts and replay
memories, in evaluations and videos, and among the inputs of an exported policy.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from rlkit.errors import SpaceError, require

Space = spaces.Space
ACTION_MASK = "action_mask"
OBSERVATION = "observation"  # the other part, if what is masked is no Dict
METHOD = "action_masks"  # of Gymnasium's environments, as for Stable-Baselines3-Contrib
NO_ACTION = "end the episode where nothing is left to do, or allow an action that does nothing"


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
    whole, shape = mask.dtype is not None and mask.dtype.kind in "biu", mask.shape or ()
    # that of a board may have its shape, but [2, 3] could also be one of all pairs
    fits = shape == (size,) or isinstance(action_space, spaces.Discrete)
    require(
        whole and fits and int(np.prod(shape)) == size,
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
    """The mask in an observation, None without one; of `Sequences`, those of their results."""
    obs = getattr(obs, "seen", obs)
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
    """What networks see of an observation: the other parts, or what alone is called
    "observation".
    """
    if not isinstance(obs, dict) or ACTION_MASK not in obs:
        return obs
    rest = {name: part for name, part in obs.items() if name != ACTION_MASK}
    return rest[OBSERVATION] if rest.keys() == {OBSERVATION} else rest


def flat_mask(mask: Any) -> np.ndarray:
    """A mask as environments return it, of one choice or a tuple of several, as [A] bool."""
    parts = mask if isinstance(mask, tuple | list) else (mask,)
    return np.concatenate([np.ravel(part) for part in parts]) != 0


def first_without_choice(masks: np.ndarray, choices: Sequence[int]) -> int | None:
    """The first of the masks [N, ...] in which one of the choices has nothing that is allowed."""
    rows = np.asarray(masks).reshape(len(masks), -1) != 0
    parts = np.split(rows, np.cumsum(choices)[:-1], axis=1)
    stuck = ~np.all([part.any(axis=1) for part in parts], axis=0)
    return int(np.flatnonzero(stuck)[0]) if stuck.any() else None


def with_some_allowed(masks: np.ndarray, choices: Sequence[int]) -> np.ndarray:
    """The masks [N, ...], with everything allowed where a choice had nothing."""
    rows = np.asarray(masks).reshape(len(masks), -1)
    parts = np.split(rows, np.cumsum(choices)[:-1], axis=1)
    repaired = [np.where(part.any(axis=1, keepdims=True), part, 1) for part in parts]
    return np.concatenate(repaired, axis=1).reshape(masks.shape).astype(masks.dtype)


def random_allowed(masks: np.ndarray, action_space: Space, dice: np.random.Generator) -> np.ndarray:
    """Random actions [N, ...] of those that the masks [N, ...] allow; equal for equal masks."""
    rows, choices = np.asarray(masks).reshape(len(masks), -1) != 0, num_choices(action_space)
    parts = np.split(rows, np.cumsum(choices)[:-1], axis=1)
    shares = dice.random(len(choices))
    numbers = [(share * part.sum(1)).astype(int) for share, part in zip(shares, parts, strict=True)]
    index = [
        (part.cumsum(1) > number[:, None]).argmax(1)
        for number, part in zip(numbers, parts, strict=True)
    ]
    if isinstance(action_space, spaces.Discrete):
        return index[0] + action_space.start
    assert isinstance(action_space, spaces.MultiDiscrete)
    return np.stack(index, axis=1) + action_space.start
