"""`--launcher slurm`: the scripts, and what they do where something calls them as Slurm would."""

import os
import shlex
import signal
import subprocess
import time

import pytest
from sessions import RLKIT, session
from sweep_files import results_of
from tiny_command import TINY

from rlkit.errors import ConfigError
from rlkit.training.sweeps.launchers.slurm import (
    SlurmLauncher,
    array_of,
    sbatch_options,
    submitting,
)

RATES = {"learning_rate": (1e-3, 3e-3, 1e-2, 2e-2)}
COMMAND = [*RLKIT, "sweep", "ppo", "gymnax/CartPole-v1", *TINY, "--evaluation-episodes", "2"]
ASKED = ["--grid", "learning_rate=1e-3,3e-3,1e-2,2e-2", "--group-size", "2", "--num-checkpoints"]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("numbers", "wanted"),
    [([0], "0"), ([0, 1, 2], "0-2"), ([0, 4, 8], "0-8:4"), ([0, 3, 8], "0,3,8"), ([4], "4")],
)
def test_the_array_has_the_numbers_of_the_groups(numbers, wanted):
    assert array_of(numbers) == wanted


@pytest.mark.fast
def test_options_are_passed_on():
    options = sbatch_options(["partition=gpu", "time=4:00:00", "exclusive", "comment=a=b"])
    assert options == {"partition": "gpu", "time": "4:00:00", "exclusive": None, "comment": "a=b"}
    SlurmLauncher(options=options)
    for wrong, said in {
        "Partition=gpu": "'Partition=gpu' is no option of sbatch; use long names",
        "time=1\nrm": "is no option of sbatch",
        "array=0-3": "the array of jobs is that of the sweep's groups; leave out array",
    }.items():
        with pytest.raises(ConfigError, match=said):
            SlurmLauncher(options=sbatch_options([wrong]))


@pytest.mark.fast
def test_jobs_wait_for_those_before(tmp_path):
    folder = tmp_path / "my run"
    assert submitting(folder, 2) == [
        f"job=$(sbatch --parsable '{folder}/groups.sbatch')",
        f"job=$(sbatch --parsable --dependency=afterany:\"${{job%%;*}}\" '{folder}/groups.sbatch')",
        f"sbatch --dependency=afterany:\"${{job%%;*}}\" '{folder}/end.sbatch'",
    ]


def test_scripts_are_written_and_nothing_is_trained(sweeps):
    """Bash reads them, also with odd characters in a name; Slurm fills in what begins with %."""
    options = {"partition": "gpu", "requeue": None, "signal": "TERM@60"}
    launcher = SlurmLauncher(options=options, env="mine:Env")
    config = sweeps.config(grid=RATES, sweep={"group_size": 2})
    sweep = sweeps.run(config, "50% of it's", launcher=launcher)
    assert not sweep.is_finished and sweep.results == ()
    assert not (sweep.directory / "results.csv").exists()
    assert not (sweep.directory / "trials").exists()
    folder = sweep.directory / "slurm"
    groups = (folder / "groups.sbatch").read_text()
    assert "#SBATCH --array=0-2:2\n" in groups and "#SBATCH --partition=gpu\n" in groups
    assert "#SBATCH --signal=TERM@60\n" in groups and "USR1@" not in groups
    assert "sweep-group --env mine:Env '" in groups
    end = (folder / "end.sbatch").read_text()
    assert end.rstrip().endswith(" --env mine:Env")
    assert "--partition=gpu" in end and "--signal" not in end  # which nothing there would take
    assert "50%% of it" in groups.partition("--output=")[2].partition("\n")[0]
    for name in ("groups.sbatch", "end.sbatch"):
        subprocess.run(["bash", "-n", folder / name], check=True)
        rows = (folder / name).read_text().splitlines()
        options = [row.removeprefix("#SBATCH ") for row in rows if row.startswith("#SBATCH ")]
        assert all(len(shlex.split(option)) == 1 for option in options)  # as Slurm reads them
    assert sweeps.said[0] == "sweep: 4 trials x 1 seed: 2 programs of 2 trials"
    assert sweeps.said[1:] == [
        "Slurm: 2 groups, a job each; submit them with",
        *(f"  {command}" for command in submitting(folder, 1)),
    ]


def test_with_rungs_the_array_is_submitted_for_each(sweeps):
    config = sweeps.config(grid=RATES, num_checkpoints=4, sweep={"group_size": 2, "halving": 2})
    sweeps.run(config, launcher=SlurmLauncher())
    assert "a job each, once for each of 3 rungs; submit them with" in sweeps.said[1]
    assert [text.count("groups.sbatch") for text in sweeps.said[2:]] == [1, 1, 1, 0]


def test_optuna_is_not_for_slurm(sweeps):
    asked = {"search": "optuna", "trials": 4}
    with pytest.raises(ConfigError, match="all Slurm jobs are planned first; leave out --search"):
        sweeps.run(sweeps.config(sweep=asked), launcher=SlurmLauncher())


def job(tmp_path, script, name, trial=None):
    """A batch job as Slurm starts it, with a `scontrol` that writes down what it is asked."""
    tools = tmp_path / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "scontrol").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    (tools / "scontrol").chmod(0o755)
    variables = {"SLURM_ARRAY_TASK_ID": trial, "SLURM_ARRAY_JOB_ID": 7}
    path = f"{tools}:{os.environ['PATH']}"
    return session(["bash", script], cwd="/", log=tmp_path / name, PATH=path, **variables)


@pytest.mark.full
@pytest.mark.process
def test_jobs_train_the_sweep(tmp_path):
    """One reaches its time limit, is put back into the queue, and goes on."""
    length = ["6", "--total-steps", "3840"]
    with session(
        [*COMMAND, *ASKED, *length, "--run-dir", "whole"], cwd=tmp_path, log=tmp_path / "log"
    ) as whole:
        assert whole.wait(120).code == 0
    asked = [*ASKED, *length, "--run-dir", "jobs", "--launcher", "slurm", "--sbatch", "gpus=1"]
    with session([*COMMAND, *asked], cwd=tmp_path, log=tmp_path / "log2") as planned:
        assert planned.wait(60).code == 0, planned.log.read_text()
    sweep = tmp_path / "jobs"
    groups, end = sweep / "slurm" / "groups.sbatch", sweep / "slurm" / "end.sbatch"
    with job(tmp_path, groups, "job-0", 0) as limited:
        checkpoint = sweep / "together" / "rung-0-group-0" / "checkpoints" / "1"
        for _ in range(1200):
            if checkpoint.exists():
                break
            time.sleep(0.05)
        os.kill(limited.process.pid, signal.SIGUSR1)
        ended = limited.wait(60)
    assert (ended.code, ended.orphans) == (128 + signal.SIGTERM, [])
    assert (tmp_path / "asked").read_text() == "requeue 7_0\n"
    assert "stopped by SIGTERM; everything is saved" in ended.err
    for trial in (2, 0, 0):
        with job(tmp_path, groups, f"job-{trial}-again", trial) as again:
            assert again.wait(120).code == 0, again.log.read_text()
    assert not (sweep / "best.yaml").exists()
    with job(tmp_path, end, "end") as last:
        assert last.wait(60).code == 0, last.log.read_text()
    assert results_of(sweep) == results_of(tmp_path / "whole")
    assert (sweep / "best.yaml").read_text() == (tmp_path / "whole" / "best.yaml").read_text()


@pytest.mark.full
@pytest.mark.process
def test_a_job_that_is_cancelled_saves_and_is_not_put_back(tmp_path):
    asked = [*ASKED, "600", "--total-steps", "384000", "--run-dir", "jobs", "--launcher", "slurm"]
    with session([*COMMAND, *asked], cwd=tmp_path, log=tmp_path / "log") as planned:
        assert planned.wait(60).code == 0
    groups = tmp_path / "jobs" / "slurm" / "groups.sbatch"
    with job(tmp_path, groups, "unnumbered") as nobody:
        assert nobody.wait(10).code != 0
    assert "submit this file with sbatch" in nobody.log.read_text()
    with job(tmp_path, groups, "job-2", 2) as cancelled:
        checkpoint = tmp_path / "jobs" / "together" / "rung-0-group-2" / "checkpoints" / "1"
        for _ in range(1200):
            if checkpoint.exists():
                break
            time.sleep(0.05)
        cancelled.process.terminate()
        ended = cancelled.wait(60)
    assert (ended.code, ended.orphans) == (128 + signal.SIGTERM, [])
    assert "everything is saved" in ended.err and not (tmp_path / "asked").exists()
