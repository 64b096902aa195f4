"""Checks of agents: whether they have what an algorithm's losses call, and no state that it would
not learn to use.
"""

import jax

from rlkit.agents.base import Agent, methods_of
from rlkit.algorithms.base import Algorithm
from rlkit.errors import ConfigError, require


def check_family(name: str, given: object, family: type, agent: str) -> None:
    """Raises `ConfigError` where the agent `given` lacks a method of the `family` (see
    `agents/base.py`) that the algorithm `name` learns; `agent` names one that has them.
    """
    wanted = methods_of(family)
    missing = [method for method in wanted if not callable(getattr(given, method, None))]
    if missing:
        raise ConfigError(
            f"{name} needs an agent with {_listed(wanted)} ({family.__name__}), got"
            f" {type(given).__name__} without {_listed(missing)};"
            f" use rlkit.{agent}(env.observation_space, env.action_space)"
        )


def check_carry(algorithm: Algorithm, agent: Agent, num_envs: int) -> None:
    """Raises `ConfigError` where the agent carries state between steps and the algorithm does not
    learn through it.
    """
    carry = jax.eval_shape(lambda: agent.initial_carry(num_envs))
    name = algorithm.spec[0] if algorithm.spec else "this algorithm"
    require(
        algorithm.learns_through_carry or not jax.tree.leaves(carry),
        f"{type(agent).__name__} carries state between steps, through which {name} does not learn"
        " (no algorithm of rlkit does yet)",
        "use an agent whose initial_carry is (), and show it the last observations at once"
        " (rlkit.envs.FrameStack, or Gymnasium's FrameStackObservation)",
    )


def _listed(methods: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{method}`" for method in methods)
