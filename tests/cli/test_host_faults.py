"""A complete run in which one environment raises, dies or hangs: one error, in time, and a resume.

The run that fails is a process with children of its own; it is resumed, where nothing fails, in
this one, which has JAX.
"""

import dataclasses
import json
import re
import sys

import pytest
from sessions import RLKIT, session
from tiny_command import NETWORK_AND_UPDATE

from rlkit.cli.main import main
from rlkit.envs import registry
from rlkit.training.logs.records import read_records

pytestmark = [pytest.mark.process, pytest.mark.full]

STEP_TIMEOUT = 3.0
# seconds that a crowded machine may take on top, to tear down workers and leave the interpreter
PATIENCE = 15.0
FAULTY = 2  # the copy that misbehaves; an evaluation of 2 episodes has none of that number
FAULTY_STEP = 75  # of that copy: 300 of all, in the third of four outer iterations
# The last one that is complete when the fault comes.
STEPS_PER_CHECKPOINT, NUM_CHECKPOINTS, LAST = (
    128,
    4,
    2,
)

MODULE = f"""
import itertools
import multiprocessing
import os
import pathlib
import signal
import time

import gymnasium
import numpy as np

copies_here = itertools.count()


class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0.0, 99.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    max_episode_steps = 5

    def __init__(self):
        self.number, self.steps = None, 0

    def reset(self, *, seed=None, options=None):
        if self.number is None:  # not that of the one that is built to look at the spaces
            worker = multiprocessing.current_process().name
            in_worker = worker.startswith("Worker<")
            self.number = int(worker.rpartition("-")[2]) if in_worker else next(copies_here)
        self.time = 0
        return np.zeros(2, np.float32), {{}}

    def step(self, action):
        self.time += 1
        self.steps += 1
        if self.number == {FAULTY} and self.steps == {FAULTY_STEP} and "FAULT" in os.environ:
            with pathlib.Path(os.environ["FAULT_RECORD"]).open("a") as record:
                print(time.time(), file=record)
            misbehave(os.environ["FAULT"])
        return np.full(2, self.time, np.float32), 1.0, False, self.time == 5, {{}}


def misbehave(fault):
    if fault == "raises":
        raise ArithmeticError("the floor is wet")
    if fault == "exits":
        os._exit(3)
    if fault == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "hangs where no signal helps":
        signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGURG}})
    time.sleep(3600)
"""


@dataclasses.dataclass(frozen=True)
class Case:
    """What a fault shows: exit code, start of the only message on stderr, and what else appears
    once.
    """

    fault: str
    vectorization: str
    code: int
    message: str
    shown: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.fault.replace(' ', '-')}-in-{self.vectorization}"


RAISED = (
    rf"rlkit: error: environment 2 raised ArithmeticError: the floor is wet in step {FAULTY_STEP}"
    r" \(action .*[01].*\); "
)
TRACEBACK = (
    "Traceback (most recent call last):",
    "in misbehave",
    "\nArithmeticError: the floor is wet",
)
CASES = [
    Case("raises", "async", 1, RAISED, TRACEBACK),
    Case(
        "exits",
        "async",
        1,
        "rlkit: error: environment 2: its worker process ended with exit code 3 during step; ",
    ),
    Case(
        "is killed",
        "async",
        1,
        r"rlkit: error: environment 2: its worker process was killed by SIGKILL \(exit code -9\)",
    ),
    Case(
        "hangs",
        "async",
        1,
        r"rlkit: error: environment 2 did not answer within 3 s \(step\); ",
        ("in misbehave",),
    ),
    Case("raises", "sync", 1, RAISED, TRACEBACK),
    Case(
        "hangs",
        "sync",
        1,
        r"rlkit: error: environment 2 did not answer within 3 s \(step\); ",
        ("in misbehave",),
    ),
    Case(
        "hangs where no signal helps",
        "sync",
        70,
        r"rlkit: environment 2 has not returned from step for \d\S* s, ",
        ("in misbehave",),
    ),
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """The directory of all commands; it holds the environment's module."""
    path = tmp_path_factory.mktemp("host_faults")
    (path / "walks.py").write_text(MODULE)
    return path


@pytest.fixture
def as_at_first(monkeypatch):
    """Removes what a command in this process imported and registered."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(registry, "_registered", {})
    yield
    sys.modules.pop("walks", None)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_run_survives_the_fault_of_an_environment(
    case, directory, as_at_first, monkeypatch, capsys
):
    run_dir, record = directory / str(case), directory / f"{case}.record"
    code, err, ended = rlkit(
        *train(case, run_dir), cwd=directory, FAULT=case.fault, FAULT_RECORD=record
    )

    assert code == case.code, err
    said = [line for line in err.splitlines() if line.startswith("rlkit: ")]
    assert len(said) == 1 and re.match(case.message, said[0]), err
    assert err.count("rlkit: error:") == (1 if case.code == 1 else 0)
    assert {text: err.count(text) for text in case.shown} == dict.fromkeys(case.shown, 1), err
    # None of rlkit's own
    assert err.count("Traceback (most recent call last):") == case.shown.count(TRACEBACK[0]), err

    (began,) = map(float, record.read_text().split())  # one, or several copies have misbehaved
    waited = STEP_TIMEOUT if case.fault.startswith("hangs") else 0.0
    assert waited <= ended - began < waited + PATIENCE

    last = read_records(run_dir / "metrics.jsonl")[-1]
    assert last.env_steps == LAST * STEPS_PER_CHECKPOINT
    # The watchdog ends a process that can write nothing any more.
    assert (last.kind == "error") == (case.code == 1)
    assert case.code != 1 or said[0].removeprefix("rlkit: error: ") in (last.text or "")
    assert checkpoints(run_dir)[-1] == LAST

    monkeypatch.chdir(directory)
    assert main(["resume", str(case), "--env", "walks:Walk"]) == 0
    assert capsys.readouterr().err == ""
    records = read_records(run_dir / "metrics.jsonl")
    said = [row.text or "" for row in records if row.kind == "event"]
    assert any(
        text.startswith("training from step 256 to 512 environment steps") for text in said
    ), said
    trained = [row.env_steps for row in records if row.kind == "train"]
    assert trained == [128, 256, 384, 512]
    assert json.loads((run_dir / "summary.json").read_text())["env_steps"] == 512
    assert checkpoints(run_dir)[-1] == NUM_CHECKPOINTS


def train(case, run_dir):
    settings = json.dumps({"vectorization": case.vectorization, "step_timeout": STEP_TIMEOUT})
    arguments = [
        "train",
        "ppo",
        "walks:Walk",
        "--env-arguments",
        settings,
        "--run-dir",
        run_dir,
        "--no-debug",
    ]
    arguments += ["--num-envs", "4", "--num-steps", "16", *NETWORK_AND_UPDATE]
    return [
        *arguments,
        "--total-steps",
        "512",
        "--num-checkpoints",
        NUM_CHECKPOINTS,
        "--evaluation-episodes",
        "2",
    ]


def rlkit(*arguments, cwd, **variables):
    """(exit code, stderr, end time) of a command, which leaves no process."""
    command = [*RLKIT, *arguments]
    with session(command, cwd=cwd, log=cwd / "stderr", NPROC=None, **variables) as running:
        ended = running.wait(60)
    assert ended.orphans == [], ended.err
    return ended.code, ended.err, ended.at


def checkpoints(run_dir):
    """By outer iteration; directories get these names when they are complete."""
    return sorted(
        int(path.name) for path in (run_dir / "checkpoints").iterdir() if path.name.isdigit()
    )
