"""Gymnasium environments that say which actions they allow beside their observations.

Must not import JAX.
"""

from typing import Any

import gymnasium
import numpy as np

from rlkit.action_masks import (
    ACTION_MASK,
    METHOD,
    flat_mask,
    has_mask,
    masked_space,
    num_choices,
    with_mask,
)
from rlkit.errors import EnvContractError, SpaceError, require


class MaskedEnv(gymnasium.Wrapper):
    """Observations with the mask of `info["action_mask"]`, or of a method `action_masks()`."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self._sizes = num_choices(env.action_space)
        self._has_method = env.has_wrapper_attr(METHOD)
        require(
            not has_mask(env.observation_space),
            "the observations hold an action mask already",
            "leave out action_masks=True",
            SpaceError,
        )
        self.observation_space = masked_space(env.observation_space, env.action_space)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Starts an episode."""
        obs, info = self.env.reset(**kwargs)
        return self._masked(obs, info), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        masked: Any = self._masked(obs, info, ended=bool(terminated))
        return masked, reward, terminated, truncated, info

    def get_state(self) -> None:
        """It has no state of its own."""

    def set_state(self, state: None) -> None:
        """It has no state of its own."""

    def _masked(self, obs: Any, info: dict[str, Any], *, ended: bool = False) -> dict[str, Any]:
        size = sum(self._sizes)
        mask = info.get(ACTION_MASK)
        if mask is None and self._has_method:
            mask = self.env.get_wrapper_attr(METHOD)()
        if mask is None and ended:  # when the task is over, nobody asks what is allowed
            return with_mask(obs, np.ones(size, np.int8))
        require(
            mask is not None,
            "action_masks=True, but the environment gave none after reset or step",
            f"return it as info[{ACTION_MASK!r}] from both, or by a method {METHOD}()",
            EnvContractError,
        )
        flat = flat_mask(mask)
        require(
            flat.size == size,
            f"the action mask has {flat.size} values for {self.env.action_space}",
            f"return {size}, 1 for each action that is allowed",
            EnvContractError,
        )
        return with_mask(obs, flat.astype(np.int8))
