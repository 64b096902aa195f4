"""Paths that begin with `~`."""

import pytest
from tiny_runs import settings_of

import rlkit
from rlkit.errors import RunDirectoryError
from rlkit.training.files.checkpoint_leaves import tree_digest
from rlkit.training.from_config import build, reopen


def test_a_tilde_in_a_path_is_the_home_directory_wherever_it_is_read(tmp_path, monkeypatch):
    """What was written to `~/runs/mine` is found there by everything that reads it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    place = "~/runs/mine"
    with build(settings_of(place)) as trainer:
        trainer.run(0)
        digest = tree_digest(trainer.state)
    assert (tmp_path / "runs" / "mine" / "config.yaml").is_file()
    assert trainer.best_checkpoint is not None  # after it has closed its files
    assert rlkit.load_policy(place).env_steps > 0
    with reopen(place) as again:
        assert tree_digest(again.state) == digest
    with build(settings_of("~/runs/other")) as other:
        other.load_checkpoint(place)
        assert tree_digest(other.state) == digest
    with build(settings_of(place, restore_checkpoint="auto", num_checkpoints=4)) as longer:
        longer.run(0)
        assert longer.outer_iteration == 4
    with pytest.raises(RunDirectoryError, match=r"did you mean .*/runs/mine"):
        rlkit.load_policy("~/runs/mone")
    assert not (tmp_path / "~").exists()
