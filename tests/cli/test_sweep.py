"""`rlkit sweep` as a user types it."""

import os
import signal
import sys
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
    search = ["--grid", "gamma=0.9,0.99", "--search", "optuna", "--trials", "8"]
    told = said(capsys, *NAMES, *search, "--total-steps", "64", "--dry-run")
    assert told == "Optuna chooses the settings of the 8 trials as results come in\n"


@pytest.mark.fast
def test_a_dry_run_refuses_what_would_not_train(capsys):
    asked = ["--grid", "gamma=0.9,0.99", "--total-steps", "1e6", "--dry-run"]
    told = said(capsys, "sweep", "dqn", "gymnax/Pendulum-v1", *asked, code=2)
    assert "a Q-network needs Discrete actions, got Box" in told
    both = ["--devices", "2", "--shard", "both"]
    told = said(capsys, *NAMES, *asked, *both, code=2)
    assert 'shard="both" divides a program of several trials otherwise' in told


@pytest.mark.fast
def test_a_dry_run_knows_that_devices_share_the_seeds_of_all_trials(capsys):
    """In a run of its own, a trial of one seed could not be divided among two."""
    asked = ["--grid", "gamma=0.9,0.99", "--total-steps", "64", "--devices", "2"]
    seeds = ["--shard", "seeds", "--dry-run"]
    assert said(capsys, *NAMES, *asked, *seeds).count("gamma=") == 2
    agents = ["--wandb-sweep", "agents.yaml"]  # which train each trial in a run of its own
    assert "1 seed cannot be divided" in said(capsys, *NAMES, *asked, *seeds, *agents, code=2)


@pytest.mark.fast
def test_a_range_is_of_the_kind_of_its_setting(capsys):
    """From 0 to 1, a discount has fractions, and a number of epochs has none."""
    asked = ["--random", "gae_lambda=0..1", "num_epochs=1..2", "--trials", "8", "--dry-run"]
    found = said(capsys, *NAMES, *asked, "--total-steps", "64").split()
    drawn = [float(text.removeprefix("gae_lambda=")) for text in found if "lambda" in text]
    assert len(set(drawn)) == 8
    assert {text for text in found if "epochs" in text} == {"num_epochs=1", "num_epochs=2"}


GRID = ["--grid", "gamma=0.9,0.99"]
POPULATION = ["--random", "gamma=0.9..0.99", "--trials", "4", "--exploit-every", "2"]
MISTAKES = [
    (["--grid", "lr=1e-3,1e-4"], "cannot vary 'lr'; did you mean 'learning_rate'"),
    (["--grid", "seed=0,1"], "cannot vary 'seed'; each trial trains as many seeds as --num-seeds"),
    (["--grid", "total_steps=8,9"], "'total_steps'; it is a setting of all runs: --total-steps"),
    (["--grid", "env_arguments=1,2"], "'env_arguments'; it is one for all trials: start a sweep"),
    (["--grid", "hidden_sizes=64,128"], "hidden_sizes is a list, got 64; write .*=[64],[...]"),
    ([*GRID, "--restore-checkpoint", "best"], "each trial of a sweep begins anew; leave it out"),
    ([*GRID, "--enable-evaluation", "False", "--dry-run"], "a sweep ranks trials by evaluations"),
    ([*POPULATION, "--num-seeds", "2", "--dry-run"], "2 seeds would be a population of its own"),
    ([*POPULATION, "--eval-every", "3", "--dry-run"], "use --exploit-every 3"),
    ([*GRID, "--search", "optuna", "--dry-run"], "Optuna needs the number of trials"),
    (["--grid", "gamma=0.9,2"], "gamma: .*got 2 (in the trial gamma=2)"),
    (["--grid"], "--grid names nothing; write --grid learning_rate=1e-4,3e-4"),
    ([], "the sweep varies nothing; add --grid"),
    (["--random", "gamma=0.9..0.99"], "so the number of trials must be given; add --trials 4"),
    (["--grid", "num_minibatches=2,5"], "num_minibatches=5 does not divide"),
    (["--grid", "gamma=0.9,0.99", "--halving", "1"], "halving"),
    (["--grid", "gamma=0.9,0.99", "--group-size", "0"], "group_size"),
    ([*GRID, "--address", "auto"], "--address has no effect with --launcher local; leave it out"),
    ([*GRID, "--sbatch", "gpus=1", "--launcher", "ray"], "--sbatch has no effect with --launcher"),
    ([*GRID, "--tries", "2", "--launcher", "slurm"], "or use --launcher ray"),
    ([*GRID, "--sbatch"], "--sbatch names nothing; write --sbatch partition=gpu"),
    ([*GRID, "--launcher", "kubernetes"], "kubernetes"),
]


@pytest.mark.fast
@pytest.mark.parametrize(("asked", "wanted"), MISTAKES)
def test_mistakes_are_told_in_one_line(asked, wanted, capsys):
    found = said(capsys, *NAMES, "--total-steps", "64", *asked, code=2)
    assert found.startswith("rlkit: error: ") and found.count("\n") == 1
    assert all(part in found for part in wanted.split(".*"))


@pytest.mark.fast
def test_where_a_sweep_is_trained_is_no_setting_of_it(capsys, tmp_path):
    file = tmp_path / "agents.yaml"
    asked = [*GRID, "--launcher", "slurm", "--sbatch", "gpus=1", "--sbatch", "time=1:00"]
    asked += ["--wandb-sweep", file, "--total-steps", "64"]
    told = said(capsys, *NAMES, *asked, code=2)
    assert "you start the agents; leave out --launcher and its flags" in told and not file.exists()


UNKNOWN_TO_AGENTS = [
    (["--rank", "area"], "--rank has no effect with --wandb-sweep: the agents choose the trials"),
    (["--halving", "2", "--num-checkpoints", "2"], "--halving has no effect with --wandb-sweep"),
    (["--search_seed", "3"], "--search-seed has no effect with --wandb-sweep"),
    (["--run_dir", "all"], "each run of an agent has a directory of its own; leave out --run-dir"),
]


@pytest.mark.fast
@pytest.mark.parametrize(("asked", "wanted"), UNKNOWN_TO_AGENTS)
def test_what_wandb_agents_do_not_know_is_refused(asked, wanted, capsys, tmp_path):
    file = tmp_path / "agents.yaml"
    sweep = [*GRID, "--wandb_sweep", file, "--total-steps", "64"]
    assert wanted in said(capsys, *NAMES, *sweep, *asked, code=2) and not file.exists()
    assert wanted in said(capsys, *NAMES, *sweep, *asked, "--dry-run", code=2)
    said(capsys, *NAMES, *sweep)
    assert not {"--wandb_sweep", str(file)} & set(yaml.safe_load(file.read_text())["command"])


@pytest.mark.fast
def test_a_group_is_that_of_a_trial_of_a_sweep(capsys, tmp_path):
    missing = said(capsys, "sweep-group", tmp_path, "0", code=2)
    assert f"{tmp_path} holds no sweep; name a directory with a sweep.yaml" in missing
    (tmp_path / "sweep.yaml").touch()
    for asked in ([], ["0", "--plan"]):
        assert "use `rlkit sweep-group" in said(capsys, "sweep-group", tmp_path, *asked, code=2)


@pytest.mark.fast
def test_a_run_has_no_groups(capsys, tmp_path):
    (tmp_path / "config.yaml").write_text("algorithm: ppo\n")
    told = said(capsys, "resume", tmp_path, "--launcher", "ray", code=2)
    assert "holds no sweep, and a run has no groups for a launcher; leave out its flags" in told


@pytest.mark.fast
def test_a_file_for_wandb_agents(capsys, tmp_path):
    file = tmp_path / "agents.yaml"
    asked = ["--grid", "gamma=0.9,0.99", "--wandb-sweep", file, "--total-steps", "64"]
    assert "000  gamma=0.9" in said(capsys, *NAMES, *asked, "--dry-run") and not file.exists()
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


@pytest.mark.full
@pytest.mark.process
def test_the_process_of_a_group_ends_with_the_one_that_started_it(tmp_path):
    """Which leaves it no message if it is killed."""
    asked = [*GRID, "--total-steps", "640000", *LENGTH, "1000", "--launcher", "slurm"]
    command = [*RLKIT, *NAMES, *asked, "--run-dir", "mine"]
    with session(command, cwd=tmp_path, log=tmp_path / "log") as one:
        assert one.wait(60).code == 0
    command = [*RLKIT, "sweep-group", "mine", "0", "--with-parent"]
    starts = f"subprocess.Popen({command}, stdin=subprocess.PIPE); time.sleep(600)"
    starts = f"import subprocess, time; {starts}"
    with session([sys.executable, "-c", starts], cwd=tmp_path, log=tmp_path / "log2") as parent:
        checkpoints = tmp_path / "mine" / "together" / "rung-0-group-0" / "checkpoints"
        for _ in range(1200):
            if checkpoints.is_dir() and any(name.isdecimal() for name in os.listdir(checkpoints)):
                break
            time.sleep(0.05)
        parent.process.kill()
        ended = parent.wait(10, patience=20.0)
    assert ended.orphans == []
    assert "ended, since the process that started it has" in (tmp_path / "log2").read_text()
