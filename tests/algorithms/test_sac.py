"""SAC's losses on three samples by hand, which parameters they move, and one iteration of the
whole.
"""

import dataclasses
import math
from types import SimpleNamespace

import algorithm_rows as rows
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium import spaces

from rlkit.agents.configs import SoftActorCriticConfig
from rlkit.agents.soft_actor_critic import soft_actor_critic
from rlkit.algorithms.compatibility import check_compatible
from rlkit.algorithms.configs import SACConfig
from rlkit.algorithms.replayed import Replayed
from rlkit.algorithms.sac import actor_loss, critic_loss, sac
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.envs.probes import space_probes
from rlkit.errors import ConfigError, SpaceError
from rlkit.ops.counters import StepCounter
from rlkit.training.core.module import RLModule, fit
from rlkit.types import LearnerState

GROUPS = ("critic", "actor", "log_temperature")
SMALL = SACConfig(num_steps=3, prefill_steps=24, capacity=100, batch_size=8, updates_per_step=0.5)
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
LOG_PROB = jnp.array([-1.0, 2.0, 5.0])


@dataclasses.dataclass(frozen=True)
class Stub:
    """The policy returns `actor["action"]` and `actor["log_prob"]`; critics are linear in the unit
    action, and know the observation.
    """

    def policy(self, actor, obs):
        return SimpleNamespace(sample_and_log_prob=lambda key: (actor["action"], actor["log_prob"]))

    def q_values(self, critic, obs, unit_action):
        return (
            critic["weight"][:, None] * unit_action.sum(-1)
            + critic["bias"][:, None]
            + 100.0 * obs[:, 0]
        )

    def to_unit(self, action):
        return (action - jnp.array([0.0, 5.0])) / jnp.array([1.0, 5.0])


PARAMS = {
    "actor": {"action": jnp.array([[0.5, 0.5], [1.0, 0.0], [0.0, -1.0]]), "log_prob": LOG_PROB},
    "critic": {"weight": jnp.array([1.0, 2.0]), "bias": jnp.array([0.0, 0.0])},
    "log_temperature": jnp.log(jnp.float32(0.5)),
}
TARGETS = {"critic": {"weight": jnp.array([3.0, -1.0]), "bias": jnp.array([0.0, 1.0])}}
# Targets of the two rows that go on: r + 0.9 · (100 + min(3·1, -1·1 + 1) - 0.5 · log-prob), with
# 100 from next_obs
TARGET = np.array([1 + 0.9 * (100 + 0 + 0.5), 2 + 0.9 * (100 + 0 - 1.0), 3.0])
# Q of both critics at the unit actions (0.5, 0.5), (0, 0), (-1, -1)
Q_VALUES = np.array([[1.0, 0.0, -2.0], [2.0, 0.0, -4.0]])


def of_stub(loss, batch=BATCH):
    """The loss and metrics of the stub's parameters."""
    return jax.jit(lambda batch: loss(Stub(), PARAMS, TARGETS, batch, None))(batch)


def test_critic_loss_by_hand():
    loss, metrics = of_stub(critic_loss(SACConfig()))
    np.testing.assert_allclose(loss, 0.5 * np.square(Q_VALUES - TARGET).sum(0).mean(), rtol=1e-5)
    assert set(metrics) == {"q_value", "target", "td_error"}
    np.testing.assert_allclose(metrics["td_error"], np.abs(Q_VALUES - TARGET).mean(0), rtol=1e-5)
    weighted, _ = of_stub(
        critic_loss(SACConfig()), BATCH.replace(weight=jnp.array([0.0, 0.0, 0.5]))
    )
    np.testing.assert_allclose(
        weighted, 0.25 * np.square(Q_VALUES - TARGET).sum(0)[2] / 3, rtol=1e-5
    )
    np.testing.assert_allclose(metrics["q_value"], Q_VALUES.mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics["target"], TARGET.mean(), rtol=1e-5)


def test_a_fixed_temperature_replaces_the_learned_one():
    _, metrics = of_stub(critic_loss(SACConfig(temperature=0.0)))
    np.testing.assert_allclose(metrics["target"], np.mean([91.0, 92.0, 3.0]), rtol=1e-6)
    _, metrics = of_stub(actor_loss(SACConfig(temperature=0.25)))
    assert float(metrics["temperature"]) == 0.25
    assert [step.group for step in sac(SACConfig(temperature=0.25)).updater.steps] == [
        ("critic",),
        ("actor",),
    ]
    assert [step.group for step in sac().updater.steps] == [
        ("critic",),
        ("actor", "log_temperature"),
    ]


def test_actor_loss_by_hand():
    """Unit actions sum to 1, 1, -1: the lesser critic says 1, 1, -2."""
    loss, metrics = jax.device_get(of_stub(actor_loss(SACConfig())))
    np.testing.assert_allclose(
        metrics["actor_loss"], ((-0.5 - 1.0) + (1.0 - 1.0) + (2.5 + 2.0)) / 3, rtol=1e-5
    )
    np.testing.assert_allclose(loss, metrics["actor_loss"] + metrics["temperature_loss"], rtol=1e-6)
    assert set(metrics) == {"actor_loss", "temperature_loss", "entropy", "temperature"}
    np.testing.assert_allclose((metrics["entropy"], metrics["temperature"]), (-2.0, 0.5), rtol=1e-6)


@pytest.mark.parametrize(("target_entropy", "wanted"), [(None, -2.0), (0.5, 0.5), (-3.0, -3.0)])
def test_temperature_loss_by_hand(target_entropy, wanted):
    """The default wants minus the number of action dimensions; too little entropy raises the
    temperature.
    """
    loss = actor_loss(SACConfig(target_entropy=target_entropy))
    # Operation by operation: a compiled mean may not cancel to an exact zero.
    gradient, metrics = jax.grad(
        lambda params: loss(Stub(), params, TARGETS, BATCH, None), has_aux=True
    )(PARAMS)
    np.testing.assert_allclose(
        metrics["temperature_loss"], -math.log(0.5) * (2.0 + wanted), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(gradient["log_temperature"], -(2.0 + wanted), rtol=1e-5, atol=1e-6)
    assert (wanted > -2.0) == bool(gradient["log_temperature"] < 0)


def any_nonzero(tree):
    return any(np.any(x) for x in jax.tree.leaves(jax.device_get(tree)))


def real_agent():
    # log 1 would hide what flows through the temperature's loss
    config = SoftActorCriticConfig(hidden_sizes=(8,), initial_temperature=0.5)
    return soft_actor_critic(spaces.Box(-1.0, 1.0, (1,)), ACTIONS, config)


@pytest.mark.parametrize(
    ("groups", "make_loss", "temperature"),
    [
        (["critic"], critic_loss, None),
        (["actor", "log_temperature"], actor_loss, None),
        (["actor"], actor_loss, 0.5),
    ],
)
def test_each_loss_moves_its_groups_alone(key, groups, make_loss, temperature):
    """Even if all parameters and targets are differentiated."""
    agent = real_agent()
    init = jax.jit(agent.init)
    params = init(key)
    targets = {"critic": init(jax.random.key(1))["critic"]}

    @jax.jit
    @jax.grad
    def gradient(everything):
        return make_loss(SACConfig(temperature=temperature))(
            agent, *everything, BATCH, jax.random.key(2)
        )[0]

    gradients, of_targets = gradient((params, targets))
    assert [name for name, part in gradients.items() if any_nonzero(part)] == groups
    assert not any_nonzero(of_targets)
    assert all(
        any_nonzero(gradients["critic"][name]) for name in ("first", "second") if "critic" in groups
    )


def test_actor_and_temperature_do_not_move_each_other(key):
    """Each has the gradient that its own loss alone gives."""
    agent = real_agent()
    params = jax.jit(agent.init)(key)

    def gradient(name):
        return jax.jit(
            jax.grad(
                lambda p: actor_loss(SACConfig())(agent, p, (), BATCH, jax.random.key(2))[1][name]
            )
        )(params)

    of_actor, of_temperature = gradient("actor_loss"), gradient("temperature_loss")
    assert float(of_actor["log_temperature"]) == 0.0 and not any_nonzero(of_temperature["actor"])
    assert any_nonzero(of_actor["actor"]) and float(of_temperature["log_temperature"]) != 0.0


def test_the_actor_learns_through_the_sample(key):
    """With a critic that likes larger actions, the actor's mean rises; the entropy alone widens a
    narrow policy.
    """
    agent = real_agent()
    params = jax.jit(agent.init)(key)
    greedy = dataclasses.replace(
        agent, critics=SimpleNamespace(apply=lambda _, obs, action: jnp.stack([action.sum(-1)] * 2))
    )

    def policy(agent, actor):
        policy = agent.policy(actor, BATCH.obs)
        return policy.mean, policy.log_std

    def after(agent, temperature):
        descent = optax.sgd(0.1)
        loss = actor_loss(SACConfig(temperature=temperature))

        def descend(actor):
            gradient = jax.grad(
                lambda x: loss(agent, params | {"actor": x}, (), BATCH, jax.random.key(3))[0]
            )(actor)
            change, _ = descent.update(gradient, descent.init(actor))
            return policy(agent, optax.apply_updates(actor, change))

        return jax.device_get(jax.jit(descend)(params["actor"]))

    mean, log_std = jax.device_get(jax.jit(lambda actor: policy(agent, actor))(params["actor"]))
    assert (after(greedy, 0.0)[0] > mean).all()
    flat = dataclasses.replace(
        agent, critics=SimpleNamespace(apply=lambda _, obs, action: jnp.zeros((2, 3)))
    )
    assert (after(flat, 1.0)[1] != log_std).any()


def test_both_losses_see_the_parameters_from_before_the_update(key):
    """Each group moves along the gradient of its own loss where all of them were."""
    agent, config = real_agent(), SACConfig()
    updater, params = sac(config, optimizer=optax.sgd(0.1)).updater, jax.jit(agent.init)(key)
    opt_state, targets = updater.init(params)
    learner = LearnerState(
        params=params,
        target_params=targets,
        opt_state=opt_state,
        obs_stats=None,
        reward_stats=None,
        env_steps=StepCounter.create(0),
        updates=StepCounter.create(0),
        total_steps=jnp.float32(100.0),
    )
    after, _, _ = jax.jit(lambda learner: updater.step(agent, learner, BATCH, key))(learner)
    critic_key, actor_key = jax.random.split(key)
    of_critic, of_actor = (
        jax.device_get(
            jax.jit(jax.grad(lambda p, loss=loss, k=k: loss(agent, p, targets, BATCH, k)[0]))(
                params
            )
        )
        for loss, k in ((critic_loss(config), critic_key), (actor_loss(config), actor_key))
    )
    for group, gradient in zip(GROUPS, (of_critic, of_actor, of_actor), strict=True):
        wanted = jax.tree.map(lambda x, g: np.asarray(x) - 0.1 * g, params[group], gradient[group])
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
            after.params[group],
            wanted,
        )


def test_one_iteration(key, make_env, quick_jit):
    """Warm-up, collection and updates together: everything moves, targets by tau, actions within
    the environment's bounds.
    """
    env = make_env(action_space=ACTIONS)
    agent = soft_actor_critic(
        env.observation_space, env.action_space, SoftActorCriticConfig(hidden_sizes=(8,))
    )
    algorithm = sac(dataclasses.replace(SMALL, updates_per_step=1 / 12, tau=0.25))  # one update
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
    for group in GROUPS:
        change = jax.tree.map(np.subtract, after.params[group], before.params[group])
        assert any_nonzero(change)
    assert set(before.target_params) == {"critic"}
    jax.tree.map(
        np.testing.assert_array_equal, before.target_params["critic"], before.params["critic"]
    )
    jax.tree.map(
        lambda new, old, target: np.testing.assert_allclose(
            target, 0.75 * old + 0.25 * new, rtol=1e-5, atol=1e-7
        ),
        after.params["critic"],
        before.params["critic"],
        after.target_params["critic"],
    )
    wanted = {
        "critic_loss",
        "actor_loss",
        "temperature_loss",
        "q_value",
        "target",
        "entropy",
        "temperature",
    }
    assert wanted <= set(metrics)
    assert all(np.isfinite(value).all() for value in metrics.values())
    assert (metrics["sum/skipped_updates"], int(after.updates.low)) == (0.0, 1)


@pytest.mark.fast
def test_misfits_are_refused(make_env, make_agent):
    env = make_env(action_space=ACTIONS)
    with pytest.raises(
        ConfigError,
        match=r"sac needs an agent with `policy`, `q_values`, `to_unit`.*soft_actor_critic\(",
    ):
        check_compatible(sac(SMALL), make_agent(env), env)
    other = soft_actor_critic(env.observation_space, spaces.Box(-1.0, 1.0, (2,)))
    with pytest.raises(
        SpaceError,
        match=r"the agent acts in Box.*build the agent with the action space of this environment",
    ):
        check_compatible(sac(SMALL), other, env)
    for wrong in ({"tau": 0.0}, {"temperature": -0.1}, {"target_entropy": "auto"}):
        with pytest.raises(ConfigError, match=rf"SACConfig\.{next(iter(wrong))}"):
            sac(SACConfig(**wrong))
    assert sac(SMALL).spec == ("sac", SMALL)
    assert sac(SMALL, optimizer=optax.sgd(1.0)).custom == ("optimizer",)


@pytest.mark.full
def test_the_temperature_falls_as_the_best_action_is_found(key, quick_jit):
    """A one-step task between asymmetric bounds."""
    single = space_probes.ContinuousAction(target=0.4)
    env = vectorize(single, 8)
    module = RLModule(
        env=env,
        agent=rows.agent_of("sac", env),
        algorithm=rows.algorithm_of("sac", rows.LEARNING),
        total_steps=1e5,
    )
    ts, metrics = quick_jit(lambda k: fit(module, k, num_outer_iterations=200))(key)
    best, _ = jax.jit(module.agent.exploit)(ts.learner.params, single.observations(), (), key)
    np.testing.assert_allclose(best, single.best_action(), atol=0.15)
    temperature = metrics["train"]["temperature"]
    assert temperature[-1] < temperature[0] / 2 and np.isfinite(temperature).all()
