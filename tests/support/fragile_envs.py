"""Environments that turn NaN at known steps, on both kinds; and any other that does by chance."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rlkit.envs import registry
from rlkit.envs.jittable.wrappers import Wrapper


@dataclasses.dataclass(frozen=True)
class Fragile:
    """Steps are counted, and those with action 1. Episodes last six steps; in step `at`, action 1
    (or with `always` any action) makes the `kind` of result `value`.
    """

    at: int = 4
    kind: str = "both"
    value: float = float("nan")
    always: bool = False
    max_episode_steps: int = 6
    observation_space = spaces.Box(-10.0, 10.0, (2,))
    action_space = spaces.Discrete(2)

    def reset(self, key):
        return (jnp.int32(0), jnp.int32(0)), jnp.zeros(2)

    def step(self, key, state, action):
        time, ones = state[0] + 1, state[1] + action.astype(jnp.int32)
        broken = (time == self.at) & (self.always | (action == 1))
        wrong = jnp.where(broken, self.value, 0.0)
        obs = jnp.stack([time, ones]).astype(jnp.float32)
        obs = obs + (wrong if self.kind != "reward" else 0.0)
        reward = 1.0 + (wrong if self.kind != "observation" else 0.0)
        ended = time >= self.max_episode_steps
        return (time, ones), obs, reward, jnp.bool_(False), ended, {"ones": ones}


class HostFragile(gymnasium.Env):
    """`Fragile`, step for step; it can be saved."""

    observation_space, action_space = Fragile.observation_space, Fragile.action_space
    max_episode_steps = 6

    def __init__(self, **settings: Any):
        self.twin = Fragile(**settings)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = self.ones = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        twin = self.twin
        self.time, self.ones = self.time + 1, self.ones + int(action)
        broken = self.time == twin.at and (twin.always or action == 1)
        wrong = twin.value if broken else 0.0
        obs = np.float32([self.time, self.ones])
        obs = obs + np.float32(wrong if twin.kind != "reward" else 0.0)
        reward = 1.0 + (wrong if twin.kind != "observation" else 0.0)
        return obs, reward, False, self.time >= 6, {"ones": self.ones}

    def get_state(self):
        return [self.time, self.ones]

    def set_state(self, state):
        self.time, self.ones = state


@dataclasses.dataclass(frozen=True)
class FragileStart(Fragile):
    """`Fragile` in which half of the resets, by their keys, return NaN; with `always` all do."""

    def reset(self, key):
        state, obs = super().reset(key)
        return state, jnp.where(self.always | jax.random.bernoulli(key), jnp.nan, obs)


@dataclasses.dataclass(frozen=True)
class FragileAtTimes(Fragile):
    """`Fragile` with three kinds of episodes, by their keys: those that break in step 2, and those
    that end in step 3 or 6.
    """

    def reset(self, key):
        (time, ones), obs = super().reset(key)
        return (time, ones, jax.random.randint(key, (), 0, 3)), obs

    def step(self, key, state, action):
        kind = state[2]
        (time, ones), obs, reward, terminated, truncated, info = super().step(
            key, state[:2], action
        )
        obs = jnp.where((kind == 0) & (time == 2), jnp.nan, obs)
        truncated = truncated | ((kind == 1) & (time == 3))
        return (time, ones, kind), obs, reward, terminated, truncated, info


class HostFragileAtTimes(HostFragile):
    """The same on the host, by the environment's own generator."""

    def reset(self, *, seed=None, options=None):
        found = super().reset(seed=seed)
        self.kind = self.np_random.integers(3)
        return found

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        if self.kind == 0 and self.time == 2:
            obs = obs + np.float32(np.nan)
        truncated = truncated or (self.kind == 1 and self.time == 3)
        return obs, reward, terminated, bool(truncated), info


@dataclasses.dataclass(frozen=True)
class MaskedFragile(Fragile):
    """`Fragile` that allows both actions, and none once it is broken by step `at`."""

    def action_mask(self, state):
        return jnp.full(2, state[0] != self.at)


@dataclasses.dataclass(frozen=True)
class Bursts(Wrapper):
    """An environment whose observation and reward are NaN, or infinite, in one step of four."""

    chance: float = 0.25

    def step(self, key, state, action):
        key, dice = jax.random.split(key)
        state, obs, reward, *rest = self.env.step(key, state, action)
        in_obs, in_reward = jax.random.bernoulli(dice, self.chance / 2, (2,))
        obs = jax.tree.map(lambda x: jnp.where(in_obs, jnp.nan, x), obs)
        return state, obs, jnp.where(in_reward, -jnp.inf, reward), *rest

    def observations(self):
        return self.env.observations()

    def best_action(self):
        return self.env.best_action()


class Declares(Fragile):
    """`Fragile` that says itself what NaN does."""

    non_finite = "reset"


class HostDeclares(HostFragile):
    """The same on the host."""

    non_finite = "reset"


@contextlib.contextmanager
def registered() -> Iterator[None]:
    """All of them by name, mine/Fragile and so on."""
    before = dict(registry._registered)
    for factory in (Fragile, HostFragile, Declares, HostDeclares):
        registry.register_env(f"mine/{factory.__name__}", factory)
    try:
        yield
    finally:
        registry._registered.clear()
        registry._registered.update(before)
