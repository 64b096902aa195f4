"""Runs with parts built in Python: what their config.yaml tells, what a resume compares, and how
their policies are loaded.
"""

import dataclasses

import jax
import numpy as np
import optax
import pytest
import yaml
from flax import nnx
from gymnasium import spaces

from rlkit.agents.actor_critic import actor_critic
from rlkit.agents.configs import ActorCriticConfig
from rlkit.algorithms.configs import PPOConfig
from rlkit.algorithms.ppo import ppo
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.envs.registry import make_env
from rlkit.errors import CheckpointError, RunDirectoryError
from rlkit.training.config import TrainerConfig
from rlkit.training.from_config import reopen
from rlkit.training.policy import load_policy
from rlkit.training.trainer import Trainer

SMALL = PPOConfig(num_steps=8, num_epochs=1, num_minibatches=2)


@dataclasses.dataclass(frozen=True)
class Push:
    """One step: the reward is minus the distance of the action from `target`."""

    target: float = 0.5
    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    max_episode_steps = 1

    def reset(self, key):
        obs = jax.random.uniform(key, (2,))
        return obs, obs

    def step(self, key, state, action):
        return state, state, -abs(action[0] - self.target), True, False, {}


class Torso(nnx.Module):
    def __init__(self, rngs):
        self.layer = nnx.Linear(2, 4, rngs=rngs)

    def __call__(self, obs):
        return nnx.tanh(self.layer(obs))


def trainer(
    run_dir, *, env=None, target=0.5, config=SMALL, torso=Torso, optimizer=None, restore="auto"
):
    env = env or vectorize(Push(target), 2)
    network = ActorCriticConfig(hidden_sizes=(4,), initial_std=5.0)
    agent = actor_critic(env.observation_space, env.action_space, network, torso=torso)
    settings = TrainerConfig(
        num_checkpoints=2,
        epochs_per_checkpoint=1,
        evaluation_episodes=4,
        run_dir=str(run_dir),
        debug=False,
        restore_checkpoint=restore,
    )
    return Trainer(env, None, agent, ppo(config, optimizer=optimizer), settings)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A finished run with its own environment and torso."""
    path = tmp_path_factory.mktemp("own") / "run"
    with trainer(path) as built:
        built.run(3)
        return path, built.state.learner


def test_the_config_tells_what_it_can(own):
    stored = yaml.safe_load((own[0] / "config.yaml").read_text())
    assert stored["custom"] == ["env", "agent.torso", "eval_env"] and stored["seed"] == 3
    assert stored["algorithm"][0] == "ppo" and stored["algorithm"][1]["gamma"] == 0.99
    assert (
        stored["env"]["env"] == {"type": "Push", "target": 0.5}
        and stored["agent"][1]["initial_std"] == 5.0
    )


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"target": 0.25}, r"env\.env\.target: 0\.5 there, 0\.25 here"),
        ({"config": dataclasses.replace(SMALL, gamma=0.1)}, "algorithm"),
        ({"torso": None}, "custom"),
        ({"optimizer": optax.adamw(1e-3)}, "custom"),
    ],
    ids=["environment", "hyperparameter", "torso", "optimizer"],
)
def test_other_settings_do_not_resume(own, change, named):
    before = {path.name: path.read_bytes() for path in own[0].iterdir() if path.is_file()}
    with pytest.raises(RunDirectoryError, match=named):
        trainer(own[0], **change).run(3)
    assert before == {path.name: path.read_bytes() for path in own[0].iterdir() if path.is_file()}


def test_another_seed_does_not_resume(own):
    with pytest.raises(RunDirectoryError, match="seed: 3 there, 4 here"):
        trainer(own[0]).run(4)


def test_policies_of_own_parts_are_loaded_with_them(own):
    path, learner = own
    with pytest.raises(
        CheckpointError,
        match=(
            r"its own env, which config\.yaml cannot rebuild; pass it: load_policy\(run_dir, env="
        ),
    ):
        load_policy(path)
    env = vectorize(Push(), 4)
    with pytest.raises(CheckpointError, match=r"its own agent\.torso.*agent="):
        load_policy(path, env=env)
    network = ActorCriticConfig(hidden_sizes=(4,), initial_std=5.0)
    agent = actor_critic(env.observation_space, env.action_space, network, torso=Torso)
    policy = load_policy(path, "latest", env=env, agent=agent)
    for ours, theirs in zip(
        jax.tree.leaves(policy.state.params), jax.tree.leaves(learner.params), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert policy.evaluate(6)["return"].shape == (6,)


def test_policies_stay_within_the_action_space(own):
    env = vectorize(Push(), 4)
    network = ActorCriticConfig(hidden_sizes=(4,), initial_std=5.0)
    agent = actor_critic(env.observation_space, env.action_space, network, torso=Torso)
    policy = load_policy(own[0], env=env, agent=agent)
    actions = policy(np.zeros((256, 2), np.float32), deterministic=False)
    assert np.abs(actions).max() == 1.0  # with a standard deviation of 5 most samples lie outside
    with pytest.raises(
        ValueError, match=r"takes a batch of observations \(B, 2\), got shape \(2,\); add an axis"
    ):
        policy(np.zeros(2, np.float32))
    with pytest.raises(ValueError, match=r"got shape \(3, 5\); pass what the environment returned"):
        policy(np.zeros((3, 5), np.float32))


def probe_trainer(run_dir, **settings):
    env = make_env("probe/ObservationDependentAction", 2)
    agent = actor_critic(
        env.observation_space, env.action_space, ActorCriticConfig(hidden_sizes=(4,))
    )
    config = TrainerConfig(
        epochs_per_checkpoint=1,
        evaluation_episodes=4,
        max_evaluation_steps=4,
        run_dir=str(run_dir),
        debug=False,
        **settings,
    )
    return Trainer(env, None, agent, ppo(SMALL), config)


@pytest.mark.full
def test_a_run_from_a_key_loads_resumes_and_knows_its_key(tmp_path):
    run = tmp_path / "run"
    with probe_trainer(run, num_checkpoints=1) as first:
        first.run(jax.random.key(7))
    assert yaml.safe_load((run / "config.yaml").read_text())["seed"] is None
    assert load_policy(run).checkpoint_step in (0, 1)
    with pytest.raises(RunDirectoryError, match="started from another key"):
        probe_trainer(run, num_checkpoints=2, restore_checkpoint="auto").run(jax.random.key(8))
    with reopen(run, total_steps=48) as again:
        assert len(again.run()) == 2 and again.env_steps == 48


@pytest.mark.full
def test_a_branch_is_a_run_like_any_other(tmp_path):
    with probe_trainer(tmp_path / "run", num_checkpoints=1) as first:
        first.run(5)
    with probe_trainer(tmp_path / "branch", num_checkpoints=2) as branch:
        branch.load_checkpoint(tmp_path / "run", "latest")
        branch.run()
        assert branch.seed == 5 and branch.outer_iteration == 2
    assert load_policy(tmp_path / "branch", "latest").env_steps == 32
    with reopen(tmp_path / "branch", total_steps=48) as again:
        assert len(again.run()) == 1


@pytest.mark.full
def test_saving_twice_by_hand_says_what_to_do(tmp_path):
    with probe_trainer(tmp_path / "run", num_checkpoints=2) as by_hand:
        by_hand.init(0)
        by_hand.save_checkpoint()
        by_hand.train_step()
        with pytest.raises(
            CheckpointError, match=r"outer iteration 0 is already saved.*save_checkpoint\(path\)"
        ):
            by_hand.save_checkpoint()
        assert by_hand.save_checkpoint(tmp_path / "aside") == 0


@pytest.mark.full
def test_compiling_is_part_of_the_wall_clock(tmp_path):
    with probe_trainer(tmp_path / "run", num_checkpoints=1) as built:
        built.run(0)
        summary = built.summary()
    assert 0 < summary["compile_seconds"] < summary["wall_seconds"]


def test_a_damaged_latest_step_is_passed_over(tmp_path):
    run = tmp_path / "run"
    with probe_trainer(run, num_checkpoints=2) as built:
        built.run(0)
    for path in (run / "checkpoints" / "2" / "record").iterdir():
        if path.is_file():
            path.write_bytes(b"{")
    with pytest.warns(RuntimeWarning, match="step 2 is damaged"):
        assert load_policy(run, "latest").checkpoint_step == 1


def test_an_algorithm_that_was_never_registered_trains(tmp_path):
    """Its name and settings are told, but do not rebuild it; its policy loads all the same."""
    nameless = dataclasses.replace(ppo(SMALL), spec=("mine", SMALL))
    env = make_env("probe/ObservationDependentAction", 2)
    agent = actor_critic(
        env.observation_space, env.action_space, ActorCriticConfig(hidden_sizes=(4,))
    )
    config = TrainerConfig(
        num_checkpoints=1,
        epochs_per_checkpoint=1,
        max_evaluation_steps=4,
        run_dir=str(tmp_path / "run"),
    )
    with Trainer(
        env, None, agent, nameless, dataclasses.replace(config, evaluation_episodes=2, debug=False)
    ) as built:
        built.run(0)
    stored = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (
        stored["custom"] == ["algorithm"]
        and stored["algorithm"][0] == "mine"
        and stored["algorithm"][1]["num_steps"] == 8
    )
    assert load_policy(tmp_path / "run").env_steps == 16
