"""What an actor-critic keeps of acting is what its network would compute again for a loss."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from tiers import by_default

from rlkit.agents.actor_critic import ActorCritic
from rlkit.agents.base import OUTPUTS
from rlkit.algorithms.configs import PPOConfig
from rlkit.algorithms.initial_state import example_transition
from rlkit.algorithms.packed_transition import split_extras
from rlkit.algorithms.ppo import ppo
from rlkit.algorithms.replay_buffer import UniformReplay

CONFIG = PPOConfig(num_steps=8, num_epochs=1, num_minibatches=1, normalize_observations=True)
BOX = {"action_space": spaces.Box(-1, 1, (2,))}
CASES = [
    ({}, {}, False),  # acting computes no values
    ({}, {"share_torso": True}, True),
    ({}, {"memory": "gru"}, True),
    ({}, {"memory": "gru", "share_torso": True}, True),
    (BOX, {"share_torso": True}, True),
    (BOX, {"share_torso": True, "use_sde": True}, False),  # outputs have features in them
]


@pytest.mark.parametrize(
    ("space", "network", "keeps"), by_default([CASES[2], CASES[4], CASES[0]], CASES)
)
def test_a_batch_has_what_would_be_computed_again(
    key, make_env, make_agent, quick_jit, space, network, keeps
):
    """For a learner that acted itself, and for one that is an update ahead of who acted."""
    env = make_env(**space)
    agent, algorithm = make_agent(env, **network), ppo(CONFIG)

    @quick_jit
    def datasets(key):
        before = algorithm.init(agent, env, key, total_steps=1000.0)
        learner = before.learner
        # The heads start with small weights; a test needs policies that differ.
        learner = learner.replace(params=jax.tree.map(partial(_shaken, key), learner.params))
        _, rollout, _ = algorithm.collect(agent, env, before.replace(learner=learner))
        assert (OUTPUTS in rollout.extras) is keeps
        bare = {name: x for name, x in rollout.extras.items() if name != OUTPUTS}
        ahead = learner.replace(params=jax.tree.map(lambda x: x * 0.7, learner.params))
        ingest = algorithm.batch_builder.ingest
        return [
            [
                ingest(agent, learns, (), seen, None, acted)[1]
                for seen in (rollout, rollout.replace(extras=bare))
            ]
            for learns, acted in ((learner, None), (ahead, learner.policy))
        ]

    of_itself, ahead = datasets(key)
    for kept, again in (of_itself, ahead):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), kept, again
        )
    same, moved = (dataclasses.asdict(_samples(each[0])) for each in (of_itself, ahead))
    np.testing.assert_allclose(same["log_prob"], moved["log_prob"], rtol=2e-4, atol=2e-5)
    assert np.abs(same["value"] - moved["value"]).max() > 0.05
    assert np.std(same["log_prob"]) > 0.01


class Exploring(ActorCritic):
    """Its values are not its network's alone."""

    def policy_and_value(self, params, obs):
        policy, value = super().policy_and_value(params, obs)
        return policy, value + 100.0


@dataclasses.dataclass(frozen=True)
class Wrapping:
    """Has what `Outputs` are read with, for something else."""

    inner: ActorCritic

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def policy_and_value(self, params, obs):
        policy, value = self.inner.policy_and_value(params, obs)
        return policy, value + 100.0

    def distribution(self, params, obs):
        return self.inner.policy(params, obs)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["a subclass", "a wrapper"])
def test_what_an_agent_of_ones_own_computes_counts(key, make_env, make_agent, quick_jit, kind):
    env = make_env()
    made = make_agent(env, share_torso=True)
    fields = {each.name: getattr(made, each.name) for each in dataclasses.fields(made)}
    agent = Exploring(**fields) if kind == "a subclass" else Wrapping(made)
    algorithm = ppo(CONFIG)

    @quick_jit
    def values(key):
        before = algorithm.init(agent, env, key, total_steps=1000.0)
        _, rollout, _ = algorithm.collect(agent, env, before)
        return algorithm.batch_builder.ingest(agent, before.learner, (), rollout)[1].value

    assert values(key).min() > 90


def test_a_replay_memory_stores_none(make_env, make_agent):
    env = make_env()

    def memory(agent):
        learner = ppo(CONFIG).init(agent, env, jax.random.key(0), total_steps=1000.0).learner
        example = example_transition(agent, env, learner.policy, has_discounted_return=False)
        return example, UniformReplay(capacity=64, batch_size=4, gamma=0.9).init(
            example, env.num_envs
        )

    found = [memory(make_agent(env, share_torso=share)) for share in (False, True)]
    assert [OUTPUTS in example.extras for example, _ in found] == [False, True]
    assert jax.tree.map(jnp.shape, found[0][1]) == jax.tree.map(jnp.shape, found[1][1])
    own = {OUTPUTS: jnp.zeros(3)}  # somebody else's extras of that name
    assert split_extras(own) == ((), own)


def _shaken(key, x):
    return x + 0.3 * jax.random.normal(jax.random.fold_in(key, x.size), x.shape)


def _samples(dataset):
    return getattr(dataset, "steps", dataset)
