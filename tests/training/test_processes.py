"""Several real processes on this machine train one run: what they reach, save, and how they end."""

import json
import signal
import time

import pytest
from sessions import RLKIT
from several_processes import (
    HARD_LIMIT,
    arrays,
    commands_of,
    found,
    free_port,
    run,
    together,
    work,
    workers_of,
)

from rlkit.training.files.checkpointer import steps_in
from rlkit.training.logs.records import read_records

pytestmark = pytest.mark.process
TIMEOUT = 5  # seconds of silence after which a process is lost, in these tests
SMALL = ["--num-envs", 8, "--hidden-sizes", 8, "--evaluation-episodes", 2, "--no-debug"]
SMALL += ["--max-evaluation-steps", 20, "--process-timeout", TIMEOUT]
LONG = ["--total-steps", "100k", "--num-checkpoints", 100]  # until somebody ends it
CARTPOLE = ["train", "ppo", "gymnax/CartPole-v1", *SMALL]


def in_run(tmp_path, name="run", **settings):
    return settings | {"run_dir": str(tmp_path / name)}


def test_two_processes_have_the_same_learner(tmp_path):
    both = work({"name": "ppo", "settings": in_run(tmp_path)}, 2, cwd=tmp_path)
    assert both[0] == both[1] and both[0]["stop_reason"] is None
    rows = read_records(tmp_path / "run" / "metrics.jsonl")
    told = "\n".join(row.text for row in rows if row.text)
    assert "2 devices of 2 processes (cpu): each trains 4 of the 8 environments" in told


@pytest.mark.full
@pytest.mark.parametrize("name", ["ppo.gru", "dqn", "sac", "td3", "pqn"])
def test_two_processes_are_two_devices(name, tmp_path):
    """Bit for bit, replay, environments and keys too; and process 0 alone writes."""
    both = work({"name": name, "settings": in_run(tmp_path)}, 2, cwd=tmp_path)
    assert both[0] == both[1]
    one = {"name": name, "settings": in_run(tmp_path, "one", devices=2)}
    alone = work(one, 1, cwd=tmp_path, devices=2)
    assert alone[0] == both[0]
    assert arrays(tmp_path / "run") == arrays(tmp_path / "one")
    rows, others = (read_records(tmp_path / n / "metrics.jsonl") for n in ("run", "one"))
    assert [r.kind for r in rows] == [r.kind for r in others]


@pytest.mark.full
@pytest.mark.parametrize(("name", "num_seeds"), [("ppo", 2), ("dqn", 1), ("ppo.gru", 1)])
def test_two_processes_are_two_devices_on_the_host(name, num_seeds, tmp_path):
    """Each process steps its own half of the environments, with the seeds of that half."""
    host = {"name": name, "host": "CartPole-v1"}
    both = in_run(tmp_path, num_seeds=num_seeds)
    two = work(host | {"settings": both}, 2, cwd=tmp_path)
    one = in_run(tmp_path, "one", num_seeds=num_seeds, devices=2)
    alone = work(host | {"settings": one}, 1, cwd=tmp_path, devices=2)
    assert two[0] == two[1] == alone[0]
    found, expected = arrays(tmp_path / "run"), arrays(tmp_path / "one")
    assert found.pop("environments") != expected.pop("environments")  # by processes
    assert found == expected


@pytest.mark.full
@pytest.mark.parametrize("overlap", ["acting", "update"])
def test_overlaps_on_the_host(overlap, tmp_path):
    wanted = {"name": "ppo", "host": "CartPole-v1", "settings": {"overlap": overlap}}
    each = work(wanted, 2, cwd=tmp_path)
    assert each[0] == each[1] and each[0]["iterations"] == 3


@pytest.mark.full
@pytest.mark.parametrize(("count", "devices"), [(4, 1), (2, 2)])
def test_replicas_of_more_processes_agree(count, devices, tmp_path):
    """Reductions of four add up in another order than those of one process; replicas do not."""
    each = work({"name": "ppo", "settings": in_run(tmp_path)}, count, cwd=tmp_path, devices=devices)
    assert all(one == each[0] for one in each)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "num_seeds", "host"),
    [
        ("ppo", 1, None),
        ("sac", 2, None),
        ("ppo", 2, "CartPole-v1"),
        ("dqn", 1, "CartPole-v1"),
    ],
)
def test_resumed_ends_as_uninterrupted(name, num_seeds, host, tmp_path):
    run, seeds = {"name": name, "host": host}, {"num_seeds": num_seeds}
    whole = work(run | {"settings": in_run(tmp_path, "whole", **seeds)}, 2, cwd=tmp_path)
    part = in_run(tmp_path, "part", **seeds)
    stopped = work(run | {"settings": part, "stop_at": 1}, 2, cwd=tmp_path)
    assert {each["stop_reason"] for each in stopped} == {"asked to"}
    resumed = work(run | {"settings": part | {"restore_checkpoint": "auto"}}, 2, cwd=tmp_path)
    assert [x["learner"] for x in resumed] == [x["learner"] for x in whole]
    assert arrays(tmp_path / "part") == arrays(tmp_path / "whole")


@pytest.mark.full
@pytest.mark.parametrize(("name", "host"), [("ppo", None), ("dqn", "CartPole-v1")])
def test_a_run_goes_on_in_other_processes(name, host, tmp_path):
    """2 x 1, then 1 x 1, then 4 x 1, then 2 x 2: each with the learner that the last one saved."""
    last, settings = None, in_run(tmp_path)
    for number, (count, devices) in enumerate([(2, 1), (1, 1), (4, 1), (2, 2)]):
        wanted = {"name": name, "host": host}
        wanted["settings"] = settings | {"num_checkpoints": number + 1}
        wanted["settings"] |= {"restore_checkpoint": "auto"}
        each = work(wanted, count, cwd=tmp_path, devices=devices)
        assert all(one == each[0] for one in each) and each[0]["iterations"] == number + 1
        assert last is None or each[0]["restored"] == last
        last = each[0]["learner"]
    texts = [row.text for row in read_records(tmp_path / "run" / "metrics.jsonl") if row.text]
    told = "\n".join(texts)
    assert "trained on 2 devices in 2 processes and continues on 1" in told


@pytest.mark.full
def test_slurm_says_where_the_others_are(tmp_path):
    """As JAX reads what `srun` sets; without it, the flag is an error."""
    flags = [*CARTPOLE, "--total-steps", "4k", "--distributed", "auto", "--run-dir", "run"]
    job = ["SLURM_STEP_NODELIST=localhost", "SLURM_NTASKS=2", f"SLURM_JOB_ID={free_port() % 4096}"]
    commands = [
        ["env", *job, f"SLURM_PROCID={index}", f"SLURM_LOCALID={index}", *RLKIT, *flags]
        for index in range(2)
    ]
    with together(commands, cwd=tmp_path) as sessions:
        ended = [each.wait(HARD_LIMIT) for each in sessions]
    assert [each.code for each in ended] == [0, 0]
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["processes"] == 2
    with together([[*RLKIT, *flags]], cwd=tmp_path) as (alone,):
        ended = alone.wait(HARD_LIMIT)
    assert ended.code == 2 and "JAX found no cluster here" in ended.err


@pytest.mark.full
@pytest.mark.parametrize("victim", [0, 1])
def test_a_signal_to_one_ends_all_with_a_saved_state(victim, tmp_path):
    with together(commands_of([*CARTPOLE, *LONG, "--run-dir", "run"], 2), cwd=tmp_path) as sessions:
        await_checkpoint(tmp_path / "run", sessions)
        sessions[victim].process.send_signal(signal.SIGTERM)
        ended = [each.wait(HARD_LIMIT) for each in sessions]
    assert [each.code for each in ended] == [143, 143]
    assert all("stopped by SIGTERM; everything is saved" in each.err for each in ended)
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status == {"status": "stopped", "reason": "SIGTERM"}
    trained = [r for r in read_records(tmp_path / "run" / "metrics.jsonl") if r.kind == "train"]
    assert max(steps_in(tmp_path / "run" / "checkpoints")) == len(trained)


@pytest.mark.full
@pytest.mark.parametrize("victim", [0, 1])
def test_ctrl_c_in_one_script_ends_all_with_a_saved_state(victim, tmp_path):
    """It comes while processes wait for each other, most of the time."""
    settings = in_run(tmp_path, num_checkpoints=5000)
    with together(workers_of({"name": "ppo", "settings": settings}, 2), cwd=tmp_path) as sessions:
        await_checkpoint(tmp_path / "run", sessions)
        sessions[victim].process.send_signal(signal.SIGINT)
        ended = [each.wait(HARD_LIMIT) for each in sessions]
    assert "KeyboardInterrupt" in ended[victim].err and ended[victim].code != 0
    assert ended[1 - victim].code in (0, 1)  # it has ended well, but learns at exit of the other
    assert found(ended[1 - victim])["stop_reason"] == "interrupted"
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status == {"status": "stopped", "reason": "interrupted"}


@pytest.mark.full
@pytest.mark.parametrize(
    ("number", "victim"),
    [(signal.SIGKILL, 0), (signal.SIGKILL, 1), (signal.SIGSTOP, 0)],
    ids=["first-killed", "second-killed", "first-hangs"],
)
def test_a_lost_process_ends_the_others_in_time(victim, number, tmp_path):
    with together(commands_of([*CARTPOLE, *LONG, "--run-dir", "run"], 2), cwd=tmp_path) as sessions:
        await_checkpoint(tmp_path / "run", sessions)
        sessions[victim].process.send_signal(number)
        sent = time.time()
        ended = sessions[1 - victim].wait(HARD_LIMIT)
    assert ended.code == 1 and ended.at - sent < TIMEOUT + 8
    assert f"process {victim}" in ended.err and "rlkit resume" in ended.err
    saved = max(steps_in(tmp_path / "run" / "checkpoints"))
    run(["resume", "run", "--total-steps", "101k", "--process-timeout", TIMEOUT], 2, cwd=tmp_path)
    rows = read_records(tmp_path / "run" / "metrics.jsonl")
    steps = [row.env_steps for row in rows if row.kind == "train"]
    assert steps == sorted(set(steps)) and len(steps) > saved


@pytest.mark.full
def test_an_error_in_a_callback_ends_all_with_a_saved_state(tmp_path):
    """That of the iteration which failed, since two would be lost."""
    settings = in_run(tmp_path, checkpoint_every=5, num_checkpoints=4)
    wanted = {"name": "ppo", "settings": settings, "fails_at": 3}
    with together(workers_of(wanted, 2), cwd=tmp_path) as sessions:
        ended = [each.wait(HARD_LIMIT) for each in sessions]
    assert [each.code for each in ended] == [1, 1]
    assert "OSError: no more paper" in ended[0].err
    assert "ProcessError: process 0 failed: OSError: no more paper" in ended[1].err
    assert steps_in(tmp_path / "run" / "checkpoints") == [0, 3]


@pytest.mark.full
@pytest.mark.parametrize("index", [0, 1])
def test_an_environment_that_breaks_in_one_process_ends_all(index, tmp_path):
    """Within a rollout: the others wait for a gradient that never comes."""
    settings = in_run(tmp_path, num_checkpoints=60, enable_evaluation=False)
    wanted = {"name": "ppo", "breaks_in": index, "settings": settings}
    with together(workers_of(wanted, 2), cwd=tmp_path) as sessions:
        ended = [each.wait(HARD_LIMIT) for each in sessions]
    assert [each.code for each in ended] == [1, 1]
    assert "EnvFailedError: environment" in ended[index].err
    assert f"process {index} failed: EnvFailedError: environment" in ended[1 - index].err
    assert "rlkit resume" in ended[1 - index].err
    assert abs(ended[0].at - ended[1].at) < 15


@pytest.mark.full
def test_processes_with_other_settings_are_told(tmp_path):
    wanted = {"name": "ppo", "settings_of": {"1": {"evaluation_episodes": 4}}}
    with together(workers_of(wanted, 2), cwd=tmp_path) as sessions:
        ended = [each.wait(HARD_LIMIT) for each in sessions]
    for each in ended:
        assert each.code == 1 and "start all processes with the same command" in each.err
        assert "process 1 has trainer=" in each.err


@pytest.mark.full
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--devices", 3], "devices=3 in 2 processes, which have at least 1 each; use --devices 2"),
        (["--shard", "seeds", "--num-seeds", 2], "use shard='data', or train other seeds as runs"),
        (["--num-envs", 3], "num_envs=3 cannot be divided among 2 devices"),
    ],
)
def test_what_processes_cannot_do_is_told_by_all(flags, message, tmp_path):
    for each in run([*CARTPOLE, *LONG, *flags], 2, cwd=tmp_path, code=2):
        assert message in each.err


@pytest.mark.full
def test_an_error_before_training_is_that_of_all(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    ended = run([*CARTPOLE, *LONG, "--run-dir", "run"], 2, cwd=tmp_path, code=None)
    assert ended[0].code == 2 and "is not a run directory" in ended[0].err
    assert ended[1].code in (1, 2) and "is not a run directory" in ended[1].err


def await_checkpoint(run_dir, sessions):
    """Waits for the first one after training."""
    deadline = time.monotonic() + HARD_LIMIT
    checkpoints = run_dir / "checkpoints"
    while not (checkpoints.is_dir() and max(steps_in(checkpoints), default=0) > 0):
        assert time.monotonic() < deadline and all(s.process.poll() is None for s in sessions), [
            s.log.read_text()[-2000:] for s in sessions
        ]
        time.sleep(0.02)
