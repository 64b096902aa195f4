"""POPGym: tasks that need memory, stepped on the host."""

import functools
from typing import Any

import gymnasium
from popgym.wrappers import (  # pyright: ignore[reportMissingImports]
    Antialias,
    PreviousAction,
)

from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.envs.host.resume_by_replay import ResumeByReplay
from rlkit.errors import require


def make(
    name: str,
    num_envs: int,
    *,
    previous_action: bool = True,
    first_step: bool = True,
    **arguments: Any,
) -> GymnasiumAdapter:
    """`num_envs` copies of a task. Other arguments go to `GymnasiumAdapter`.

    Observations are tuples, as in POPGym's published results: what the task shows, the action
    before it (`previous_action`), and 1 at the start of an episode (`first_step`).
    """
    for argument, value in (("previous_action", previous_action), ("first_step", first_step)):
        is_flag = isinstance(value, bool)
        require(is_flag, f"{argument} must be true or false, got {value!r}", "pass one of them")
    factory = functools.partial(
        _build, name, previous_action=previous_action, first_step=first_step
    )
    factory.__name__ = f"popgym/{name}"  # pyright: ignore[reportAttributeAccessIssue]
    return GymnasiumAdapter(factory, num_envs, **arguments)


def _build(
    name: str, *, previous_action: bool, first_step: bool, **arguments: Any
) -> gymnasium.Env:
    env = gymnasium.make(f"popgym-{name}", disable_env_checker=True, **arguments)
    limit = _longest(env.unwrapped)
    env = PreviousAction(env) if previous_action else env
    env = Antialias(env) if first_step else env
    return ResumeByReplay(gymnasium.wrappers.TimeLimit(env, limit))


def _longest(env: Any) -> int:
    """Steps after which each episode has ended: by the task where cards run out, or cut off."""
    if hasattr(env, "deck_size"):  # HigherLower
        return env.deck_size - 1
    return env.episode_length if hasattr(env, "episode_length") else env.max_episode_length
