"""The best policy, of all seeds and of each: which checkpoints stay, and small copies of them."""

import json

import jax
import numpy as np
import pytest

from rlkit.errors import CheckpointError, ConfigError, RunDirectoryError
from rlkit.training.best_model import BestModel
from rlkit.training.callbacks import Callback
from rlkit.training.config import CheckpointerConfig
from rlkit.training.from_config import reopen
from rlkit.training.policy import load_policy

# Mean returns of both seeds after each outer iteration: seed 0 is best in the second, seed 1 in the
# third, and both together in the fourth.
RETURNS = [[1.0, 1.0], [9.0, 0.0], [0.0, 8.0], [6.0, 6.0], [2.0, 2.0], [1.0, 1.0]]


@pytest.fixture
def scripted(monkeypatch):
    """Evaluations return `RETURNS`, 0 before training."""

    def play(self, ts):
        iteration = int(np.max(np.asarray(ts.learner.env_steps.to_float()))) // 32
        row = np.array([[0.0, 0.0], *RETURNS], np.float32)[iteration]
        return {"return": np.repeat(row[:, None], 3, axis=1)}

    from rlkit.training.programs.evaluation import Evaluation

    monkeypatch.setattr(Evaluation, "__call__", play)


def policy_of(trainer, run, **which):
    return load_policy(run, env=trainer.module.env, agent=trainer.module.agent, **which)


@pytest.mark.full
def test_each_seed_keeps_its_own_peak(tiny, tmp_path, scripted):
    run = tmp_path / "run"
    keep = CheckpointerConfig(max_to_keep=1, keep_seed_bests=True)
    settings = {"num_seeds": 2, "run_dir": str(run), "checkpointer_config": keep}
    with tiny.trainer(num_checkpoints=3, **settings) as first:
        first.run(0)
    with tiny.trainer(num_checkpoints=6, restore_checkpoint="auto", **settings) as trainer:
        trainer.run(0)  # scores are known again after a resume
        assert trainer._open().checkpointer.all_steps() == [2, 3, 4, 6]
    found = {seed: policy_of(trainer, run, seed_index=seed).checkpoint_step for seed in (0, 1)}
    assert found == {0: 2, 1: 3}
    chosen = policy_of(trainer, run)
    assert (chosen.seed_index, chosen.checkpoint_step) == (0, 2)  # 9 is the highest of all
    assert policy_of(trainer, run, which="latest", seed_index=1).checkpoint_step == 6
    peaks = json.loads((run / "summary.json").read_text())["eval_return_peak_per_seed"]
    assert peaks == [9.0, 8.0]


@pytest.mark.full
def test_without_it_the_best_of_all_seeds_stays(tiny, tmp_path, scripted):
    run = tmp_path / "run"
    keep = CheckpointerConfig(max_to_keep=1)
    settings = {"num_seeds": 2, "run_dir": str(run), "checkpointer_config": keep}
    with tiny.trainer(num_checkpoints=6, **settings) as trainer:
        trainer.run(0)
        assert trainer._open().checkpointer.all_steps() == [4, 6]
    assert policy_of(trainer, run, seed_index=0).checkpoint_step == 4


@pytest.mark.full
def test_a_copy_of_the_best_policy_is_kept(tiny, tmp_path, scripted):
    copy, steps = tmp_path / "best", []

    class Reader(Callback):
        def on_checkpoint(self, trainer, iteration):
            if copy.exists():
                steps.append(policy_of(trainer, copy, seed_index=0).checkpoint_step)

    settings = {"num_seeds": 2, "run_dir": str(tmp_path / "run")}
    settings["callbacks"] = [BestModel(copy), Reader()]
    with tiny.trainer(num_checkpoints=3, **settings) as trainer:
        trainer.run(0)
    settings["callbacks"] = [BestModel(copy), Reader()]
    with tiny.trainer(num_checkpoints=6, restore_checkpoint="auto", **settings) as trainer:
        trainer.run(0)
    assert steps == [1, 2, 2, 4, 4, 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "run"]
    assert sorted(path.name for path in copy.iterdir()) == [
        "best_of.json",
        "checkpoints",
        "config.yaml",
    ]
    found, wanted = (
        policy_of(trainer, each, seed_index=1).state for each in (copy, tmp_path / "run")
    )
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
    with pytest.raises(RunDirectoryError, match="best already exists; choose another"):
        tiny.trainer(run_dir=str(tmp_path / "b"), callbacks=[BestModel(copy)])


def test_a_run_that_has_only_checkpoints_goes_on_with_its_copy(tiny, tmp_path, scripted):
    settings = {"checkpointer_config": CheckpointerConfig(directory=str(tmp_path / "saved"))}
    for outer in (1, 2):
        settings |= {"num_checkpoints": outer, "callbacks": [BestModel(tmp_path / "best")]}
        with tiny.trainer(restore_checkpoint="auto", **settings) as trainer:
            trainer.run(0)
    assert BestModel(tmp_path / "best").step == 2


def test_a_copy_of_a_run_that_was_in_its_place_is_left_alone(tiny, tmp_path, scripted):
    """The run directory was moved away, and another run begins under its name."""
    settings = {"run_dir": str(tmp_path / "run"), "num_checkpoints": 1}
    with tiny.trainer(**settings, callbacks=[BestModel(tmp_path / "best")]) as trainer:
        trainer.run(0)
    (tmp_path / "run").rename(tmp_path / "old")
    other = tiny.trainer(**settings, callbacks=[BestModel(tmp_path / "best")])
    with other, pytest.raises(RunDirectoryError, match="is the copy of another run, which was in"):
        other.run(1)
    kept, wanted = (policy_of(trainer, tmp_path / name).state for name in ("best", "old"))
    jax.tree.map(np.testing.assert_array_equal, kept, wanted)
    again = tiny.trainer(**settings, callbacks=[BestModel(tmp_path / "mine")])
    with again:
        again.run(1)
    assert BestModel(tmp_path / "mine").step == 1


def test_a_copy_takes_no_directory_of_others(tiny, tmp_path):
    """Neither when the run is resumed nor when it is continued as another."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").touch()
    settings = {"run_dir": str(tmp_path / "run"), "callbacks": [BestModel(tmp_path / "best")]}
    with tiny.trainer(num_checkpoints=2, **settings) as trainer:
        trainer.run(0)
    step = BestModel(tmp_path / "best").step
    assert step is not None
    for name in ("mine", "best"):
        taken = BestModel(tmp_path / name)
        into = {"into": tmp_path / f"to-{name}"} if name == "best" else {"total_steps": 999}
        with pytest.raises(RunDirectoryError, match=f"{name} already exists; choose another"):
            reopen(tmp_path / "run", callbacks=[taken], **into)
    assert not (tmp_path / "to-best").exists()
    assert [path.name for path in mine.iterdir()] == ["thesis.txt"]
    assert BestModel(tmp_path / "best").step == step


def test_a_copy_that_a_kill_left_half_replaced_comes_back(tiny, tmp_path):
    copy, settings = tmp_path / "best", {"run_dir": str(tmp_path / "run")}
    with tiny.trainer(callbacks=[BestModel(copy)], **settings) as trainer:
        trainer.run(0)
    step = BestModel(copy).step
    copy.rename(tmp_path / ".best-old")  # between the two renames
    (tmp_path / ".best-new" / "checkpoints").mkdir(parents=True)  # or while the copy was written
    with tiny.trainer(callbacks=[BestModel(copy)], restore_checkpoint="auto", **settings) as again:
        assert again.run(0) == [] and BestModel(copy).step == step


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"run_dir": "run", "enable_evaluation": False},
        {"run_dir": "run", "checkpointer_config": None},
        {"run_dir": "run", "checkpointer_config": CheckpointerConfig(keep_best=False)},
    ],
)
def test_a_copy_needs_a_best_checkpoint(tiny, tmp_path, monkeypatch, settings):
    monkeypatch.chdir(tmp_path)
    with (
        tiny.trainer(callbacks=[BestModel("best")], **settings) as trainer,
        pytest.raises(ConfigError, match="BestModel needs a run that evaluates, saves"),
    ):
        trainer.run(0)


def test_the_best_checkpoint_is_known_before_and_after_the_run(tiny, tmp_path):
    """Without opening its files."""
    settings = {"run_dir": str(tmp_path / "run")}
    with tiny.trainer(**settings) as trainer:
        assert trainer.best_checkpoint is None and not (tmp_path / "run").exists()
        with pytest.raises(CheckpointError, match="no checkpoints to export from"):
            trainer.export_policy(tmp_path / "copy")
        trainer.run(0)
        best = trainer.best_checkpoint
    assert trainer.best_checkpoint == best is not None
    assert trainer.export_policy(tmp_path / "copy")["step"] == best


def test_who_resumes_decides_on_the_peaks_of_seeds(tiny, tmp_path, scripted):
    """Whatever config.yaml says, which keeps the settings of the start."""
    run = tmp_path / "run"
    settings = {"num_seeds": 2, "run_dir": str(run), "num_checkpoints": 6}
    keep = CheckpointerConfig(max_to_keep=1, keep_seed_bests=True)
    with tiny.trainer(**settings) as trainer:
        trainer.init(0)
    with tiny.trainer(checkpointer=keep, restore_checkpoint="auto", **settings) as trainer:
        trainer.run(0)
    found = {seed: policy_of(trainer, run, seed_index=seed).checkpoint_step for seed in (0, 1)}
    assert found == {0: 2, 1: 3}


def test_a_score_of_ones_own_is_no_seeds_score(tiny, tmp_path, scripted):
    keep = CheckpointerConfig(keep_seed_bests=True)
    settings = {"num_seeds": 2, "run_dir": str(tmp_path / "run"), "num_checkpoints": 2}
    with tiny.trainer(checkpointer_config=keep, checkpoint_every=2, **settings) as trainer:
        trainer.run(0)
        trainer.train_epoch()
        step = trainer.save_checkpoint(evaluation_score=99.0)
        checkpointer = trainer._open().checkpointer
        assert checkpointer.best_step() == step and checkpointer.best_step(0) == 2


def test_a_policy_is_exported_on_request(tiny, tmp_path):
    with tiny.trainer(run_dir=str(tmp_path / "run")) as trainer:
        trainer.run(0)
        found = trainer.export_policy(tmp_path / "copy")
        assert found["step"] == trainer.best_checkpoint
        with pytest.raises(RunDirectoryError, match="copy already exists"):
            trainer.export_policy(tmp_path / "copy")
    copied, kept = (policy_of(trainer, tmp_path / name).state for name in ("copy", "run"))
    jax.tree.map(np.testing.assert_array_equal, copied, kept)
    with tiny.trainer() as trainer:
        trainer.init(0)
        assert trainer.best_checkpoint is None
        with pytest.raises(CheckpointError, match="no checkpoints to export from; set run_dir"):
            trainer.export_policy(tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_directory_that_is_taken_leaves_no_run_behind(tiny, tmp_path):
    (tmp_path / "best").mkdir()
    with pytest.raises(RunDirectoryError, match="best already exists; choose another"):
        tiny.trainer(run_dir=str(tmp_path / "run"), callbacks=[BestModel(tmp_path / "best")])
    assert not (tmp_path / "run").exists()
