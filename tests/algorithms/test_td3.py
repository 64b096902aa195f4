"""TD3's losses on three samples by hand, which parameters they move and in which updates, and one
iteration of the whole.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium import spaces
from tiers import in_full

from rlkit.agents.configs import DeterministicActorCriticConfig
from rlkit.agents.deterministic import deterministic_actor_critic
from rlkit.agents.soft_actor_critic import soft_actor_critic
from rlkit.algorithms.compatibility import check_compatible
from rlkit.algorithms.configs import TD3Config
from rlkit.algorithms.replayed import Replayed
from rlkit.algorithms.td3 import actor_loss, critic_loss, smoothed, td3
from rlkit.errors import ConfigError, SpaceError

SMALL = TD3Config(num_steps=3, prefill_steps=24, capacity=100, batch_size=8, updates_per_step=0.25)
ACTIONS = spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 10.0], np.float32))
# A row within an episode, one that a time limit cut (bootstraps alike), one that terminated
# (discount 0).
BATCH = Replayed(
    obs=jnp.zeros((3, 1)),
    action=jnp.array([[0.5, 7.5], [0.0, 5.0], [-1.0, 0.0]]),
    reward=jnp.array([1.0, 2.0, 3.0]),
    discount=jnp.array([0.9, 0.9, 0.0]),
    next_obs=jnp.ones((3, 1)),
    extras={},
    weight=jnp.ones(3),
    index=jnp.arange(3),
)


@dataclasses.dataclass(frozen=True)
class Stub:
    """The actor does `actor["action"]`, plus one tenth at `next_obs`; critics are linear in the
    unit action, and know the observation.
    """

    def act(self, actor, obs):
        return actor["action"] + 0.1 * obs

    def q_values(self, critic, obs, unit_action):
        return (
            critic["weight"][:, None] * unit_action.sum(-1)
            + critic["bias"][:, None]
            + 100.0 * obs[:, 0]
        )

    def to_unit(self, action):
        return (action - jnp.array([0.0, 5.0])) / jnp.array([1.0, 5.0])


PARAMS = {
    "actor": {"action": jnp.array([[0.5, 0.5], [1.0, 0.0], [0.0, -1.0]])},
    "critic": {"weight": jnp.array([1.0, 2.0]), "bias": jnp.array([0.0, 0.0])},
}
TARGETS = {
    "actor": {
        "action": jnp.array([[0.4, -0.5], [0.9, 0.2], [0.0, 0.0]])
    },  # with the tenth: sums of 0.1, 1.3, 0.2
    "critic": {"weight": jnp.array([3.0, -1.0]), "bias": jnp.array([0.0, 1.0])},
}
# Q of both critics at the unit actions (0.5, 0.5), (0, 0), (-1, -1)
Q_VALUES = np.array([[1.0, 0.0, -2.0], [2.0, 0.0, -4.0]])


def test_critic_loss_by_hand(key):
    """Without noise: r + discount · (100 + the lesser of 3·sum and 1 - sum), at actions of the
    target's actor.
    """
    target = np.array([1 + 0.9 * (100 + 0.3), 2 + 0.9 * (100 - 0.3), 3.0])
    critic = critic_loss(TD3Config(target_noise=0.0))
    loss, metrics = jax.jit(lambda key: critic(Stub(), PARAMS, TARGETS, BATCH, key))(key)
    np.testing.assert_allclose(loss, 0.5 * np.square(Q_VALUES - target).sum(0).mean(), rtol=1e-5)
    assert set(metrics) == {"q_value", "target", "td_error"}
    np.testing.assert_allclose(metrics["q_value"], Q_VALUES.mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics["target"], target.mean(), rtol=1e-5)


def test_smoothing_by_hand():
    """Noise so large that it is clipped almost surely: ±0.3 on each dimension, then the action to
    [-1, 1].
    """
    critic = critic_loss(TD3Config(target_noise=1e4, target_noise_clip=0.3))
    loss = jax.jit(lambda key: critic(Stub(), PARAMS, TARGETS, BATCH, key))
    for seed in range(4):
        key = jax.random.key(seed)
        signs = np.sign(jax.random.normal(key, (3, 2)))
        action = np.clip(np.asarray(TARGETS["actor"]["action"]) + 0.1 + 0.3 * signs, -1.0, 1.0)
        assert action.max() == 1.0 or (signs[1, 0] < 0 and action.max() < 1.0)
        total = action.sum(-1)
        target = np.array([1, 2, 3]) + np.array([0.9, 0.9, 0]) * (
            100 + np.minimum(3 * total, 1 - total)
        )
        _, metrics = loss(key)
        np.testing.assert_allclose(metrics["target"], target.mean(), rtol=1e-5)


def test_smoothing_has_the_spread_that_was_asked_for(key):
    smooth = jax.jit(lambda action: smoothed(action, TD3Config(), key))
    middle = np.asarray(smooth(np.zeros((20_000, 2), np.float32)))
    # A normal deviate clipped to ± 2.5 of its deviations.
    np.testing.assert_allclose(middle.std(0), 0.2 * 0.9787, rtol=0.02)
    assert np.abs(middle).max() == 0.5 and abs(np.corrcoef(middle.T)[0, 1]) < 0.03
    edge = np.asarray(smooth(np.ones((1000, 2), np.float32)))
    assert edge.max() == 1.0 and edge.min() == 0.5


def test_actor_loss_by_hand(key):
    """The first critic alone, at the actor's own actions: unit actions sum to 1, 1, -1."""
    loss = jax.jit(lambda key: actor_loss(Stub(), PARAMS, TARGETS, BATCH, key))(key)
    np.testing.assert_allclose(loss, -(1.0 + 1.0 - 1.0) / 3, rtol=1e-6)


def real_agent():
    return deterministic_actor_critic(
        spaces.Box(-1.0, 1.0, (1,)), ACTIONS, DeterministicActorCriticConfig(hidden_sizes=(8,))
    )


@pytest.mark.parametrize("group", ["critic", "actor"])
def test_each_loss_moves_its_group_alone(key, group):
    """Even if all parameters and targets are differentiated."""
    agent = real_agent()
    init = jax.jit(agent.init)
    params, targets = init(key), init(jax.random.key(1))
    batch = BATCH.replace(obs=np.full((3, 1), 0.5, np.float32))  # where ReLUs are not all at rest

    @jax.jit
    @jax.grad
    def gradient(everything):
        if group == "critic":
            return critic_loss(TD3Config())(agent, *everything, batch, key)[0]
        return actor_loss(agent, *everything, batch, key)

    def any_nonzero(tree):
        return any(np.any(x) for x in jax.tree.leaves(tree))

    gradients, of_targets = jax.device_get(gradient((params, targets)))
    assert [name for name, part in gradients.items() if any_nonzero(part)] == [group]
    assert not any_nonzero(of_targets)
    if group == "critic":
        assert all(map(any_nonzero, gradients["critic"].values()))


def changed(one, other):
    """By name, whether any leaf of each part of `one` is other than in `other`."""
    return {
        name: any(map(np.any, jax.tree.leaves(jax.tree.map(np.not_equal, one[name], other[name]))))
        for name in one
    }


@pytest.mark.parametrize(("delay", "per_iteration"), [in_full((2, 3)), (3, 2)])
def test_the_schedule_goes_on_over_iterations(key, make_env, quick_jit, delay, per_iteration):
    """Actor and all targets move in the iterations that hold a multiple of the delay, the critics
    in all; metrics say so.
    """
    env = make_env(action_space=ACTIONS)
    agent = deterministic_actor_critic(
        env.observation_space, env.action_space, real_agent().spec[1]
    )
    algorithm = td3(
        dataclasses.replace(SMALL, updates_per_step=per_iteration / 12, policy_delay=delay)
    )

    @quick_jit
    def program(state, key):
        state, rollout, _ = algorithm.collect(agent, env, state)
        learner, memory, metrics = algorithm.update(
            agent, state.learner, state.local.memory, rollout, key
        )
        return state.replace(learner=learner, local=state.local.replace(memory=memory)), metrics

    state = quick_jit(lambda key: algorithm.init(agent, env, key, total_steps=1000))(key)
    for index in range(4):
        before = state.learner
        state, metrics = program(state, jax.random.fold_in(key, index))
        counts = range(index * per_iteration + 1, (index + 1) * per_iteration + 1)
        due = any(count % delay == 0 for count in counts)
        assert changed(state.learner.params, before.params) == {"actor": due, "critic": True}
        assert changed(state.learner.target_params, before.target_params) == {
            "actor": due,
            "critic": due,
        }
        assert np.isfinite(metrics["actor_loss"]) == due and np.isfinite(metrics["critic_loss"])
    assert int(state.learner.updates.low) == 4 * per_iteration


def test_one_iteration(key, make_env, quick_jit):
    """Warm-up, collection and two updates together: targets by tau in the second, actions within
    the environment's bounds.
    """
    env = make_env(action_space=ACTIONS)
    agent = deterministic_actor_critic(
        env.observation_space, env.action_space, real_agent().spec[1]
    )
    algorithm = td3(dataclasses.replace(SMALL, updates_per_step=2 / 12, tau=0.25))
    check_compatible(algorithm, agent, env)

    @quick_jit
    def program(key):
        init_key, update_key = jax.random.split(key)
        before = algorithm.init(agent, env, init_key, total_steps=1000)
        after, rollout, _ = algorithm.collect(agent, env, before)
        learner, _, metrics = algorithm.update(
            agent, after.learner, after.local.memory, rollout, update_key
        )
        return before.learner, rollout, learner, metrics

    before, rollout, after, metrics = jax.device_get(program(key))
    assert ((rollout.action >= ACTIONS.low) & (rollout.action <= ACTIONS.high)).all()
    assert set(before.target_params) == {"actor", "critic"}
    jax.tree.map(np.testing.assert_array_equal, before.target_params, before.params)
    jax.tree.map(
        lambda new, old, target: np.testing.assert_allclose(
            target, 0.75 * old + 0.25 * new, rtol=1e-5, atol=1e-7
        ),
        after.params,
        before.params,
        after.target_params,
    )
    assert {
        "critic_loss",
        "actor_loss",
        "critic_grad_norm",
        "actor_grad_norm",
        "q_value",
        "target",
    } <= set(metrics)
    assert all(np.isfinite(value).all() for value in metrics.values())
    assert (metrics["sum/skipped_updates"], int(after.updates.low)) == (0.0, 2)


@pytest.mark.fast
def test_misfits_are_refused(make_env, make_agent):
    env = make_env(action_space=ACTIONS)
    wanted = r"td3 needs an agent with `act`, `q_values`, `to_unit`.*deterministic_actor_critic\("
    for agent in (make_agent(env), soft_actor_critic(env.observation_space, env.action_space)):
        with pytest.raises(ConfigError, match=wanted):
            check_compatible(td3(SMALL), agent, env)
    other = deterministic_actor_critic(env.observation_space, spaces.Box(-1.0, 1.0, (2,)))
    with pytest.raises(
        SpaceError,
        match=r"the agent acts in Box.*build the agent with the action space of this environment",
    ):
        check_compatible(td3(SMALL), other, env)
    for wrong in (
        {"tau": 0.0},
        {"policy_delay": 0},
        {"target_noise": -0.1},
        {"target_noise_clip": -0.5},
    ):
        with pytest.raises(ConfigError, match=rf"TD3Config\.{next(iter(wrong))}"):
            td3(TD3Config(**wrong))
    assert td3(SMALL).spec == ("td3", SMALL)
    assert td3(SMALL, optimizer=optax.sgd(1.0)).custom == ("optimizer",)
