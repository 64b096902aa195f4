"""A counter that allows two of its three actions in each state, for both kinds of environments."""

import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rlkit.envs.probes.space_probes import Counter

FORBIDDEN = -100.0  # the reward of an action that is not allowed


class MaskedCounter(Counter):
    """`Counter` with `action_mask(state)`: not the action that is the time, counted by threes."""

    forbidden = FORBIDDEN

    def step(self, key, state, action):
        is_allowed = self.action_mask(state)[action]
        state, obs, reward, *rest = super().step(key, state, action)
        return state, obs, jnp.where(is_allowed, reward, self.forbidden), *rest

    def action_mask(self, state):
        return jnp.arange(3) != state.time % 3


class StrictCounter(MaskedCounter):
    """One that fails, since no run goes on from NaN."""

    forbidden = jnp.nan


class HostMaskedCounter(gymnasium.Env):
    """The same; `by` says where its mask is: "info", or the method "action_masks"."""

    forbidden = FORBIDDEN

    def __init__(self, by: str = "info"):
        self.twin, self.by = Counter(), by
        self.max_episode_steps = self.twin.max_episode_steps
        self.observation_space = self.twin.observation_space
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = self.total = 0
        return self._observe(), self._info()

    def step(self, action):
        reward = float(action) if self._mask()[action] else self.forbidden
        self.time, self.total = self.time + 1, self.total + int(action)
        terminated, truncated = self.total >= self.twin.goal, self.time >= self.max_episode_steps
        return self._observe(), reward, terminated, truncated, self._info()

    def get_state(self):
        return [self.time, self.total]

    def set_state(self, state):
        self.time, self.total = state

    def __getattr__(self, name):
        if name == "action_masks" and self.__dict__.get("by") == name:
            return self._mask
        raise AttributeError(name)

    def _info(self):
        return {"action_mask": self._mask().astype(np.int8)} if self.by == "info" else {}

    def _mask(self):
        return np.arange(3) != self.time % 3

    def _observe(self):
        return np.array([self.time, self.total], np.int32)


class HostStrictCounter(HostMaskedCounter):
    """One that fails, since no run goes on from NaN."""

    forbidden = float("nan")
