"""What a run needs at least is computed from shapes, and refused with the setting to lower."""

import dataclasses
from types import SimpleNamespace

import jax
import pytest

from rlkit.errors import ConfigError
from rlkit.training.config import make_plan
from rlkit.training.files import memory_size
from rlkit.training.files.memory_size import check_memory


def needs(module, **plan):
    """Bytes of each part, by the first words of its description."""
    steps = module.algorithm.env_steps_per_iteration(module.env)
    settings = SimpleNamespace(
        **{"total_steps": None, "num_checkpoints": 1, "epochs_per_checkpoint": 1} | plan
    )
    found = memory_size._needs(module, make_plan(settings, env_steps_per_iteration=steps))
    return {need.what.split(" take")[0]: need.bytes for need in found}


def nbytes(tree):
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_networks_and_environments_are_what_a_state_holds(tiny, name):
    trainer = tiny.trainer(name)
    state, found = trainer.init(0), needs(trainer.module)
    learner, local = state.learner, state.local
    networks = next(size for what, size in found.items() if what.startswith("networks of"))
    assert networks == nbytes((learner.params, learner.opt_state, learner.target_params)) > 500
    assert found["2 environments"] == nbytes((local.env_state, local.obs)) > 0


def test_the_other_parts_by_hand(tiny):
    """Of a PPO with two environments, 8 steps and the tiny network on Counter."""
    module = tiny.module(eval_env=tiny.env(), evaluation_episodes=50)
    params = jax.eval_shape(module.agent.init, jax.random.key(0))
    columns = sum(x.shape[-1] for x in jax.tree.leaves(params) if x.ndim > 1)
    steps, num = module.algorithm.collector.num_steps, 2
    found = needs(module, epochs_per_checkpoint=1000)
    obs = (
        sum(
            leaf.size * leaf.dtype.itemsize
            for leaf in jax.tree.leaves(
                jax.eval_shape(lambda key: module.env.reset(key)[1], jax.random.key(0))
            )
        )
        // num
    )
    assert found[f"the layers' outputs for {steps * num} samples"] == 4 * steps * num * columns
    rollout = f"a rollout of {num} environments x {steps} steps"
    assert found[rollout] == (2 * obs + 8) * steps * num
    assert found["the metrics of an outer iteration of 1,000 iterations"] == 32_000
    assert found["50 evaluation episodes"] == 800


def check(trainer, available, seeds=1, at_once=None, **plan):
    check_memory(
        trainer.module,
        dataclasses.replace(trainer.plan, **plan),
        num_seeds=seeds,
        seeds_at_once=seeds if at_once is None else at_once,
        replay_bytes=0,
        available=available,
    )


def test_what_fits_passes_and_one_byte_less_does_not(tiny):
    trainer = tiny.trainer()
    total = sum(need.bytes for need in memory_size._needs(trainer.module, trainer.plan))
    check(trainer, total)
    check(trainer, None)  # nobody knows how much there is
    with pytest.raises(ConfigError, match=r"outputs for 16 samples take .*; lower num_envs, num_s"):
        check(trainer, total - 1)


def test_fewer_seeds_are_offered_where_some_fit(tiny):
    trainer = tiny.trainer()
    total = sum(need.bytes for need in memory_size._needs(trainer.module, trainer.plan))
    check(trainer, 3 * total, seeds=3)
    with pytest.raises(ConfigError, match=r"each of 4 seeds; lower num_seeds \(--num-seeds 3\)$"):
        check(trainer, 3 * total, seeds=4)
    check(trainer, 3 * total, seeds=4, at_once=1, epochs_per_checkpoint=1)


def test_long_outer_iterations_are_refused_for_their_metrics(tiny):
    trainer = tiny.trainer()
    with pytest.raises(ConfigError, match=r"1,000,000 iterations take 32 MB; raise num_checkpoint"):
        check(trainer, 10**7, epochs_per_checkpoint=10**6)


def test_a_trainer_refuses_before_anything_is_written(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("rlkit.training.run.device_memory", lambda devices: 1000)
    with pytest.raises(ConfigError, match="of memory, and here are 1 kB: "):
        tiny.trainer(share=False, run_dir=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
