"""Agents in masked environments: what they choose is allowed, and what they tell is of that."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from gymnasium import spaces
from tiers import by_default

from rlkit.action_masks import masked_space, without_mask
from rlkit.agents.actor_critic import actor_critic
from rlkit.agents.registry import AGENTS, make_agent
from rlkit.errors import SpaceError
from rlkit.types import Sequences

BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)
FIVE, PAIR = spaces.Discrete(5, start=2), spaces.MultiDiscrete([2, 3], start=[0, 4])
DISCRETE = [
    name for name in AGENTS if name not in ("soft_actor_critic", "deterministic_actor_critic")
]
CASES = [*((name, FIVE, {}) for name in DISCRETE), ("actor_critic", PAIR, {})]
CASES += [("actor_critic", FIVE, {"memory": "gru"}), ("q_network", FIVE, {"memory": "gru"})]
BATCH = 64


def masked(action_space, seed=0):
    """(observation space, a batch of observations whose masks allow something)"""
    space = masked_space(BOX, action_space)
    size = space["action_mask"].n
    dice = np.random.default_rng(seed)
    mask = dice.integers(0, 2, (BATCH, size)).astype(np.int8)
    mask[:, 0] = 1
    mask[:, 3 if size == 5 else 2] = 1  # of both choices
    obs = {"observation": dice.normal(size=(BATCH, 3)).astype(np.float32), "action_mask": mask}
    return space, jax.tree.map(jnp.asarray, obs)


def allows(mask, action, action_space):
    """Whether each action is allowed, [B]."""
    mask, action = np.asarray(mask, bool), np.asarray(action)
    if isinstance(action_space, spaces.Discrete):
        return mask[np.arange(len(mask)), action - action_space.start]
    first, second = (action - action_space.start).T
    rows = np.arange(len(mask))
    return mask[rows, first] & mask[rows, 2 + second]


@pytest.mark.parametrize(("name", "action_space", "settings"), by_default(CASES[-3:], CASES))
def test_what_is_chosen_is_allowed(name, action_space, settings):
    space, obs = masked(action_space)
    agent = make_agent(name, space, action_space, AGENTS[name].config(**settings))
    params = agent.init(jax.random.key(0))
    carry = agent.initial_carry(BATCH)
    explore, exploit = jax.jit(agent.explore), jax.jit(agent.exploit)
    for seed in range(5):
        key, progress = jax.random.key(seed), jnp.float32(0.0)  # ε is 1: all is drawn
        actions = explore(params, obs, carry, key, progress)[0], exploit(params, obs, carry, key)[0]
        for action in actions:
            assert allows(obs["action_mask"], action, action_space).all()
    found = set(np.asarray(actions[0]).ravel())
    assert len(found) > 2


@pytest.mark.parametrize("name", by_default(DISCRETE[:2], DISCRETE))
def test_networks_do_not_see_the_mask(name):
    """Their parameters are those of the environment without one."""
    space, obs = masked(FIVE)
    with_one, without = (make_agent(name, each, FIVE) for each in (space, BOX))
    params = with_one.init(jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, params, without.init(jax.random.key(0)))
    everything = {**obs, "action_mask": jnp.ones_like(obs["action_mask"])}
    carry, key = with_one.initial_carry(BATCH), jax.random.key(1)
    np.testing.assert_array_equal(
        with_one.exploit(params, everything, carry, key)[0],
        without.exploit(params, without_mask(obs), carry, key)[0],
    )


def test_log_probs_and_entropies_are_those_of_the_allowed_actions():
    space, obs = masked(PAIR)
    agent, free = actor_critic(space, PAIR), actor_critic(BOX, PAIR)
    params = agent.init(jax.random.key(0))
    out = free.network.apply(params["network"], obs["observation"])[1][0]
    policy, _ = agent.policy_and_value(params, obs)
    action = policy.sample(jax.random.key(1))
    log_prob, entropy = np.asarray(policy.log_prob(action)), np.asarray(policy.entropy())
    mask, taken = np.asarray(obs["action_mask"], bool), np.asarray(action - PAIR.start)
    for row in range(BATCH):
        wanted, bits = 0.0, 0.0
        for part, choice in zip((slice(0, 2), slice(2, 5)), taken[row], strict=True):
            weights = np.where(mask[row, part], np.exp(np.asarray(out[row, part], np.float64)), 0.0)
            probs = weights / weights.sum()
            wanted += np.log(probs[choice])
            bits -= sum(p * np.log(p) for p in probs if p > 0)
        np.testing.assert_allclose([log_prob[row], entropy[row]], [wanted, bits], atol=1e-5)


@pytest.mark.parametrize("share_torso", [False, True])
def test_gradients_are_finite_and_do_not_reach_what_is_forbidden(share_torso):
    space, obs = masked(FIVE)
    mask = obs["action_mask"].at[:, 4].set(0)
    obs = {**obs, "action_mask": mask}
    agent = make_agent(
        "actor_critic", space, FIVE, AGENTS["actor_critic"].config(share_torso=share_torso)
    )

    def loss(params):
        policy, value = agent.policy_and_value(params, obs)
        action = jnp.full(BATCH, 2)
        return (policy.log_prob(action) + policy.entropy() + value).sum()

    gradients = jax.jit(jax.grad(loss))(agent.init(jax.random.key(0)))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradients))
    network = gradients["network"]
    head = network["actor_head"] if share_torso else network["actor"]["head"]
    assert (np.asarray(head["kernel"])[:, 4] == 0).all() and head["bias"][4] == 0
    assert (np.asarray(head["kernel"])[:, 0] != 0).any()


def test_values_of_forbidden_actions_are_minus_infinity_and_no_state_value():
    space, obs = masked(FIVE)
    forbidden = ~np.asarray(obs["action_mask"], bool)
    for name in ("q_network", "normalized_q_network", "quantile_network"):
        agent = make_agent(name, space, FIVE)
        params = agent.init(jax.random.key(0))
        values = np.asarray(agent.q_values(params, obs))
        assert (np.isneginf(values) == forbidden).all()
        np.testing.assert_array_equal(agent.value(params, obs), values.max(-1))
        if name == "quantile_network":
            quantiles = np.asarray(agent.quantiles(params, obs))
            assert (np.isneginf(quantiles) == forbidden[None]).all()


def test_sequences_are_masked_step_by_step():
    space, obs = masked(FIVE)
    agent = make_agent("actor_critic", space, FIVE, AGENTS["actor_critic"].config(memory="gru"))
    params, carry = agent.init(jax.random.key(0)), agent.initial_carry(BATCH // 4)
    steps = Sequences(
        obs=jax.tree.map(lambda x: x.reshape(4, BATCH // 4, *x.shape[1:]), obs),
        carry=carry,
        restart=jnp.zeros((4, BATCH // 4), bool),
    )
    policy, value = agent.policy_and_value(params, steps)
    assert value.shape == (BATCH,)
    (log_probs,) = policy.log_probs
    assert (np.isneginf(log_probs) == ~np.asarray(obs["action_mask"], bool)).all()


@pytest.mark.full
def test_after_the_end_nothing_may_be_allowed_and_all_is_finite():
    space, obs = masked(FIVE)
    nothing = {**obs, "action_mask": jnp.zeros_like(obs["action_mask"])}
    for name in DISCRETE:
        agent = make_agent(name, space, FIVE)
        params = agent.init(jax.random.key(0))
        if hasattr(agent, "value"):
            assert np.isfinite(agent.value(params, nothing)).all()
        action, _ = agent.exploit(params, nothing, agent.initial_carry(BATCH), jax.random.key(0))
        assert set(np.asarray(action)) <= set(range(2, 7))


@pytest.mark.fast
@pytest.mark.parametrize(
    "name", ["soft_actor_critic", "deterministic_actor_critic", "actor_critic"]
)
def test_masks_of_continuous_actions_are_refused(name):
    space = spaces.Dict({"x": BOX, "action_mask": spaces.MultiBinary(3)})
    with pytest.raises(SpaceError, match="an action mask is for Discrete and MultiDiscrete"):
        make_agent(name, space, BOX)


class Sum(nnx.Module):
    """Features [B, 3] of observations [B, 3], which are no Dict."""

    def __init__(self, rngs):
        self.scale = nnx.Param(jax.random.uniform(rngs.params(), (3,)))

    def __call__(self, obs):
        return jnp.tanh(obs * self.scale[...])


def test_own_torsos_see_the_observation_alone():
    space, obs = masked(FIVE)
    agent = actor_critic(space, FIVE, torso=Sum)
    policy, _ = agent.policy_and_value(agent.init(jax.random.key(0)), obs)
    assert (np.isneginf(policy.log_probs[0]) == ~np.asarray(obs["action_mask"], bool)).all()
