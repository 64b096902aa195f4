"""Simulated robots as `JaxEnv`s, whose episodes rlkit limits and resets: Brax and Playground.

Both have `reset(key) -> state` and `step(state, action) -> state`, where a state has `obs`,
`reward`, `done` and `metrics`.
"""

import copy
import dataclasses
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium import spaces
from jax import Array

from rlkit.envs.base import JaxStep
from rlkit.envs.jittable.casts import cast_like
from rlkit.envs.suites.mujoco_picture import mujoco_picture
from rlkit.envs.suites.system_numbers import Numbers, chosen_numbers, require_used
from rlkit.ops.strong_types import strong_types
from rlkit.spaces import Space
from rlkit.types import Action, Key, Obs, PyTree


class SimulatedState(struct.PyTreeNode, kw_only=True):
    """The suite's own state, and what the episode has come to."""

    own: PyTree
    time: Array  # [] int32, steps since the reset
    sums: dict[str, Array]  # the parts of the reward, summed over the episode


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulatedEnv:
    """An environment of such a suite. The numbers of its system in `params` are traced."""

    env: Any
    name: str
    observation_space: Space
    action_space: Space
    max_episode_steps: int
    params: Numbers
    # Jitted: programs hold several steps and resets, and each would be traced anew, for seconds.
    own_reset: Callable[[Numbers, Key], Any]
    own_step: Callable[[Numbers, Any, Array], Any]
    model: Any  # a `mujoco.MjModel`, for pictures
    pose: Callable[[Any], dict[str, Array]]  # what MuJoCo needs of the suite's state to draw it

    non_finite = "reset"  # simulations diverge, at some actions

    def replace_params(self, params: Numbers) -> "SimulatedEnv":
        """The same environment with other numbers."""
        return dataclasses.replace(self, params=params)

    def reset(self, key: Key) -> tuple[SimulatedState, Obs]:
        """Starts an episode; returns (state, obs). Consumes the key."""
        own = self.own_reset(self.params, key)
        sums = {name: jnp.float32(0) for name in own.metrics if "reward" in name}
        return SimulatedState(own=own, time=jnp.int32(0), sums=sums), own.obs

    def step(self, key: Key, state: SimulatedState, action: Action) -> JaxStep:
        """One step; the key is not used: what is random is drawn from the state."""
        own = self.own_step(self.params, state.own, action)
        sums = {name: total + own.metrics[name] for name, total in state.sums.items()}
        time = state.time + 1
        state = SimulatedState(own=own, time=time, sums=sums)
        truncated = time >= self.max_episode_steps
        return state, own.obs, own.reward, own.done > 0, truncated, own.metrics | sums

    def render(self, state: SimulatedState) -> np.ndarray:
        """A picture by MuJoCo, [H, W, 3] uint8; raises `ConfigError` without OpenGL."""
        return mujoco_picture(self.model, **self.pose(state.own))

    @property
    def render_fps(self) -> int:
        """Pictures in a second of simulated time."""
        return round(1 / float(self.env.dt))


def simulated_env(
    env_id: str,
    env: Any,
    *,
    system: str,
    max_episode_steps: int,
    params: Mapping[str, Any] | None,
    hint: str,
    model: Any,
    pose: Callable[[Any], dict[str, Array]],
) -> SimulatedEnv:
    """The environment `env` of a suite, whose attribute `system` has the numbers of `params`.

    Raises `ConfigError` for numbers that it does not have, or does not use: then with the `hint`.
    """
    own_reset = jax.jit(functools.partial(_reset, env, system))
    own_step = jax.jit(functools.partial(_step, env, system))
    start = jax.eval_shape(own_reset, {}, jax.random.key(0))
    numbers = chosen_numbers(env_id, getattr(env, system), params)

    def simulate(numbers: Numbers) -> PyTree:
        state = own_reset(numbers, jax.random.key(0))
        return state, own_step(numbers, state, jnp.zeros(env.action_size))

    require_used(env_id, numbers, jax.jit(simulate), hint)
    return SimulatedEnv(
        env=env,
        name=env_id,
        observation_space=spaces.Box(-np.inf, np.inf, start.obs.shape, np.float32),
        action_space=spaces.Box(-1, 1, (env.action_size,), np.float32),
        max_episode_steps=max_episode_steps,
        params=numbers,
        own_reset=own_reset,
        own_step=own_step,
        model=model,
        pose=pose,
    )


def _reset(env: Any, system: str, numbers: Numbers, key: Key) -> Any:
    # Keys of the old kind are plain arrays, as these suites expect of what they keep in states.
    return strong_types(_with_numbers(env, system, numbers).reset(jax.random.key_data(key)))


def _step(env: Any, system: str, numbers: Numbers, state: Any, action: Array) -> Any:
    given = jax.tree.map(lambda x: x, state)  # a copy: both write into the dicts of their argument
    after = _with_numbers(env, system, numbers).step(given, action)
    return cast_like(state, strong_types(after))


def _with_numbers(env: Any, system: str, numbers: Numbers) -> Any:
    """A copy of the environment with other numbers in its system."""
    if not numbers:
        return env
    changed = copy.copy(env)
    for name, value in vars(env).items():
        if isinstance(value, types.MethodType) and value.__self__ is env:  # or it acts on the old
            setattr(changed, name, types.MethodType(value.__func__, changed))
    setattr(changed, system, getattr(env, system).tree_replace(numbers))
    return changed
