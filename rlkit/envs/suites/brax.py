"""Brax's environments as `JaxEnv`s, whose episodes rlkit limits and resets."""

import copy
import dataclasses
import functools
import importlib
import warnings
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
from rlkit.errors import ConfigError, did_you_mean, require, require_positive_integer
from rlkit.ops.strong_types import strong_types
from rlkit.spaces import Space
from rlkit.types import Action, Key, Obs, PyTree

BACKENDS = ("generalized", "spring", "positional", "mjx")
HELD_TWICE = (
    "name the number that this backend reads: gravity, link.inertia.mass and actuator.gear of"
    " Brax's own backends are opt.gravity, body_mass and actuator_gear of mjx"
)


class BraxState(struct.PyTreeNode, kw_only=True):
    """Brax's state, and what its episode has come to."""

    own: PyTree
    time: Array  # [] int32, steps since the reset
    sums: dict[str, Array]  # the parts of the reward, summed over the episode


@dataclasses.dataclass(frozen=True, kw_only=True)
class BraxEnv:
    """An environment of Brax. The numbers of its system in `params` are traced."""

    env: Any
    name: str
    observation_space: Space
    action_space: Space
    max_episode_steps: int
    params: Numbers
    # Jitted: programs hold several steps and resets, and each would be traced anew, for seconds.
    own_reset: Callable[[Numbers, Key], Any]
    own_step: Callable[[Numbers, Any, Array], Any]

    non_finite = "reset"  # simulations diverge, at some actions

    def replace_params(self, params: Numbers) -> "BraxEnv":
        """The same environment with other numbers."""
        return dataclasses.replace(self, params=params)

    def reset(self, key: Key) -> tuple[BraxState, Obs]:
        """Starts an episode; returns (state, obs). Consumes the key."""
        own = self.own_reset(self.params, key)
        sums = {name: jnp.float32(0) for name in own.metrics if "reward" in name}
        return BraxState(own=own, time=jnp.int32(0), sums=sums), own.obs

    def step(self, key: Key, state: BraxState, action: Action) -> JaxStep:
        """One step, which is not random."""
        own = self.own_step(self.params, state.own, action)
        sums = {name: total + own.metrics[name] for name, total in state.sums.items()}
        time = state.time + 1
        state = BraxState(own=own, time=time, sums=sums)
        truncated = time >= self.max_episode_steps
        return state, own.obs, own.reward, own.done > 0, truncated, own.metrics | sums

    def render(self, state: BraxState) -> np.ndarray:
        """A picture by MuJoCo, [H, W, 3] uint8; raises `ConfigError` without OpenGL."""
        simulated = state.own.pipeline_state
        return mujoco_picture(self.env.sys.mj_model, qpos=simulated.q, qvel=simulated.qd)

    @property
    def render_fps(self) -> int:
        """Pictures in a second of simulated time."""
        return round(1 / float(self.env.dt))


def make(
    name: str,
    *,
    backend: str = "generalized",
    episode_length: int = 1000,
    params: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> BraxEnv:
    """The environment `name`, such as `ant`.

    `params` replaces numbers of its system, by the names of `System.tree_replace`. `arguments` go
    to Brax's constructor. Raises `ConfigError` for what it does not take.
    """
    env_id = f"brax/{name}"
    require(
        backend in BACKENDS,
        f"Brax has no backend {backend!r}",
        did_you_mean(str(backend), BACKENDS),
    )
    require_positive_integer(f"{env_id} episode_length", episode_length, example=1000)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Brax and its solvers say that they are not maintained
            envs: Any = importlib.import_module("brax.envs")
            env = envs.get_environment(name, backend=backend, **arguments)
        own_reset = jax.jit(functools.partial(_reset, env))
        start = jax.eval_shape(own_reset, {}, jax.random.key(0))
    except (TypeError, ValueError, NotImplementedError) as error:
        given = {"backend": backend, **arguments}
        raise ConfigError(
            f"{env_id} does not take {given}: {error}; leave an argument out"
        ) from error
    numbers = chosen_numbers(env_id, env.sys, params)
    made = BraxEnv(
        env=env,
        name=env_id,
        observation_space=spaces.Box(-np.inf, np.inf, start.obs.shape, np.float32),
        action_space=spaces.Box(-1, 1, (env.action_size,), np.float32),
        max_episode_steps=episode_length,
        params=numbers,
        own_reset=own_reset,
        own_step=jax.jit(functools.partial(_step, env)),
    )
    require_used(f"{env_id} with backend={backend!r}", numbers, _simulation(made), HELD_TWICE)
    return made


def _reset(env: Any, numbers: Numbers, key: Key) -> Any:
    return strong_types(_with_numbers(env, numbers).reset(key))


def _step(env: Any, numbers: Numbers, state: Any, action: Array) -> Any:
    given = jax.tree.map(lambda x: x, state)  # a copy: Brax writes into the dicts of its argument
    return cast_like(state, strong_types(_with_numbers(env, numbers).step(given, action)))


def _with_numbers(env: Any, numbers: Numbers) -> Any:
    """The environment with other numbers in its system."""
    if not numbers:
        return env
    changed = copy.copy(env)
    changed.sys = env.sys.tree_replace(numbers)
    return changed


def _simulation(env: BraxEnv) -> Callable[[Numbers], PyTree]:
    """A reset and a step with given numbers."""

    def simulate(numbers: Numbers) -> PyTree:
        state = env.own_reset(numbers, jax.random.key(0))
        action = jnp.zeros(env.action_space.shape)
        return state, env.own_step(numbers, state, action)

    return simulate
