"""A tiny environment in which episodes end in both ways, and stubs of agents."""

import dataclasses
import functools
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from gymnasium import spaces

from rlkit.agents.actor_critic import actor_critic
from rlkit.agents.configs import ActorCriticConfig
from rlkit.envs.jittable.vectorized import vectorize

NUM_ENVS = 4
# A third of the time to compile, and these programs run for milliseconds.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@pytest.fixture(scope="session")
def quick_jit():
    """`jax.jit` that compiles quickly rather than well."""
    return functools.partial(jax.jit, compiler_options=QUICK)


@dataclasses.dataclass(frozen=True)
class Drift:
    """A noisy point in the plane: terminated outside the unit box, truncated after five steps,
    sometimes both at once.
    """

    action_space: Any = dataclasses.field(default_factory=lambda: spaces.Discrete(2))
    reward_scale: float = 1.0
    observation_space = spaces.Box(-2.0, 2.0, (2,))
    max_episode_steps = 5

    def reset(self, key):
        x = jax.random.uniform(key, (2,), minval=-0.5, maxval=0.5)
        return {"x": x, "time": jnp.int32(0)}, x

    def step(self, key, state, action):
        parts = [jnp.sum(jnp.asarray(part, jnp.float32)) for part in jax.tree.leaves(action)]
        push = sum(parts) * 0.1
        x = jnp.clip(state["x"] + push + 0.3 * jax.random.normal(key, (2,)), -2.0, 2.0)
        time = state["time"] + 1
        reward = self.reward_scale * (1.0 - jnp.abs(x).sum() + push)
        return (
            {"x": x, "time": time},
            x,
            reward,
            jnp.any(jnp.abs(x) > 1.0),
            time >= 5,
            {"push": push},
        )


@pytest.fixture(scope="session")
def make_env():
    """make_env(num_envs=4, **fields of Drift) -> EnvAdapter"""

    def make(num_envs: int = NUM_ENVS, **fields):
        return vectorize(Drift(**fields), num_envs)

    return make


@pytest.fixture(scope="session")
def make_agent():
    """An actor-critic with one hidden layer of 8 units for an environment."""

    def make(env, **fields):
        return actor_critic(
            env.observation_space, env.action_space, ActorCriticConfig(hidden_sizes=(8,), **fields)
        )

    return make


@dataclasses.dataclass(frozen=True)
class StubAgent:
    """Its parameters are what it predicts: {"log_prob", "value", "entropy"} [M]."""

    def policy_and_value(self, params, obs):
        policy = SimpleNamespace(
            log_prob=lambda action: params["log_prob"], entropy=lambda: params["entropy"]
        )
        return policy, params["value"]


@pytest.fixture
def stub_agent():
    return StubAgent()


@pytest.fixture(scope="session")
def one_iteration(quick_jit):
    """one_iteration(algorithm, agent, env, key) -> (state before, rollout, episodes, learner after,
    metrics)
    """

    def run(algorithm, agent, env, key, total_steps=1000.0):
        @quick_jit
        def program(key):
            init_key, update_key = jax.random.split(key)
            before = algorithm.init(agent, env, init_key, total_steps=total_steps)
            after, rollout, episodes = algorithm.collect(agent, env, before)
            learner, _, metrics = algorithm.update(
                agent, after.learner, after.local.memory, rollout, update_key
            )
            return before, rollout, episodes, learner, metrics

        return program(key)

    return run
