"""Checks that an agent has the methods that losses call, and no memory that goes untrained."""

import jax
import numpy as np
from jax import Array

from rlkit import spaces
from rlkit.agents.base import Agent, methods_of, remembers
from rlkit.algorithms.base import Algorithm
from rlkit.envs.base import EnvAdapter
from rlkit.errors import ConfigError, require
from rlkit.types import Action, Key, Obs, PyTree


def check_family(name: str, given: object, family: type, agent: str) -> None:
    """Raises `ConfigError` if the agent `given` lacks a method of `family` (see `agents/base.py`).

    `name` is that of the algorithm; `agent` names an agent to suggest.
    """
    wanted = methods_of(family)
    missing = [method for method in wanted if not callable(getattr(given, method, None))]
    if missing:
        raise ConfigError(
            f"{name} needs an agent with {_listed(wanted)} ({family.__name__}), got"
            f" {type(given).__name__} without {_listed(missing)};"
            f" use rlkit.{agent}(env.observation_space, env.action_space)"
        )


def check_memory(algorithm: Algorithm, agent: Agent) -> None:
    """Raises `ConfigError` if the agent has memory and the algorithm does not learn through it."""
    name = algorithm.spec[0] if algorithm.spec else "this algorithm"
    require(
        algorithm.learns_through_carry or not remembers(agent),
        f"{type(agent).__name__} has memory, but {name} does not learn through it",
        "use sac, ppo or another one that docs/memory.md lists, or an agent without memory that"
        " sees the last observations (rlkit.envs.FrameStack, or Gymnasium's"
        " FrameStackObservation)",
    )


def abstract_actions(agent: Agent, env: EnvAdapter) -> PyTree:
    """Shapes and dtypes of the first actions [N, ...], without computing anything.

    Raises whatever the agent raises on these observations.
    """

    def act(key: Key, obs: Obs, progress: Array) -> Action:
        carry = agent.initial_carry(env.num_envs)
        return agent.explore(agent.init(key), obs, carry, key, progress)[0]

    obs = spaces.abstract(env.observation_space, (env.num_envs,))
    return jax.eval_shape(act, abstract_key(), obs, np.float32(0.0))


def abstract_key() -> PyTree:
    """A key to trace with; a key itself would make JAX choose its backend."""
    return jax.eval_shape(jax.random.key, 0)


def _listed(methods: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{method}`" for method in methods)
