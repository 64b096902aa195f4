"""What `Algorithm` adds to its parts: normalisation, prefill, counting, devices, and refusing parts
that do not fit.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlkit.agents.actor_critic import actor_critic
from rlkit.agents.configs import ActorCriticConfig
from rlkit.algorithms.a2c import a2c
from rlkit.algorithms.compatibility import check_compatible
from rlkit.algorithms.configs import A2CConfig, PPOConfig
from rlkit.algorithms.metrics import over_devices, reduce_metrics
from rlkit.algorithms.on_policy_batches import OnPolicyBatch, scale_rewards
from rlkit.algorithms.ppo import ppo
from rlkit.errors import ConfigError, SpaceError
from rlkit.ops.over_devices import moments
from rlkit.ops.running_stats import fold, init_stats, normalize
from rlkit.xla_cpu.packing import Packed, Packing

TINY = PPOConfig(num_steps=8, num_epochs=1, num_minibatches=1)
IN_FIVE = ppo(dataclasses.replace(TINY, num_minibatches=5)).batch_builder
SCALAR = jax.ShapeDtypeStruct((), jnp.float32)


class Recorder:
    """An actor-critic that writes down what it is shown when it learns, through a loss."""

    @staticmethod
    def loss(agent, params, target_params, batch, key):
        return agent.value(params, batch.obs).mean(), {
            "obs_mean": batch.obs.mean(),
            "obs_std": batch.obs.std(),
            "advantage_mean": batch.advantage.mean(),
            "advantage_std": batch.advantage.std(),
            "target_std": batch.target.std(),
        }


def test_observations_are_normalised_by_the_statistics_of_the_acting_policy(
    key, make_env, make_agent, one_iteration
):
    """The first statistics come from one random rollout, which counts; this rollout's own are
    folded in only afterwards.
    """
    env = make_env()
    algorithm = ppo(dataclasses.replace(TINY, normalize_observations=True), loss=Recorder.loss)
    before, rollout, _, learner, metrics = one_iteration(algorithm, make_agent(env), env, key)
    size = 8 * env.num_envs
    assert algorithm.prefill_collects(env) == 1
    assert before.learner.env_steps.to_int() == size
    assert learner.env_steps.to_int() == 2 * size
    assert float(before.learner.obs_stats.count) == size
    normalised = np.asarray(normalize(before.learner.obs_stats, rollout.obs))
    np.testing.assert_allclose(metrics["obs_mean"], normalised.mean(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(metrics["obs_std"], normalised.std(), rtol=1e-4)
    wanted = fold(before.learner.obs_stats, rollout.obs)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), learner.obs_stats, wanted
    )
    unnormalised = np.asarray(rollout.obs)
    assert np.abs(unnormalised - normalised).max() > 0.1  # so that the test can tell


def test_without_normalisation_there_is_no_prefill(key, make_env, make_agent, one_iteration):
    env = make_env()
    before, _, _, learner, _ = one_iteration(ppo(TINY), make_agent(env), env, key)
    assert (before.learner.env_steps.to_int(), learner.env_steps.to_int()) == (0, 8 * env.num_envs)
    assert learner.obs_stats is None and learner.reward_stats is None


def test_rewards_are_scaled_by_statistics_that_include_the_rollout(
    key, make_env, make_agent, one_iteration
):
    env = make_env(reward_scale=100.0)
    algorithm = ppo(
        dataclasses.replace(TINY, normalize_rewards=True, gamma=0.9), loss=Recorder.loss
    )
    before, rollout, _, learner, metrics = one_iteration(algorithm, make_agent(env), env, key)
    assert float(before.learner.reward_stats.count) == 0
    running, wanted = np.zeros(env.num_envs), []
    for t in range(8):
        running = 0.9 * running + np.asarray(rollout.reward[t], np.float64)
        wanted.append(running.copy())
        running[np.asarray(rollout.done[t])] = 0.0
    np.testing.assert_allclose(rollout.extras["discounted_return"], wanted, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(learner.reward_stats.variance, np.var(wanted), rtol=1e-4)
    assert 0.3 < float(metrics["target_std"]) < 3.0  # where rewards are in hundreds


def test_scaled_rewards_by_hand(key):
    stats = fold(init_stats(SCALAR), jnp.array([0.0, 4.0]))  # deviation 2
    learner = type("Learner", (), {"reward_stats": stats})
    np.testing.assert_allclose(
        scale_rewards(learner, jnp.array([2.0, -1.0, 1000.0])), [1.0, -0.5, 10.0], rtol=1e-6
    )


@pytest.mark.parametrize("on", [True, False])
def test_advantages_are_standardised_per_minibatch(on):
    advantage = jnp.array([1.0, 3.0, 100.0, 102.0])
    dataset = OnPolicyBatch(
        obs=advantage,
        action=advantage,
        log_prob=advantage,
        value=advantage,
        advantage=advantage,
        target=advantage,
    )
    builder = ppo(
        dataclasses.replace(TINY, num_minibatches=2, normalize_advantages=on)
    ).batch_builder
    for plan, wanted in (([0, 1], [-1.0, 1.0]), ([3, 2], [1.0, -1.0])):
        batch = builder.gather(dataset, jnp.array(plan))
        np.testing.assert_allclose(
            batch.advantage, wanted if on else advantage[jnp.array(plan)], rtol=1e-6
        )
        np.testing.assert_array_equal(batch.target, advantage[jnp.array(plan)])  # targets never


def test_process_batch_runs_on_every_minibatch(key, make_env, make_agent, one_iteration):
    env = make_env()
    algorithm = ppo(
        dataclasses.replace(TINY, num_minibatches=4),
        loss=Recorder.loss,
        process_batch=lambda batch: batch.replace(advantage=batch.advantage + 3.0),
    )
    assert algorithm.custom == ("loss", "process_batch")
    metrics = one_iteration(algorithm, make_agent(env), env, key)[-1]
    # After standardisation, before the loss.
    np.testing.assert_allclose(metrics["advantage_mean"], 3.0, atol=1e-5)


def test_log_probs_belong_to_the_unclipped_action(key, make_env, make_agent, one_iteration):
    """With a bound of 0.1 and deviation 1 nearly every action is clipped by the environment, none
    in the rollout.
    """
    env = make_env(action_space=spaces.Box(-0.1, 0.1, (2,)))
    agent = make_agent(env)
    algorithm = ppo(TINY)
    before, rollout, _, _, _ = one_iteration(algorithm, agent, env, key)
    assert (np.abs(rollout.action) > 0.1).mean() > 0.8
    action, obs = np.asarray(rollout.action).reshape(-1, 2), np.asarray(rollout.obs).reshape(-1, 2)

    @jax.jit
    def log_probs_and_means(learner, rollout, obs):
        _, dataset, _ = algorithm.batch_builder.ingest(agent, learner, (), rollout)
        return dataset.log_prob, agent.policy(learner.params, obs).mode()

    log_prob, mean = map(np.asarray, log_probs_and_means(before.learner, rollout, obs))
    wanted = (-0.5 * (action - mean) ** 2 - 0.5 * np.log(2 * np.pi)).sum(-1)
    np.testing.assert_allclose(log_prob, wanted, rtol=1e-4)
    # and the environment saw them clipped: a push is at most 2 · 0.1 · 0.1
    far = np.full((env.num_envs, 2), 50.0, np.float32)
    _, timestep = jax.jit(env.step)(key, before.local.env_state, far)
    np.testing.assert_allclose(timestep.info["push"], 0.02, rtol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("factory", [ppo, a2c])
def test_two_devices_learn_as_one_from_the_joined_batch(
    key, make_env, make_agent, quick_jit, factory
):
    """With one minibatch: halves of a rollout under an axis name give the same learner as the
    whole.
    """
    env = make_env()
    agent = make_agent(env)
    settings = {
        "normalize_observations": True,
        "normalize_rewards": True,
        "normalize_advantages": True,
    }
    config = (
        dataclasses.replace(TINY, num_epochs=2, **settings)
        if factory is ppo
        else A2CConfig(num_steps=8, **settings)
    )
    algorithm = factory(config)
    of_device = algorithm.divided(2, "d")

    @quick_jit
    def both():
        state = algorithm.init(agent, env, key, total_steps=1000.0)
        state, rollout, _ = algorithm.collect(agent, env, state)
        whole, _, _ = algorithm.update(agent, state.learner, (), rollout, key)
        halves = jax.tree.map(
            lambda x: jnp.moveaxis(x.reshape(x.shape[0], 2, -1, *x.shape[2:]), 1, 0), rollout
        )
        split = jax.vmap(
            lambda half: of_device.update(agent, state.learner, (), half, key)[0],
            axis_name="d",
        )(halves)
        return state.learner, whole, split

    before, whole, split = both()
    assert whole.env_steps.to_int() == before.env_steps.to_int() + 8 * env.num_envs
    for (path, joined), devices in zip(
        jax.tree.leaves_with_path(whole), jax.tree.leaves(split), strict=True
    ):
        np.testing.assert_array_equal(devices[0], devices[1], err_msg=jax.tree_util.keystr(path))
        np.testing.assert_allclose(
            devices[0], joined, rtol=1e-4, atol=1e-6, err_msg=jax.tree_util.keystr(path)
        )


def test_moments_over_devices():
    x = jnp.array([[1.0, 2.0], [3.0, 6.0]])
    mean, variance = jax.vmap(lambda half: moments(half, "d"), axis_name="d")(x)
    np.testing.assert_allclose(mean, [3.0, 3.0])
    np.testing.assert_allclose(variance, [3.5, 3.5])


def test_metrics_over_devices_leave_out_what_was_not_measured():
    nan = float("nan")
    own = {
        "some": jnp.array([1.0, nan, 4.0]),
        "none": jnp.full(3, nan),
        "whole": jnp.array([1, 2, 6]),
        "sum/steps": jnp.array([1, 2, 3]),
    }
    found = jax.vmap(lambda metrics: over_devices(metrics, "d"), axis_name="d")(own)
    wanted = {"some": 2.5, "none": nan, "whole": 3.0, "sum/steps": 6}
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], [value] * 3, err_msg=name)


def stacked_rows(library, rows):
    """Packed metrics over a leading axis, as a loop over `rows` returns them."""
    rows = [{name: jnp.array(x) for name, x in row.items()} for row in rows]
    packing = Packing(rows[0])
    vectors = zip(*map(packing.pack, rows), strict=True)
    return Packed(
        vectors=[library.stack([library.asarray(x) for x in each]) for each in vectors],
        packing=packing,
    )


@pytest.mark.fast
def test_reduce_metrics():
    found = reduce_metrics(
        stacked_rows(
            jnp, [{"loss": 1.0, "sum/skipped_updates": 1}, {"loss": 3.0, "sum/skipped_updates": 1}]
        )
    )
    assert {name: float(x) for name, x in found.items()} == {
        "loss": 2.0,
        "sum/skipped_updates": 2.0,
    }


@pytest.mark.fast
@pytest.mark.parametrize("library", [np, jnp])
def test_reduce_metrics_averages_what_was_measured(library):
    """NaN is no measurement; of two seeds each has its own. Infinities and the NaN of sums stay,
    and sums of integers exact.
    """
    large = 2**24 + 1
    rows = [
        {"loss": [1.0, np.nan], "size": 1, "high": 1.0, "sum/count": 1.0, "sum/steps": large},
        {"loss": [np.nan, np.nan], "size": 2, "high": np.inf, "sum/count": np.nan, "sum/steps": 0},
        {"loss": [4.0, np.nan], "size": 4, "high": 0.0, "sum/count": 1.0, "sum/steps": 0},
    ]
    reduce = reduce_metrics if library is np else jax.jit(reduce_metrics)
    found = reduce(stacked_rows(library, rows))
    np.testing.assert_array_equal(found["loss"], [2.5, np.nan])
    np.testing.assert_allclose(
        [found[name] for name in ("size", "high", "sum/count")], [7 / 3, np.inf, np.nan], rtol=1e-6
    )
    assert int(found["sum/steps"]) == large
    assert all(isinstance(x, jax.Array) == (library is jnp) for x in found.values())


def test_prefill_steps_are_rounded_up_to_rollouts(make_env):
    env = make_env()
    algorithm = ppo(TINY)
    for steps, wanted in ((0, 0), (1, 1), (32, 1), (33, 2)):
        collector = dataclasses.replace(algorithm.collector, prefill_steps=steps)
        assert dataclasses.replace(algorithm, collector=collector).prefill_collects(env) == wanted


def test_minibatches_that_do_not_divide(make_env, make_agent):
    env = make_env()
    algorithm = ppo(dataclasses.replace(TINY, num_minibatches=5))
    with pytest.raises(
        ConfigError,
        match=(
            r"num_minibatches=5 does not divide the 32 samples .*; use num_minibatches=2 or 4 or 8"
        ),
    ):
        check_compatible(algorithm, make_agent(env), env)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_builder": IN_FIVE}, "num_minibatches=5 does not divide the 32 samples"),
        ({"normalize_rewards": True}, r"discounted returns, .*; give it reward_discount, such as"),
    ],
)
def test_parts_that_do_not_fit(key, make_env, make_agent, one_iteration, change, message):
    env = make_env()
    agent, algorithm = make_agent(env), dataclasses.replace(ppo(TINY), **change)
    with pytest.raises(ConfigError, match=message):
        one_iteration(algorithm, agent, env, key)


@pytest.mark.parametrize(
    "algorithm",
    [
        ppo(PPOConfig(num_steps=1, num_minibatches=4)),
        a2c(A2CConfig(num_steps=1, normalize_advantages=True)),
    ],
)
def test_a_single_sample_cannot_be_standardised(make_env, make_agent, algorithm):
    env = make_env(num_envs=4 if algorithm.spec[0] == "ppo" else 1)
    with pytest.raises(ConfigError, match="at least two samples"):
        check_compatible(algorithm, make_agent(env), env)


@pytest.mark.parametrize("total_steps", [0, -5.0, float("nan")])
def test_horizons_must_be_positive(key, make_env, make_agent, total_steps):
    env = make_env()
    with pytest.raises(ConfigError, match="total_steps must be positive"):
        ppo(TINY).init(make_agent(env), env, key, total_steps=total_steps)


def agent_of(observation_space, action_space):
    return actor_critic(observation_space, action_space, ActorCriticConfig(hidden_sizes=(4,)))


OBS = spaces.Box(-2.0, 2.0, (2,))


@pytest.mark.parametrize(
    ("env_actions", "agent"),
    [
        (spaces.Discrete(2), agent_of(spaces.Box(-2.0, 2.0, (3,)), spaces.Discrete(2))),
        (spaces.Discrete(2), agent_of(spaces.Dict({"x": OBS, "y": OBS}), spaces.Discrete(2))),
        (spaces.Discrete(2), agent_of(OBS, spaces.Discrete(3))),
        (spaces.Discrete(2), agent_of(OBS, spaces.Discrete(2, start=1))),
        (spaces.Discrete(2), agent_of(OBS, spaces.Box(-1.0, 1.0, (1,)))),
        (spaces.Discrete(2), agent_of(OBS, spaces.Box(-1.0, 1.0, ()))),
        (spaces.Box(-1.0, 1.0, (2,)), agent_of(OBS, spaces.Box(-1.0, 1.0, (3,)))),
        (spaces.Box(-1.0, 1.0, (2,)), agent_of(OBS, spaces.MultiDiscrete([2, 2]))),
        (spaces.MultiDiscrete([2, 2]), agent_of(OBS, spaces.MultiDiscrete([2, 3]))),
    ],
)
def test_an_agent_for_other_spaces_is_refused(make_env, env_actions, agent):
    with pytest.raises(SpaceError, match="build"):
        check_compatible(ppo(TINY), agent, make_env(action_space=env_actions))


def test_an_agent_without_values_is_refused(make_env):
    with pytest.raises(ConfigError, match="ppo needs an agent with `policy_and_value`"):
        check_compatible(ppo(TINY), object(), make_env())


@pytest.mark.fast
def test_a_batch_builder_says_which_replay_buffer_it_draws_from():
    algorithm = ppo(TINY)
    assert algorithm.replay_buffer is None
    with pytest.raises(ConfigError, match="give it replay_buffer = None if it is on-policy"):
        dataclasses.replace(algorithm, batch_builder=object())
