"""A run directory may be somebody else's: opening it runs, writes and deletes nothing outside it.

Each row crafts a directory from a finished run; whatever rlkit does with it, the files around it
stay as they are.
"""

import dataclasses
import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tiers import by_default
from tiny_runs import edit_records, edit_settings, set_trainer, settings_of

from rlkit.agents.configs import ActorCriticConfig
from rlkit.cli.main import main
from rlkit.errors import CheckpointError, RlkitError, RunDirectoryError
from rlkit.training.config import CheckpointerConfig
from rlkit.training.files.checkpointer import Checkpointer, steps_in
from rlkit.training.files.run_directory import RunDirectory
from rlkit.training.from_config import build, reopen
from rlkit.training.logs.jsonl_logger import JsonlLogger
from rlkit.training.policy import load_policy


@pytest.fixture
def outside(tmp_path):
    """Files of the reader's own, beside the stranger's run: a log, checkpoints, a program."""
    outside = tmp_path / "outside"
    (outside / "checkpoints" / "1").mkdir(parents=True)
    (outside / "checkpoints" / "deleted").mkdir()
    (outside / "checkpoints" / "deleted" / "photo").write_text("mine")
    (outside / "diary.jsonl").write_text('{"kind": "eval"}\nnot a row')
    return outside


def forge_records(run):
    """Makes the records of all checkpoints agree with config.yaml, checksums included."""
    description = yaml.safe_load((run / "config.yaml").read_text())
    edit_records(run, lambda body: body["metadata"].update(description=description))


def foreign_log(run, outside):
    set_trainer(run, logger_config={"jsonl": str(outside / "diary.jsonl"), "console": False})


def forged_foreign_log(run, outside):
    foreign_log(run, outside)
    forge_records(run)


def foreign_log_by_dots(run, outside):
    set_trainer(run, logger_config={"jsonl": f"{run}/../outside/diary.jsonl", "console": False})


def foreign_checkpoints(run, outside):
    set_trainer(run, checkpointer_config={"directory": str(outside / "checkpoints")})


def linked(name):
    def craft(run, outside):
        target = outside / ("checkpoints" if name == "checkpoints" else "diary.jsonl")
        if (run / name).is_dir():
            shutil.rmtree(run / name)
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(target)

    return craft


def linked_step(run, outside):
    shutil.rmtree(run / "checkpoints" / "2")
    (run / "checkpoints" / "2").symlink_to(outside / "checkpoints" / "1")


def linked_wandb(run, outside):
    set_trainer(run, logger_config={"wandb": "offline", "console": False})
    (run / "wandb").symlink_to(outside)


def tagged_yaml(run, outside):
    text = f"!!python/object/apply:os.remove [{outside}/diary.jsonl]\n"
    (run / "config.yaml").write_text(f"trainer: {{}}\nwhatever: {text}")


def other_env(env_id):
    def craft(run, outside):
        (outside / "evil.py").write_text(f"open({str(outside / 'ran')!r}, 'w')\nclass Env: ...\n")
        edit_settings(run, lambda settings: settings["env"].update(id=env_id))
        forge_records(run)

    return craft


CRAFTED = {
    "a log elsewhere": foreign_log,
    "a log elsewhere, with a forged record": forged_foreign_log,
    "a log elsewhere, by ..": foreign_log_by_dots,
    "checkpoints elsewhere": foreign_checkpoints,
    "metrics.jsonl is a link": linked("metrics.jsonl"),
    "wandb_run.json.new is a link": linked("wandb_run.json.new"),
    "checkpoints is a link": linked("checkpoints"),
    "config.yaml is a link": linked("config.yaml"),
    "summary.json is a link": linked("summary.json"),
    "learning_curve.png is a link": linked("learning_curve.png"),
    ".lock is a link": linked(".lock"),
    "a step is a link": linked_step,
    "wandb is a link": linked_wandb,
    "a YAML tag": tagged_yaml,
    "a class": other_env("evil:Env"),
    "a module of gymnasium's": other_env("gymnasium/evil:Env-v0"),
}


@pytest.mark.filterwarnings("ignore:.*is damaged:RuntimeWarning")
@pytest.mark.parametrize(
    "name", by_default(["a log elsewhere", "metrics.jsonl is a link", "a class"], CRAFTED)
)
def test_a_crafted_directory_harms_nothing_outside(
    name, trained, outside, hashes, monkeypatch, tmp_path
):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    CRAFTED[name](run, outside)
    monkeypatch.syspath_prepend(str(outside))
    before = hashes(outside)
    for attempt in (
        lambda: reopen(run, total_steps=64).run(),
        lambda: load_policy(run),
        lambda: build(settings_of(run, restore_checkpoint="auto")).run(0),
    ):
        try:
            attempt()
        except RlkitError as error:
            assert "\n" not in str(error)
    codes = [
        main([*command, str(run)]) for command in (["resume"], ["evaluate", "--episodes", "2"])
    ]
    assert codes[0] == 2, "resume refuses each of them"
    assert hashes(outside) == before and not (outside / "ran").exists()


def test_a_place_that_is_vouched_for_is_used(trained, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    log = tmp_path / "my.jsonl"
    shutil.copyfile(run / "metrics.jsonl", log)
    foreign = {"jsonl": str(log), "console": False}
    set_trainer(run, logger_config=foreign)
    assert main(["resume", str(run), "--total-steps", "48"]) == 2
    assert f"if it is yours, add --outside {log}" in capsys.readouterr().err
    rows = len(log.read_text().splitlines())
    assert main(["resume", str(run), "--total-steps", "48", "--outside", str(log)]) == 0
    assert len(log.read_text().splitlines()) > rows


@pytest.mark.fast
def test_a_directory_of_something_else_takes_no_checkpoints(outside, hashes):
    before = hashes(outside)
    with pytest.raises(CheckpointError, match=r"holds other files \(1, deleted\) and no checkp"):
        Checkpointer(CheckpointerConfig(directory=str(outside / "checkpoints")))
    assert hashes(outside) == before


@pytest.mark.fast
def test_a_lock_of_somebody_elses_makes_no_directory_ours(tmp_path):
    for name in ("deleted", "2023"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "photo").touch()
    (tmp_path / ".lock").touch()
    with pytest.raises(CheckpointError, match=r"holds other files \(2023, deleted\)"):
        Checkpointer(CheckpointerConfig(directory=str(tmp_path)))


@pytest.mark.fast
def test_links_inside_are_fine(tmp_path):
    with RunDirectory(tmp_path / "run") as run:
        run.write_text("config.yaml", "seed: 0\n")
        (run.path / "latest").symlink_to(run.path / "config.yaml")
    RunDirectory.open(tmp_path / "run").close()
    (tmp_path / "run" / "up").symlink_to("..")
    with pytest.raises(RunDirectoryError, match="symbolic link out of the run, to"):
        RunDirectory.open(tmp_path / "run")


# Locks


def test_two_runs_share_no_checkpoints_and_no_log(tmp_path):
    """The second one is refused before it deletes or writes anything."""
    shared, log = tmp_path / "shared", tmp_path / "log.jsonl"
    checkpoints = {"checkpointer_config": {"directory": str(shared)}}
    logs = {"logger_config": {"jsonl": str(log), "console": False}}
    with build(settings_of(tmp_path / "a", **checkpoints, **logs)) as first:
        first.init(0)
        first.save_checkpoint()
        rows = log.read_bytes()
        with pytest.raises(CheckpointError, match="shared is in use by this process"):
            build(settings_of(tmp_path / "b", **checkpoints))
        with pytest.raises(RunDirectoryError, match=r"log\.jsonl is being written by another run"):
            JsonlLogger(log)
        assert steps_in(shared) == [0] and log.read_bytes() == rows
        first.run()
    assert steps_in(shared)[-1] == 2
    rows = log.read_bytes()
    with pytest.raises(
        RunDirectoryError, match=r"log\.jsonl already holds rows of another run; name"
    ):
        build(settings_of(tmp_path / "c", **logs)).run(0)
    assert log.read_bytes() == rows and not (tmp_path / "c").exists()


# Starts that come to nothing


def test_a_failed_start_blocks_no_corrected_one(tmp_path):
    """It leaves a config.yaml, a log and an evaluation; the corrected start takes their place."""
    run = tmp_path / "run"

    def fail(state):
        raise ValueError("a mistake of the reader's own")

    with build(settings_of(run), eval_fn=fail) as trainer, pytest.raises(ValueError, match="own"):
        trainer.run(0)
    assert (run / "config.yaml").exists() and steps_in(run / "checkpoints") == []
    corrected = dataclasses.replace(settings_of(run), network=ActorCriticConfig(hidden_sizes=(16,)))
    with build(corrected) as trainer:
        trainer.run(0)
    assert yaml.safe_load((run / "config.yaml").read_text())["network"]["hidden_sizes"] == [16]
    assert "mistake" not in (run / "metrics.jsonl").read_text()
    assert "mistake" in (run / "metrics.dropped.jsonl").read_text()


def test_what_was_evaluated_after_an_update_is_never_taken_over(trained, tmp_path):
    """Without rows of training: a run may log evaluations alone."""
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(trained / "config.yaml", run)
    rows = (trained / "metrics.jsonl").read_text().splitlines(keepends=True)
    of_evaluations = [row for row in rows if json.loads(row)["kind"] == "eval"]
    first, *later = of_evaluations
    assert json.loads(first)["updates"] == 0 and later
    (run / "metrics.jsonl").write_text("".join(of_evaluations))
    with pytest.raises(RunDirectoryError, match="already holds a run"):
        build(settings_of(run))
    (run / "metrics.jsonl").write_text(first)
    with build(settings_of(run)):
        pass


def test_what_has_begun_is_never_taken_over(trained, tmp_path):
    for kept in ("metrics.jsonl", "summary.json", "checkpoints"):
        run = tmp_path / kept
        shutil.copytree(trained, run)
        for name in {"metrics.jsonl", "summary.json", "checkpoints"} - {kept}:
            path = run / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        with pytest.raises(RunDirectoryError, match="already holds a run"):
            build(settings_of(run))


# Rights


UNDER_UMASK_0 = """
import os, sys
os.umask(0)
sys.path.insert(0, {support!r})
from rlkit.training.from_config import build
from tiny_runs import settings_of
with build(settings_of(sys.argv[1], logger_config={{"console": False, "csv": True}})) as trainer:
    trainer.run(0)
"""


@pytest.mark.full
@pytest.mark.process
def test_others_may_write_nothing_that_a_run_leaves(tmp_path):
    run = tmp_path / "parent" / "run"
    program = UNDER_UMASK_0.format(support=str(Path(__file__).parents[1] / "support"))
    done = subprocess.run(
        [sys.executable, "-c", program, str(run)], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    found = [run.parent, run, *run.rglob("*")]
    assert len(found) > 30
    loose = [path for path in found if stat.S_IMODE(path.stat().st_mode) & 0o022]
    assert loose == []
