"""`rlkit train --curriculum` as a user types it."""

import json
import os
import signal
import time

import pytest
import yaml
from sessions import RLKIT, session
from tiny_command import TINY

from rlkit.cli.main import main
from rlkit.training import run_config

NAMES = ["ppo", "gymnax/CartPole-v1", *TINY]
QUICK = ["--evaluation-episodes", "2", "--no-debug", "--epochs-per-checkpoint", "1"]
PHASES = """
- {name: short pole, steps: 96, env_params: {length: 0.25}}
- {steps: 128, num_envs: 4, hyperparameters: {learning_rate: 0.001}}
"""


@pytest.fixture
def phases(tmp_path):
    path = tmp_path / "phases.yaml"
    path.write_text(PHASES)
    return str(path)


def said(capsys, *arguments, code=0):
    assert main([str(each) for each in arguments]) == code
    found = capsys.readouterr()
    return found.out if code == 0 else found.err


def test_a_dry_run_prints_the_phases(phases, capsys):
    """They set the length: the preset's total_steps is gone."""
    text = said(capsys, "train", *NAMES, "--curriculum", phases, "--dry-run")
    values = yaml.safe_load(text)
    assert values["curriculum"]["phases"] == yaml.safe_load(PHASES)
    assert values["trainer"]["total_steps"] is None
    config = run_config.from_dict(values)
    assert [phase.name for phase in config.curriculum.phases] == ["short pole", None]
    assert "phases:  # flag" in text
    assert "\n  evaluate_in: phase\n" in text  # the default


def test_total_steps_may_still_be_asked_for(phases, capsys):
    asked = ["--curriculum", phases, "--total-steps", "4k", "--dry-run"]
    values = yaml.safe_load(said(capsys, "train", *NAMES, *asked))
    assert values["trainer"]["total_steps"] == 4000


MISTAKES = [
    ("{a: 1}", "a curriculum needs a list of phases, got {'a': 1}"),
    ("", "phases.yaml is empty; write phases"),
    ("- {steps: 96, length: 1}", "phase 1: Phase has no field 'length'"),
    ("- {env_params: {length: 1.0}}\n- {steps: 96}", "phase 1 of 2 has no steps"),
    ("- {steps: 96}\n- {steps: 96, env_params: {lenght: 1}}", "phase 2 of 2: gymnax/CartPole-v1"),
]


@pytest.mark.parametrize(("text", "wanted"), MISTAKES)
def test_mistakes_are_said_before_anything_compiles(text, wanted, tmp_path, capsys):
    path = tmp_path / "phases.yaml"
    path.write_text(text)
    command = ["train", *NAMES, *QUICK, "--curriculum", path, "--run-dir", tmp_path / "run"]
    assert wanted in said(capsys, *command, code=2)


def test_a_missing_file(tmp_path, capsys):
    path = tmp_path / "no.yaml"
    told = said(capsys, "train", *NAMES, "--curriculum", path, code=2)
    assert told.startswith(f"rlkit: error: cannot read {path}: No such file")
    assert told.count("no.yaml") == 1


def test_a_curriculum_is_no_config(phases, capsys):
    told = said(capsys, "train", *NAMES, "--config", phases, code=2)
    assert f"phases.yaml is a list, as a curriculum is; pass it as --curriculum {phases}" in told


@pytest.mark.full
@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_was_ended_goes_on(number, phases, tmp_path):
    command = [*RLKIT, "train", *NAMES, *QUICK, "--curriculum", phases, "--max-queued", "1"]
    whole = [*command, "--run-dir", "whole"]
    with session(whole, cwd=tmp_path, log=tmp_path / "log") as running:
        assert running.wait(120).code == 0, (tmp_path / "log").read_text()
    with session([*command, "--run-dir", "part"], cwd=tmp_path, log=tmp_path / "log2") as part:
        for _ in range(1200):
            if (tmp_path / "part" / "checkpoints" / "2").exists():
                break
            time.sleep(0.05)
        os.kill(part.process.pid, number)
        part.wait(60)
    resume = [*RLKIT, "resume", "part"]
    with session(resume, cwd=tmp_path, log=tmp_path / "log3") as rest:
        assert rest.wait(120).code == 0, (tmp_path / "log3").read_text()
    digests = [
        json.loads((tmp_path / name / "summary.json").read_text())["params_sha256"]
        for name in ("part", "whole")
    ]
    assert digests[0] == digests[1]


@pytest.mark.full
def test_a_sweep_of_a_run_with_phases(phases, tmp_path, capsys):
    """Its trials are runs of their own, and what would compare unlike training is refused."""
    directory = tmp_path / "sweep"
    command = ["sweep", *NAMES, *QUICK, "--curriculum", phases, "--run-dir", directory]
    command += ["--grid", "gamma=0.9,0.99"]
    (tmp_path / "early.yaml").write_text("- {steps: 96, advance_at: 1}\n- {steps: 96}")
    early = [tmp_path / "early.yaml" if each == phases else each for each in command]
    assert "leave out advance_at" in said(capsys, *early, code=2)
    said(capsys, *command)
    for trial in ("000", "001"):
        run = directory / "trials" / trial
        stored = run_config.from_dict(yaml.safe_load((run / "config.yaml").read_text()))
        assert len(stored.curriculum.phases) == 2
        assert json.loads((run / "status.json").read_text())["status"] == "finished"
