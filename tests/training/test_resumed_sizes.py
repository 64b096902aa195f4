"""A run goes on with iterations, or a prefill, of another size: it ends where it was asked to."""

import dataclasses

import pytest
from stopping import StopAt
from tiny_runs import settings_of

from rlkit.errors import CheckpointError, ConfigError
from rlkit.training import run_config
from rlkit.training.curriculum import Curriculum, Phase
from rlkit.training.from_config import build, reopen

# Two environments of 8 steps: 16 steps an iteration, 32 an outer iteration.
LENGTH = {"total_steps": 128, "num_checkpoints": None, "epochs_per_checkpoint": 2, "max_queued": 1}
DQN = {
    "algorithm": "dqn",
    "env": {"id": "probe/Counter", "num_envs": 2},
    "hyperparameters": {"num_steps": 8, "capacity": 256, "batch_size": 8, "prefill_steps": 16},
    "network": {"hidden_sizes": [8]},
}


def with_hyper(config, **changes):
    hyperparameters = dataclasses.replace(config.hyperparameters, **changes)
    return dataclasses.replace(config, hyperparameters=hyperparameters)


def stopped(config, iteration):
    with build(config, callbacks=[StopAt(iteration)]) as trainer:
        trainer.run(0)
        assert trainer.outer_iteration == iteration and not trainer._run.is_complete


def resumed(config, **changes):
    settings = dataclasses.replace(config.trainer, restore_checkpoint="auto")
    changed = with_hyper(dataclasses.replace(config, trainer=settings), **changes)
    return build(changed, accept_differences=True)


def assert_ends_at(trainer, steps):
    """By the progress, the plan, the learner's own count, and where schedules end."""
    learner = trainer.state.learner
    assert trainer.env_steps == trainer.plan.total_steps == learner.env_steps.to_int() == steps
    assert float(learner.total_steps) == steps and trainer.summary()["env_steps"] == steps


@pytest.mark.parametrize(
    ("num_steps", "end"),
    [(4, 128), pytest.param(32, 160, marks=pytest.mark.full)],  # 32 + 6 x 16, 32 + 128
)
def test_rollouts_of_another_length(tmp_path, num_steps, end):
    config = settings_of(tmp_path / "run", **LENGTH)
    stopped(config, 1)
    with resumed(config, num_steps=num_steps) as trainer:
        trainer.run(0)
        assert_ends_at(trainer, end)
    with reopen(tmp_path / "run") as again:  # it is finished, by its config.yaml too
        assert again.run() == [] and again.plan == trainer.plan


@pytest.mark.full
def test_rollouts_that_change_again_and_again(tmp_path):
    config = settings_of(tmp_path / "run", **LENGTH)
    stopped(config, 1)
    for num_steps, after in ((4, 64), (4, 96), (16, 160)):
        with resumed(config, num_steps=num_steps) as trainer:
            trainer.init(0)
            trainer._callbacks.append(StopAt(trainer.outer_iteration + 2))
            trainer.run()
            assert trainer.env_steps == trainer.state.learner.env_steps.to_int() == after
    assert_ends_at(trainer, 160)
    with reopen(tmp_path / "run", total_steps=300) as longer:
        longer.run()
        assert_ends_at(longer, 160 + 3 * 64)


@pytest.mark.full
def test_a_run_that_has_not_trained_yet(tmp_path):
    """What was rounded up by another size is not asked for again: 100 were asked for."""
    config = settings_of(tmp_path / "run", **LENGTH | {"total_steps": 100})
    with build(config) as trainer:
        trainer.request_stop("at once")
        trainer.run(0)
        assert trainer.plan.total_steps == 128 and trainer.outer_iteration == 0
    with resumed(config, num_steps=4) as trainer:
        trainer.run(0)
        assert_ends_at(trainer, 112)


def test_shorter_runs_are_refused_in_the_words_of_the_settings(tmp_path):
    config = settings_of(tmp_path / "run", **LENGTH)
    stopped(config, 1)
    shorter = dataclasses.replace(config.trainer, total_steps=64)
    by_number = dataclasses.replace(config.trainer, total_steps=None, num_checkpoints=3)
    told = {
        "total_steps=64 is less than the 128 of the run": (shorter, 4),
        "=3 is less than the 4 outer iterations of the run": (by_number, 64),
    }
    for match, (settings, num_steps) in told.items():
        changed = resumed(dataclasses.replace(config, trainer=settings), num_steps=num_steps)
        with changed as trainer, pytest.raises(ConfigError, match=match):
            trainer.init(0)


@pytest.mark.full
def test_outer_iterations_counted_from_a_checkpoint(tmp_path):
    config = settings_of(tmp_path / "run", **LENGTH)
    with build(config) as trainer:
        trainer.run(0)
    more = {"total_steps": None, "num_checkpoints": 3, "restore_checkpoint": "latest"}
    trainer = dataclasses.replace(config.trainer, **more)
    longer = with_hyper(dataclasses.replace(config, trainer=trainer), num_steps=4)
    with build(longer, accept_differences=True) as trainer:
        assert len(trainer.run(0)) == 3
        assert_ends_at(trainer, 128 + 3 * 16)


@pytest.mark.full
def test_outer_iterations_that_were_asked_for_by_number(tmp_path):
    length = LENGTH | {"total_steps": None, "num_checkpoints": 4}
    config = settings_of(tmp_path / "run", **length)
    stopped(config, 1)
    with resumed(config, num_steps=4) as trainer:
        assert len(trainer.run(0)) == 3
        assert_ends_at(trainer, 32 + 3 * 16)


@pytest.mark.full
@pytest.mark.parametrize(("prefill", "end"), [(48, 144), (0, 144)])
def test_another_prefill_is_over_and_done_with(tmp_path, prefill, end):
    trainer = settings_of(tmp_path / "run", **LENGTH).trainer
    config = dataclasses.replace(run_config.from_dict(DQN), trainer=trainer)
    stopped(config, 1)  # after 16 + 32 steps
    with resumed(config, prefill_steps=prefill) as trainer:
        trainer.run(0)
        assert_ends_at(trainer, end)  # the first multiple of 32 above 128 that is 16 more


@pytest.mark.full
@pytest.mark.parametrize(("num_steps", "end"), [(16, 256), (4, 256)])
def test_another_run_goes_on_from_a_checkpoint(tmp_path, num_steps, end):
    config = settings_of(tmp_path / "run", **LENGTH)
    with build(config) as trainer:
        trainer.run(0)
    other = settings_of(tmp_path / "other", **LENGTH | {"total_steps": 256})
    with build(with_hyper(other, num_steps=num_steps)) as trainer:
        trainer.load_checkpoint(tmp_path / "run")
        trainer.run()
        assert_ends_at(trainer, end)


@pytest.mark.full
def test_phases_keep_the_size_of_their_iterations(tmp_path):
    phases = (Phase(steps=64), Phase(steps=64, hyperparameters={"entropy_coef": 0.1}))
    length = LENGTH | {"total_steps": None}
    config = settings_of(tmp_path / "run", **length)
    config = dataclasses.replace(config, curriculum=Curriculum(phases=phases))
    stopped(config, 1)
    with pytest.raises(
        CheckpointError, match=r"took 16, 16 environment steps, here they take 8, 8; use the same"
    ):
        resumed(config, num_steps=4).init(0)
