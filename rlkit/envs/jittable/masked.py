"""Environments in JAX that say by a method which actions a state allows: put into observations."""

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
from gymnasium import spaces

from rlkit.action_masks import (
    ACTION_MASK,
    has_mask,
    masked_space,
    num_choices,
    with_mask,
)
from rlkit.envs.base import JaxEnv, JaxStep
from rlkit.envs.jittable.wrappers import Wrapper
from rlkit.errors import EnvContractError, SpaceError, require
from rlkit.spaces import Space
from rlkit.types import Action, EnvState, Key, Obs


@dataclasses.dataclass(frozen=True)
class ObservedMask(Wrapper):
    """Observations with what the environment's `action_mask(state)` allows."""

    @property
    def action_mask(self) -> Any:
        """None any more: it is observed."""
        raise AttributeError("the mask is in the observation")

    @property
    def observation_space(self) -> Space:
        """A Dict with the mask."""
        return self._observation_space

    @functools.cached_property
    def _observation_space(self) -> Space:
        return masked_space(self.env.observation_space, self.env.action_space)

    def reset(self, key: Key) -> tuple[EnvState, Obs]:
        """Starts an episode; returns (state, obs). Consumes the key."""
        state, obs = self.env.reset(key)
        return state, self._masked(state, obs)

    def step(self, key: Key, state: EnvState, action: Action) -> JaxStep:
        """One step. Consumes the key."""
        state, obs, reward, terminated, truncated, info = self.env.step(key, state, action)
        return state, self._masked(state, obs), reward, terminated, truncated, info

    def _masked(self, state: EnvState, obs: Obs) -> Obs:
        env: Any = self.env
        mask = jnp.asarray(env.action_mask(state)).reshape(-1)
        size = sum(num_choices(self.env.action_space))
        require(
            mask.shape == (size,),
            f"action_mask returned {mask.size} values for {self.env.action_space}",
            f"return {size}, True for each action that is allowed",
            EnvContractError,
        )
        return with_mask(obs, (mask != 0).astype(jnp.int8))


def with_observed_mask(env: JaxEnv) -> JaxEnv:
    """The environment, with an `ObservedMask` if it has a method `action_mask`.

    Raises `EnvContractError` if it resets itself, since the state before is gone then.
    """
    if not callable(getattr(env, "action_mask", None)):
        return env
    name = type(env).__name__
    require(
        isinstance(env.action_space, spaces.Discrete | spaces.MultiDiscrete),
        f"{name} has a method action_mask, which is for Discrete and MultiDiscrete actions, not for"
        f" {env.action_space}",
        "remove or rename the method",
        SpaceError,
    )
    require(
        not has_mask(env.observation_space),
        f"{name} has a method action_mask, and its observations have a part {ACTION_MASK!r} too",
        "leave one of them out",
        SpaceError,
    )
    require(
        not getattr(env, "auto_reset", False),
        f"{name} has action_mask(state) and resets itself (auto_reset=True), so the"
        " mask at the end of an episode would be that of the next one",
        "put the mask into its observations, as the part 'action_mask' of a Dict",
        EnvContractError,
    )
    return ObservedMask(env)
