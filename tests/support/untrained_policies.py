"""Policies of any agent for any spaces, with random parameters and statistics: nothing compiles."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np
from gymnasium import spaces as gym

from rlkit import spaces
from rlkit.agents.registry import AGENTS, make_agent
from rlkit.errors import SpaceError
from rlkit.ops.counters import StepCounter
from rlkit.ops.running_stats import init_stats
from rlkit.training.policy import Policy
from rlkit.types import Action, PolicyState

LEAVES: dict[str, Any] = {
    "floats": gym.Box(-np.inf, np.inf, (3,)),
    "matrix of float64": gym.Box(-2.0, 2.0, (2, 2), np.float64),
    "small image": gym.Box(0, 255, (5, 5, 2), np.uint8),
    "image of floats": gym.Box(0.0, 1.0, (5, 4, 1), np.float32),
    "large image": gym.Box(0, 255, (36, 36, 1), np.uint8),
    "bytes": gym.Box(np.uint8([0, 3]), np.uint8([7, 9]), dtype=np.uint8),
    "integers": gym.Box(-5, 5, (2,), np.int32),
    "discrete": gym.Discrete(4, start=-2),
    "table": gym.Discrete(2000, start=1),
    "multi-discrete": gym.MultiDiscrete([3, 2], start=[1, -1]),
    "grid of symbols": gym.MultiDiscrete([[3, 3], [3, 3]]),
    "tables": gym.MultiDiscrete([3, 1500]),
    "multi-binary": gym.MultiBinary(4),
}
OBSERVATIONS = LEAVES | {
    "dict": gym.Dict(
        {
            "all": gym.Tuple([LEAVES[name] for name in LEAVES if name != "large image"]),
            "inner": gym.Dict({"b": gym.Discrete(2), "a": gym.Box(-1.0, 1.0, ())}),
        }
    )
}
ACTIONS: dict[str, Any] = {
    "discrete": gym.Discrete(3, start=-1),
    "multi-discrete": gym.MultiDiscrete([2, 3], start=[0, 5]),
    "box": gym.Box(np.float32([-1, -2]), np.float32([1, 4])),
    "matrix": gym.Box(-0.5, 0.5, (2, 2)),
    "composite": gym.Dict(
        {
            "move": gym.Box(np.float32([-1, -2]), np.float32([1, 4])),
            "more": gym.Tuple([gym.Discrete(3, start=-1), gym.MultiDiscrete([2, 3])]),
        }
    ),
}


@dataclasses.dataclass(frozen=True)
class Spaces:
    """All that a policy asks of its environment before it is evaluated."""

    observation_space: Any
    action_space: Any
    spec: None = None


def policy_of(agent: str, observation: Any, action: Any, **settings: Any) -> Policy:
    """An untrained policy with `settings` of the agent's config. Raises `SpaceError`."""
    kind = AGENTS[agent].config
    config = kind(**({"hidden_sizes": (8,)} | settings))
    return policy_with(make_agent(agent, observation, action, config), observation, action)


def policy_with(agent: Any, observation: Any, action: Any) -> Policy:
    """The same with an agent of one's own."""
    env: Any = Spaces(observation, action)
    return Policy(
        agent=agent, state=state_of(agent, env), env=env, make_env=None, checkpoint_step=7
    )


def vary(policy: Policy, obs: Any) -> Action:
    """Draws the policy's parameters again until its actions for `obs` differ, in every part;
    returns these.

    Constant actions would agree with anything.
    """
    for seed in range(1, 30):
        actions, _ = policy.act(obs, None)
        if all(len(np.unique(part)) > 1 for part in jax.tree.leaves(actions)):
            return actions
        policy.state = state_of(policy.agent, policy.env, seed)
    raise AssertionError("every draw of the parameters acts the same everywhere")


def state_of(agent: Any, env: Any, seed: int = 0) -> PolicyState:
    """Random parameters and statistics."""
    generator = np.random.default_rng(seed)

    def drawn(leaf: Any) -> np.ndarray:
        scale = 2.0 / math.sqrt(max(16, math.prod(leaf.shape[:-1])))  # keeps sums in range
        return np.float32(scale * generator.standard_normal(leaf.shape))

    stats = init_stats(spaces.abstract(env.observation_space))
    stats = stats.replace(
        count=np.float32(10.0),
        mean=jax.tree.map(drawn, stats.mean),
        m2=jax.tree.map(lambda leaf: 10.0 * np.square(1.0 + drawn(leaf)), stats.m2),
    )
    return PolicyState(
        params=jax.tree.map(drawn, jax.eval_shape(agent.init, jax.random.key(0))),
        obs_stats=stats,
        env_steps=StepCounter.create(),
        total_steps=np.float32(1.0),
    )


def acts_in(agent: str, action: str) -> bool:
    """Whether the agent takes the action space."""
    try:
        make_agent(agent, LEAVES["floats"], ACTIONS[action])
    except SpaceError:
        return False
    return True
