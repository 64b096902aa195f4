"""`rlkit sweep` as a user types it."""

import os
import signal
import time

import pytest
import yaml
from sessions import RLKIT, session
from sweep_files import results_of
from tiny_command import TINY

from rlkit.cli.main import main

NAMES = ["sweep", "ppo", "gymnax/CartPole-v1", *TINY]
LENGTH = ["--evaluation-episodes", "2", "--no-debug", "--num-checkpoints"]


def said(capsys, *arguments, code=0):
    assert main([str(each) for each in arguments]) == code
    found = capsys.readouterr()
    return found.out if code == 0 else found.err


@pytest.mark.fast
def test_a_dry_run_lists_the_trials(capsys):
    asked = ["--grid", "gamma=0.9,0.99", "--grid", "learning_rate=1e-3,1e-4", "--total-steps", "64"]
    lines = said(capsys, *NAMES, *asked, "--dry-run").splitlines()
    assert lines == [
        "000  gamma=0.9  learning_rate=0.001",
        "001  gamma=0.9  learning_rate=0.0001",
        "002  gamma=0.99  learning_rate=0.001",
        "003  gamma=0.99  learning_rate=0.0001",
    ]
    once = ["--grid", "gamma=0.9,0.99", "learning_rate=1e-3,1e-4", "--total-steps", "64"]
    assert said(capsys, *NAMES, *once, "--dry-run").splitlines() == lines


MISTAKES = [
    (["--grid", "lr=1e-3,1e-4"], "cannot vary 'lr'"),
    (["--grid", "gamma=0.9,2"], "gamma: .*got 2 (in the trial gamma=2)"),
    (["--grid"], "--grid names nothing; write --grid learning_rate=1e-4,3e-4"),
    ([], "the sweep varies nothing; add --grid"),
    (["--random", "gamma=0.9..0.99"], "so the number of trials must be given; add --trials 4"),
    (["--grid", "num_minibatches=2,5"], "num_minibatches=5 does not divide"),
    (["--grid", "gamma=0.9,0.99", "--halving", "1"], "halving"),
]


@pytest.mark.fast
@pytest.mark.parametrize(("asked", "wanted"), MISTAKES)
def test_mistakes_are_told_in_one_line(asked, wanted, capsys):
    found = said(capsys, *NAMES, "--total-steps", "64", *asked, code=2)
    assert found.startswith("rlkit: error: ") and found.count("\n") == 1
    assert all(part in found for part in wanted.split(".*"))


@pytest.mark.fast
def test_a_file_for_wandb_agents(capsys, tmp_path):
    file = tmp_path / "agents.yaml"
    asked = ["--grid", "gamma=0.9,0.99", "--wandb-sweep", file, "--total-steps", "64"]
    assert f"wandb sweep {file}" in said(capsys, *NAMES, *asked)
    command = yaml.safe_load(file.read_text())["command"]
    assert command[:5] == ["${env}", "rlkit", "train", "ppo", "gymnax/CartPole-v1"]
    assert command[-4:] == ["--total-steps", "64", "--wandb", "${args}"]
    assert not {"--grid", "--wandb-sweep"} & set(command)
    assert main([*command[2:-2], "--gamma=0.95", "--dry-run"]) == 0  # as the agent types it


@pytest.mark.full
@pytest.mark.process
def test_a_sweep_reports_its_trials_and_how_to_go_on(capsys, tmp_path):
    directory = tmp_path / "mine"
    asked = ["--grid", "gamma=0.9,0.99", "--num-seeds", "2", "--run-dir", directory]
    found = said(capsys, *NAMES, *asked, *LENGTH, "2", "--total-steps", "64")
    assert "sweep: 2 trials x 2 seeds: 2 trials in one program" in found
    best = next(line for line in found.splitlines() if line.startswith("best trial")).split()
    assert best[2:4] == ["rlkit", "evaluate"]
    assert "most likely" in said(capsys, "evaluate", best[4], "--episodes", "2")
    assert "already holds a sweep; continue it with `rlkit resume" in said(
        capsys, *NAMES, *asked, *LENGTH, "2", code=2
    )
    assert "0.99" in said(capsys, "resume", directory)
    refused = said(capsys, "resume", directory, "--total-steps", "1M", code=2)
    assert "holds a sweep, which continues with its own settings" in refused
    told = said(capsys, "evaluate", directory, code=2)
    assert f"name one of its trials, such as {directory}/trials/000, or all" in told
    again = ["train", "--config", directory / "best.yaml", "--run-dir", tmp_path / "again"]
    assert "final evaluation" in said(capsys, *again)


@pytest.mark.full
@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_sweep_that_was_ended_goes_on(number, tmp_path):
    asked = ["--grid", "gamma=0.9,0.95,0.99", "hidden_sizes=[8],[4]", *LENGTH, "6"]
    command = [*RLKIT, *NAMES, *asked, "--total-steps", "3840"]
    with session([*command, "--run-dir", "whole"], cwd=tmp_path, log=tmp_path / "log") as whole:
        assert whole.wait(120).code == 0
    with session([*command, "--run-dir", "part"], cwd=tmp_path, log=tmp_path / "log2") as part:
        checkpoint = tmp_path / "part" / "together" / "rung-0-group-0" / "checkpoints" / "1"
        for _ in range(1200):
            if checkpoint.exists():
                break
            time.sleep(0.05)
        os.kill(part.process.pid, number)
        assert part.wait(60).code in (128 + number, -number)
    if number == signal.SIGTERM:
        assert "stopped by SIGTERM; everything is saved" in (tmp_path / "log2").read_text()
    assert not (tmp_path / "part" / "best.yaml").exists()
    resume = [*RLKIT, "resume", "part"]
    with session(resume, cwd=tmp_path, log=tmp_path / "log3") as rest:
        assert rest.wait(120).code == 0, (tmp_path / "log3").read_text()
    assert results_of(tmp_path / "part") == results_of(tmp_path / "whole")
