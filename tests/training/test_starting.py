"""Runs that start from a ready state, or from the parameters of a policy."""

import dataclasses
import operator

import jax
import numpy as np
import pytest
from tiers import in_full

from rlkit.agents.actor_critic import actor_critic
from rlkit.agents.configs import ActorCriticConfig
from rlkit.errors import ConfigError, RunDirectoryError
from rlkit.training.files.checkpoint_leaves import tree_digest
from rlkit.training.policy import load_policy


def assert_equal(found, wanted):
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


@pytest.mark.parametrize(("name", "num_seeds"), [("ppo", 1), ("dqn", 2), in_full(("ppo", 2))])
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


@pytest.mark.parametrize(("name", "num_seeds"), [("ppo", 1), ("dqn", 2), in_full(("ppo", 2))])
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
