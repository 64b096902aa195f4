"""Policies loaded from run directories act as the training evaluated them."""

import jax
import numpy as np
import pytest
from untrained_policies import ACTIONS, OBSERVATIONS, policy_of

from rlkit.agents.configs import ActorCriticConfig
from rlkit.algorithms.configs import PPOConfig
from rlkit.cli.main import main
from rlkit.envs.registry import make_env
from rlkit.errors import CheckpointError, ConfigError, RunDirectoryError
from rlkit.ops.rows import where_rows
from rlkit.ops.running_stats import normalize
from rlkit.training.config import CheckpointerConfig
from rlkit.training.core.evaluator import EVALUATION_SEED
from rlkit.training.files.checkpoint_leaves import tree_digest
from rlkit.training.from_config import build
from rlkit.training.policy import _best_seed, load_policy
from rlkit.training.run_config import EnvConfig, RunConfig


@pytest.fixture(scope="module")
def run(tiny, tmp_path_factory):
    """A finished run of two seeds: its directory, its history, its last state."""
    path = tmp_path_factory.mktemp("policy") / "run"
    settings = {
        "num_seeds": 2,
        "evaluation_episodes": 4,
        "max_evaluation_steps": 4,
        "checkpointer_config": CheckpointerConfig(max_to_keep=9),
    }
    config = RunConfig(
        algorithm="ppo",
        hyperparameters=PPOConfig(
            num_steps=8,
            num_epochs=1,
            num_minibatches=2,
            learning_rate=0.01,
            normalize_observations=True,
        ),
        env=EnvConfig(id="probe/ObservationDependentAction", num_envs=2),
        network=ActorCriticConfig(hidden_sizes=(8,)),
        trainer=tiny.config(run_dir=str(path), **settings),
    )
    with build(config) as trainer:
        history = trainer.run(0)
        return path, history, trainer.state.learner


@pytest.fixture(scope="module")
def policies(run):
    """The policies of both seeds at the last checkpoint."""
    return [load_policy(run[0], "latest", seed_index=index) for index in range(2)]


def test_latest_best_and_steps(run, policies):
    path, history, learner = run
    assert [policy.checkpoint_step for policy in policies] == [3, 3]
    for index, policy in enumerate(policies):
        assert tree_digest(policy.state) == tree_digest(
            jax.tree.map(lambda x, i=index: x[i], learner.policy)
        )
        assert policy.env_steps == 16 + 3 * 32
    zero = load_policy(path, 0, seed_index=0)
    assert zero.checkpoint_step == 0 and zero.env_steps == 16
    assert tree_digest(zero.state.params) != tree_digest(policies[0].state.params)
    best = load_policy(path)
    scores = [row["return"].mean() for row in history]
    assert scores[best.checkpoint_step - 1] == max(scores)
    returns = history[-1]["return"].mean(1)
    assert load_policy(path, "latest").seed_index == returns.argmax()


@pytest.mark.full
def test_of_a_run_without_evaluations_it_is_the_latest(tiny, tmp_path):
    config = RunConfig(
        algorithm="ppo",
        hyperparameters=PPOConfig(num_steps=8, num_epochs=1, num_minibatches=1),
        env=EnvConfig(id="probe/Counter", num_envs=2),
        network=ActorCriticConfig(hidden_sizes=(8,)),
        trainer=tiny.config(run_dir=str(tmp_path / "run"), enable_evaluation=False),
    )
    with build(config) as trainer:
        trainer.run(0)
    assert load_policy(tmp_path / "run").checkpoint_step == 3
    # As the end of `rlkit train` suggests.
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "2"]) == 0
    with pytest.raises(
        CheckpointError, match=r"no step .* has a finite score.*; restore the latest"
    ):
        load_policy(tmp_path / "run", "best")


@pytest.mark.parametrize("index", [0, 1])
def test_evaluation_is_that_of_the_training(run, policies, index):
    _, history, _ = run
    found = policies[index].evaluate(4, seed=EVALUATION_SEED)
    for name in ("return", "length", "sampled_return"):
        np.testing.assert_array_equal(found[name], history[-1][name][index])
    assert policies[index].evaluate(3, seed=5, num_envs=2)["return"].shape == (3,)


def test_acting_on_numpy_observations(policies):
    policy, obs = policies[0], np.array([[-1.0], [1.0], [1.0]], np.float32)
    before = obs.copy()
    action = policy(obs)
    assert type(action) is np.ndarray and action.shape == (3,) and action.dtype.kind == "i"
    np.testing.assert_array_equal(action, policy(obs))  # deterministic
    np.testing.assert_array_equal(obs, before)
    key = jax.random.key(0)
    many = np.ones((64, 1), np.float32)
    sampled = policy(many, deterministic=False, key=key)
    np.testing.assert_array_equal(sampled, policy(many, deterministic=False, key=key))
    assert (
        policy(many, deterministic=False) != policy(many, deterministic=False)
    ).any()  # its own stream moves on


@pytest.mark.parametrize(
    ("obs", "problem"),
    [
        (None, "an observation is an array of numbers here, got None"),
        ({}, "an observation is an array of numbers here, got {}"),
        (np.ones((2, 3), np.float32), r"a batch of observations \(B, 1\), got"),
        (np.float32([[1.0], [np.nan]]), "an observation holds NaN or infinity"),
    ],
)
def test_what_is_no_observation_is_refused(policies, obs, problem):
    with pytest.raises(ConfigError, match=problem):
        policies[0](obs)


def test_errors(run, tmp_path):
    path, _, _ = run
    with pytest.raises(ConfigError, match="key must be a typed key or a seed, got 'x'; pass"):
        load_policy(path)(np.ones((1, 1), np.float32), deterministic=False, key="x")
    with pytest.raises(ConfigError, match=r"seed_index=2, but the run has 2 seeds; choose 0 to 1"):
        load_policy(path, seed_index=2)
    with pytest.raises(CheckpointError, match=r"no step 9; its steps are: 0, 1, 2, 3"):
        load_policy(path, 9)
    with pytest.raises(
        RunDirectoryError, match="does not contain a run; pass the run_dir of a training run"
    ):
        load_policy(tmp_path)
    with pytest.raises(ConfigError, match="episodes must be a positive integer, got 0"):
        load_policy(path).evaluate(episodes=0)


@pytest.mark.full
def test_the_environment_is_anything_that_can_be_made(run, policies):
    """As errors suggest: load_policy(run_dir, env=...)."""
    path, obs = run[0], np.float32([[1.0], [-1.0]])
    wanted = policies[0](obs)
    single = make_env("probe/ObservationDependentAction", 1).env
    for env in ("probe/ObservationDependentAction", type(single), single, lambda: single):
        policy = load_policy(path, "latest", seed_index=0, env=env)
        assert policy.env.num_envs == 2
        np.testing.assert_array_equal(policy(obs), wanted)
        assert policy.evaluate(episodes=3)["return"].shape == (3,)
    np.testing.assert_array_equal(
        policies[0](obs, deterministic=False, key=3),
        policies[0](obs, deterministic=False, key=jax.random.key(3)),
    )


@pytest.mark.fast
def test_the_best_seed_is_finite():
    nan = float("nan")
    assert _best_seed(None) == 0
    assert _best_seed((1.0, 3.0, 2.0)) == 1
    assert _best_seed((nan, -5.0, float("inf"))) == 1
    assert _best_seed((nan, nan)) == 0


def test_a_policy_with_memory_acts_step_by_step():
    """What it carries is what the agent does, and a flag begins it anew."""
    policy = policy_of("actor_critic", OBSERVATIONS["floats"], ACTIONS["box"], memory="gru")
    obs = np.random.default_rng(0).standard_normal((3, 3), np.float32)
    carry, agent = policy.initial_carry(3), policy.agent
    wanted = agent.initial_carry(3)
    normal = normalize(policy.state.obs_stats, obs)
    for restart in (None, [False, False, False], [False, True, False]):
        actions, carry = policy.act(obs, carry, restart=restart)
        if restart is not None:
            wanted = where_rows(np.array(restart), agent.initial_carry(3), wanted)
        best, wanted = agent.exploit(policy.state.params, normal, wanted, jax.random.key(0))
        space = policy.env.action_space
        np.testing.assert_allclose(actions, np.clip(best, space.low, space.high), atol=1e-6)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), carry, wanted)
    again = policy.act(obs, None)[0]
    np.testing.assert_allclose(again, policy.act(obs, policy.initial_carry(3))[0])
    assert np.abs(again - actions).max() > 1e-4


def test_a_policy_with_memory_says_how_to_act():
    policy = policy_of("actor_critic", OBSERVATIONS["floats"], ACTIONS["box"], memory="gru")
    obs = np.zeros((3, 3), np.float32)
    wanted = r"has memory, .* carry = policy.initial_carry\(len\(obs\)\)"
    with pytest.raises(CheckpointError, match=wanted):
        policy(obs)
    with pytest.raises(ConfigError, match=r"the carry of 3 episodes has shapes .*initial_carry"):
        policy.act(obs, policy.initial_carry(2))
    with pytest.raises(ConfigError, match=r"restart has shape \(2,\) for 3 observations"):
        policy.act(obs, None, restart=[True, False])
    with pytest.raises(ConfigError, match="num_envs must be a positive integer"):
        policy.initial_carry(0)
