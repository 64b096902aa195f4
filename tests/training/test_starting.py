"""Runs that start from a ready state, or from the parameters of a policy."""

import dataclasses
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bad_inputs import Jittable
from tiers import in_full

from rlkit.agents.actor_critic import actor_critic
from rlkit.agents.configs import ActorCriticConfig
from rlkit.algorithms.configs import PPOConfig
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.errors import (
    CheckpointError,
    ConfigError,
    EnvContractError,
    RlkitError,
    RunDirectoryError,
)
from rlkit.training.config import CheckpointerConfig, TrainerConfig
from rlkit.training.files.checkpoint_leaves import tree_digest
from rlkit.training.from_config import check_parts, reopen
from rlkit.training.logs.records import read_records
from rlkit.training.policy import load_policy
from rlkit.training.run_config import EnvConfig, RunConfig


def assert_equal(found, wanted):
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


@dataclasses.dataclass(frozen=True)
class Unscaled(Jittable):
    """Observations from 0 to 255 in a Box from -1 to 1."""

    def reset(self, key):
        return jnp.int32(0), jnp.array([0.0, 255.0])


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_first_observations_far_outside_their_space_are_refused(tiny, num_seeds):
    env = vectorize(Unscaled(), 2 * num_seeds)
    with tiny.trainer(env=env, num_seeds=num_seeds) as trainer:
        said = r"the first observation \[  0. 255.\] is far outside its space"
        with pytest.raises(EnvContractError, match=said):
            trainer.run(0)
        assert trainer.outer_iteration == 0


@pytest.mark.parametrize(
    ("name", "num_seeds"), [("ppo", 1), in_full(("dqn", 2)), in_full(("ppo", 2))]
)
def test_a_ready_state_goes_on_as_if_never_moved(tiny, name, num_seeds):
    settings = {"hyper": {"learning_rate_schedule": "constant"}, "num_seeds": num_seeds}
    with tiny.trainer(name, num_checkpoints=4, **settings) as whole:
        whole.run(0)
    with tiny.trainer(name, num_checkpoints=2, **settings) as first:
        first.run(0)
        kept = tree_digest(first.state)
    with tiny.trainer(name, num_checkpoints=2, **settings) as second:
        history = second.run(train_state=first.state)
    assert tree_digest(first.state) == kept  # the run trained a copy
    assert len(history) == 2 and second.env_steps == whole.env_steps
    assert history[-1]["updates"] == whole.history.evaluations[-1]["updates"]
    if name == "ppo":  # DQN explored less in the first part than in that of the longer run
        assert tree_digest(second.state) == tree_digest(whole.state)


def test_a_state_that_does_not_fit_is_refused(tiny):
    with tiny.trainer(num_seeds=2) as other:
        other.init(0)
    with tiny.trainer() as trainer, pytest.raises(ConfigError, match="train_state does not fit: "):
        trainer.run(train_state=other.state)


@pytest.mark.parametrize(
    ("name", "num_seeds"), [in_full(("ppo", 1)), ("dqn", 2), in_full(("ppo", 2))]
)
@pytest.mark.full
def test_a_warm_start_takes_the_parameters_alone(tiny, tmp_path, name, num_seeds):
    hyper, run = {"normalize_observations": True}, str(tmp_path / "run")
    with tiny.trainer(name, hyper=hyper, run_dir=run) as first:
        first.run(3)
    settings = {"hyper": hyper, "num_seeds": num_seeds}
    with tiny.trainer(name, warm_start=run, **settings) as second:
        learner = second.init(0).learner
        assert second.env_steps == second.plan.prefill_steps
        policy = load_policy(run, env=second.module.env, agent=second.module.agent)
        seeds = [learner]
        if num_seeds > 1:
            seeds = [jax.tree.map(operator.itemgetter(i), learner) for i in range(num_seeds)]
        for each in seeds:
            assert_equal(each.params, policy.state.params)
            assert_equal(each.obs_stats, policy.state.obs_stats)
            if jax.tree.leaves(each.target_params):
                wanted = second.module.algorithm.updater.init(each.params)[1]
                assert_equal(each.target_params, wanted)
        kept = tree_digest(policy.state)
        second.run()
        assert tree_digest(policy.state) == kept  # the run trained a copy
    with tiny.trainer(name, **settings) as fresh:
        fresh.run(0, warm_start=policy)
    assert tree_digest(fresh.state) == tree_digest(second.state)


@pytest.mark.full
def test_a_resumed_run_is_not_started_again(tiny, tmp_path):
    """Not even if the policy is gone by then."""
    source, run = tmp_path / "source", str(tmp_path / "run")
    with tiny.trainer(run_dir=str(source)) as first:
        first.run(3)
    settings = {"run_dir": run, "warm_start": str(source)}
    with tiny.trainer(**settings) as second:
        second.run(0)
        wanted = tree_digest(second.state)
    source.rename(tmp_path / "gone")
    with tiny.trainer(**settings, restore_checkpoint="auto") as again:
        assert again.run(0) == [] and tree_digest(again.state) == wanted
    with tiny.trainer(warm_start=str(source)) as lost, pytest.raises(RunDirectoryError):
        lost.run(0)


def test_a_policy_is_found_from_another_directory(tiny, tmp_path, monkeypatch):
    """The process may leave before it trains, as for other paths in the settings."""
    with tiny.trainer(run_dir=str(tmp_path / "a"), num_checkpoints=1) as first:
        first.run(3)
    monkeypatch.chdir(tmp_path)
    with tiny.trainer(run_dir="b", warm_start="a") as second:
        monkeypatch.chdir("/")
        second.init(0)
    assert "warm_start: a\n" in (tmp_path / "b" / "config.yaml").read_text()


@pytest.mark.full
def test_a_policy_that_does_not_fit_is_refused(tiny, tmp_path):
    with tiny.trainer(run_dir=str(tmp_path / "run")) as first:
        first.run(3)
        env, agent = first.module.env, first.module.agent
    policy = load_policy(tmp_path / "run", env=env, agent=agent)
    normalizing = tiny.trainer(hyper={"normalize_observations": True})
    with normalizing, pytest.raises(ConfigError, match="trained with normalize_observations=False"):
        normalizing.run(0, warm_start=policy)
    wide = ActorCriticConfig(hidden_sizes=(16,))
    wider = actor_critic(env.observation_space, env.action_space, wide)
    params = wider.init(jax.random.key(0))
    other = dataclasses.replace(policy, state=policy.state.replace(params=params))
    with tiny.trainer() as trainer, pytest.raises(ConfigError, match="the policy does not fit: "):
        trainer.run(0, warm_start=other)


@pytest.mark.parametrize(
    ("start", "match"),
    [
        ({"train_state": {"a": 1}}, "must be a TrainState, got dict"),
        (
            {"train_state": 1, "warm_start": "runs/a"},
            "both set where training starts; pass only one",
        ),
        ({"warm_start": 3}, "must be a policy or a run directory, got 3"),
        ({"warm_start": "no/such"}, "no/such"),
    ],
)
def test_bad_starts_leave_nothing_behind(tiny, tmp_path, start, match):
    with tiny.trainer(run_dir=str(tmp_path / "run")) as trainer:
        with pytest.raises(RlkitError, match=match):
            trainer.run(0, **start)
        assert not (tmp_path / "run").exists()
        if "train_state" not in start:
            with pytest.raises(ConfigError, match="a key or seed is still needed; pass one"):
                trainer.run(warm_start=start["warm_start"])


@pytest.mark.full
def test_another_runs_policy_is_refused_by_name(tiny, tmp_path):
    """Before there is a directory, and saying whose policy it is."""
    with tiny.trainer(env="gymnax/CartPole-v1", run_dir=str(tmp_path / "a")) as first:
        first.run(0)
    with tiny.trainer(warm_start=str(tmp_path / "a"), run_dir=str(tmp_path / "b")) as other:
        match = (
            r"start from the policy in .*a \(ppo on gymnax/CartPole-v1, hidden_sizes \[8\]\), whose"
        )
        with pytest.raises(CheckpointError, match=match):
            other.open(seed=0)
    assert not (tmp_path / "b").exists()
    trainer = TrainerConfig(total_steps=20_000, warm_start=str(tmp_path / "a"))
    dry = RunConfig(algorithm="dqn", env=EnvConfig(id="gymnax/CartPole-v1"), trainer=trainer)
    with pytest.raises(CheckpointError, match=match):
        check_parts(dry)
    same = {"algorithm": "ppo", "agent": None, "network": ActorCriticConfig(hidden_sizes=(8,))}
    check_parts(dataclasses.replace(dry, hyperparameters=PPOConfig(), **same))
    normalizing = PPOConfig(normalize_observations=True)
    with pytest.raises(ConfigError, match="trained with normalize_observations=False"):
        check_parts(dataclasses.replace(dry, hyperparameters=normalizing, **same))


@pytest.mark.full
def test_a_ready_state_without_its_replay_memory_fills_one(tiny, tmp_path):
    """As a checkpoint that left it out would, whose state this may be."""
    few = CheckpointerConfig(save_replay=False)
    with tiny.trainer("dqn", run_dir=str(tmp_path / "run"), checkpointer_config=few) as first:
        first.run(0)
    with tiny.trainer("dqn") as reader:
        state = reader.load_checkpoint(tmp_path / "run")
    with tiny.trainer("dqn", run_dir=str(tmp_path / "again")) as again:
        assert len(again.run(0, train_state=state)) == again.plan.num_checkpoints


@pytest.mark.full
@pytest.mark.parametrize("kind", ["train_state", "warm_start"])
def test_a_start_that_no_setting_names_survives_a_kill(tiny, tmp_path, kind):
    """The first checkpoint has it, and the log says it. The evaluation before training follows
    after the restart.
    """
    with tiny.trainer(run_dir=str(tmp_path / "source")) as source:
        source.run(5)
    start = {"train_state": source.state, "warm_start": tmp_path / "source"}[kind]
    with tiny.trainer(run_dir=str(tmp_path / "run")) as killed:
        killed.init(0, **{kind: start})  # nothing more
    with reopen(tmp_path / "run") as resumed:
        resumed.run()
    with tiny.trainer(run_dir=str(tmp_path / "whole")) as whole:
        whole.run(0, **{kind: start})
    assert tree_digest(resumed.state) == tree_digest(whole.state)
    rows = [
        [
            (row.kind, row.env_steps)
            for row in read_records(tmp_path / run / "metrics.jsonl")
            if row.kind in ("eval", "train")
        ]
        for run in ("run", "whole")
    ]
    assert rows[0] == rows[1]
    told = [row.text or "" for row in read_records(tmp_path / "run" / "metrics.jsonl")]
    said = {
        "train_state": "started from a train state that was passed in, at 96 steps",
        "warm_start": f"started from the parameters of a policy ({tmp_path / 'source'}, checkpoint",
    }
    assert any(text.startswith(said[kind]) for text in told)


def test_a_wrong_source_leaves_nothing_where_a_run_may_be_resumed(tiny, tmp_path):
    run = {"run_dir": str(tmp_path / "run"), "restore_checkpoint": "auto"}
    with tiny.trainer(warm_start="nope", **run) as wrong:
        for call in (wrong.open, lambda: wrong.run(0)):
            with pytest.raises(RunDirectoryError, match="nope does not contain a run"):
                call()
    assert not (tmp_path / "run").exists()
