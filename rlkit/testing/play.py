"""Batches of the environment under test, and random steps of them."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from rlkit.envs.base import EnvAdapter
from rlkit.envs.registry import make_env
from rlkit.errors import ConfigError
from rlkit.protocols import follows
from rlkit.spaces import COMPOSITE, Space, sample, sample_allowed
from rlkit.types import Action, EnvState, Obs, TimeStep

Env = Any  # an id, a class or a function as for `make_env`, an environment, or an `EnvAdapter`
NUM_ENVS = 3


@contextlib.contextmanager
def batch_of(
    env: Env, arguments: Mapping[str, Any] | None, num_envs: int = NUM_ENVS
) -> Iterator[EnvAdapter]:
    """`num_envs` copies of `env`, closed at the end; a batch is taken as it is, and stays open."""
    if follows(env, EnvAdapter) and not isinstance(env, type):
        if arguments:
            raise ConfigError("env_arguments need an id or a class, got a batch; leave them out")
        yield env
        return
    is_object = hasattr(env, "step") and not isinstance(env, type)
    is_single = is_object and hasattr(env, "np_random")  # a `gymnasium.Env` cannot be copied
    batch = make_env(env, 1 if is_single else num_envs, **(arguments or {}))
    with contextlib.closing(batch):
        yield batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Play:
    """T random steps of a batch, on the host."""

    first: Obs  # [N, ...]
    states: list[EnvState]  # T + 1, on the device; the same one T + 1 times on the host
    keys: list[jax.Array]  # T
    actions: list[Action]  # T of [N, ...]
    steps: list[TimeStep]  # T

    @property
    def ended(self) -> np.ndarray:
        """[T, N] whether the episode ended."""
        return np.stack([step.terminated | step.truncated for step in self.steps])

    @property
    def age(self) -> np.ndarray:
        """[T, N] steps since the episode began, with this one."""
        age, ages = np.zeros(self.ended.shape[1], int), []
        for ended in self.ended:
            ages.append(age + 1)
            age = np.where(ended, 0, age + 1)
        return np.stack(ages)


def play(batch: EnvAdapter, num_steps: int, seed: int) -> Play:
    """Random steps from a fresh reset; all randomness follows from `seed`."""
    reset_key, key = jax.random.split(jax.random.key(seed))
    wrap = jax.jit if batch.is_jittable else (lambda function: function)
    reset, step = wrap(batch.reset), wrap(batch.step)
    state, obs = reset(reset_key)
    first, states, keys, actions, steps = jax.device_get(obs), [state], [], [], []
    for each in jax.random.split(key, num_steps):
        action_key, step_key = jax.random.split(each)
        action = jax.device_get(_random(batch.action_space, action_key, obs, batch.num_envs))
        state, time_step = step(step_key, state, action)
        obs = time_step.obs
        states.append(state)
        keys.append(step_key)
        actions.append(action)
        steps.append(jax.device_get(time_step))
    return Play(first=first, states=states, keys=keys, actions=actions, steps=steps)


def _random(space: Space, key: jax.Array, obs: Obs, num_envs: int) -> Action:
    if isinstance(space, COMPOSITE):  # has no masks
        return sample(space, key, num_envs)
    return sample_allowed(space, key, obs)
