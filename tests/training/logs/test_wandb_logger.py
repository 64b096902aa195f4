"""Weights & Biases gets every row once, in one run or in one for each seed, and never stops one."""

import json
import math
import signal
import subprocess
import sys
import time

import pytest
import wandb
from wandb_files import wandb_files, wandb_history, wandb_labels

import rlkit
from rlkit.errors import ConfigError
from rlkit.training.config import LoggerConfig
from rlkit.training.logs import wandb_run
from rlkit.training.logs.logger import Outcome
from rlkit.training.logs.loggers import make_logger
from rlkit.training.logs.records import Record, read_records
from rlkit.training.logs.wandb_logger import WandbLogger
from rlkit.training.logs.wandb_run import WandbRun


def record(step, kind="eval", **fields):
    fields.setdefault("metrics", {"eval/avg_return": float(step)})
    return Record(kind=kind, env_steps=step, updates=step // 10, wall_seconds=step / 2, **fields)


@pytest.fixture
def quiet_wandb(monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    yield
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()


def both_kinds(step):
    return [
        record(step, kind="train", metrics={"train/loss": math.nan}),
        *(record(step, seed=seed) for seed in (None, 0, 1)),
    ]


@pytest.mark.process
def test_wandb_resume_neither_repeats_nor_loses_rows(tmp_path, quiet_wandb, caplog):
    config = LoggerConfig(wandb="offline", wandb_tags=("a",), console=False)
    first = make_logger(config, tmp_path)
    first.start({"lr": 1, "secret": "x"})
    state = {}
    for step in range(0, 60, 10):
        for row in both_kinds(step):
            first.log(row)
        if step == 30:
            first.log(record(30, kind="text", text="before the checkpoint", metrics={}))
            state = json.loads(json.dumps(first.state()))
            first.log(record(30, kind="text", text="after the checkpoint", metrics={}))
    first.close()
    resumed = make_logger(config, tmp_path)
    resumed.start({"lr": 2})
    resumed.restore(state)
    resumed.log(record(30, kind="text", text="after the checkpoint", metrics={}))
    for step in range(40, 90, 10):
        for row in both_kinds(step):
            resumed.log(row)
    resumed.close()
    rows, ids = wandb_history(tmp_path)
    assert len(set(ids)) == 1 and len(ids) >= 2
    for name in (
        "train/loss",
        "eval/avg_return",
        "eval/avg_return/seed_0",
        "eval/avg_return/seed_1",
    ):
        assert [row["env_steps"] for row in rows if name in row] == list(range(0, 90, 10))
    assert [row["text"] for row in rows if "text" in row] == [
        "before the checkpoint",
        "after the checkpoint",
    ]
    assert not [entry for entry in caplog.records if entry.name == "rlkit"]
    assert len(read_records(tmp_path / "metrics.jsonl")) == 9 * 4 + 2
    assert not any(
        b"secret" in path.read_bytes() and b'"x"' in path.read_bytes()
        for path in tmp_path.rglob("*.wandb")
    )


def log_until_killed(directory, *, steps, checkpoint, kill):
    """Logs `steps` to W&B in another process, which stores its state at one step and kills itself
    at another.
    """
    code = f"""
import json, os, pathlib, signal
from rlkit.training.config import *
from rlkit.training.logs.records import *
from rlkit.training.logs.wandb_logger import *
logger = WandbLogger(LoggerConfig(wandb="offline"), {str(directory)!r})
state = pathlib.Path({str(directory / "state.json")!r})
if state.exists():
    logger.restore(json.loads(state.read_text()))
for n in {steps!r}:
    metrics = {{"eval/avg_return": 1.0}}
    logger.log(Record(kind="eval", env_steps=n, updates=n, wall_seconds=0.0, metrics=metrics))
    if n == {checkpoint}:
        state.write_text(json.dumps(logger.state()))
    if n == {kill}:
        os.kill(os.getpid(), signal.SIGKILL)
logger.close()
"""
    return subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.DEVNULL, timeout=60
    ).returncode


@pytest.mark.full
@pytest.mark.process
def test_kill_loses_no_wandb_row(tmp_path, quiet_wandb):
    assert log_until_killed(tmp_path, steps=range(0, 40), checkpoint=20, kill=30) == -signal.SIGKILL
    assert log_until_killed(tmp_path, steps=range(21, 40), checkpoint=-1, kill=-1) == 0
    rows, ids = wandb_history(tmp_path)
    assert len(set(ids)) == 1
    assert {row["env_steps"] for row in rows} == set(range(40))


class FakeRun:
    """Refuses the first `refusals` rows."""

    def __init__(self, refusals):
        self.refusals, self.rows = refusals, []

    def log(self, row):
        if self.refusals > 0:
            self.refusals -= 1
            raise ConnectionResetError("service killed")
        self.rows.append(row)

    def finish(self):
        raise BrokenPipeError


@pytest.mark.fast
def test_wandb_failures_cost_one_warning(tmp_path, monkeypatch, caplog):
    run = FakeRun(refusals=3)
    monkeypatch.setattr(WandbRun, "_open", lambda self, settings: run)
    logger = make_logger(LoggerConfig(console=False, wandb="online"), tmp_path)
    for step in range(5):
        logger.log(record(step))
    logger.close()
    # The refused ones were sent later.
    assert [row["env_steps"] for row in run.rows] == list(range(5))
    assert len(read_records(tmp_path / "metrics.jsonl")) == 5
    assert logger.loggers["WandbLogger"].failures == 4
    first, last = (each.getMessage() for each in caplog.records)
    assert "the JSONL file contains all rows" in first
    assert last == "Weights & Biases failed 4 times in this run: rows may be missing there"


@pytest.mark.process
@pytest.mark.full
def test_an_unreachable_wandb_holds_nothing_up_for_long(tmp_path, quiet_wandb, monkeypatch, caplog):
    """A real client with a key, and a server that refuses connections."""
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("rlkit.training.logs.wandb_run._OPENS_WITHIN", 1.0)
    start = time.monotonic()
    logger = make_logger(LoggerConfig(console=False, wandb="online"), tmp_path)
    for step in range(3):
        logger.log(record(step))
    logger.close()
    assert time.monotonic() - start < 45  # W&B's own limit for opening a run is 90 seconds
    assert "could not be reached" in caplog.records[-1].getMessage()
    assert len(read_records(tmp_path / "metrics.jsonl")) == 3


@pytest.mark.fast
def test_wandb_settings_of_the_environment_win(monkeypatch):
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "60")
    assert wandb_run._limits().keys() == {"finish_timeout"}


@pytest.mark.fast
def test_only_rows_that_wandb_may_have_lost_are_sent_again(tmp_path, monkeypatch):
    clock, runs = [0.0], [FakeRun(refusals=0), FakeRun(refusals=0)]
    monkeypatch.setattr("rlkit.training.logs.wandb_run.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(WandbRun, "_open", lambda self, settings: runs.pop(0))
    killed, resumed = (WandbLogger(LoggerConfig(wandb="online"), tmp_path) for _ in range(2))
    first, second = runs
    state = {}
    for step in range(0, 200, 10):  # one row each 10 s
        clock[0] = float(step)
        killed.log(record(step))
        if step == 100:
            state = json.loads(json.dumps(killed.state()))
    resumed.restore(state)
    for step in range(110, 250, 10):
        resumed.log(record(step))
    assert [row["env_steps"] for row in first.rows] == list(range(0, 200, 10))
    # Up to 130 a minute had passed.
    assert [row["env_steps"] for row in second.rows] == list(range(140, 250, 10))


@pytest.mark.fast
def test_wandb_that_cannot_start_is_tried_once(tmp_path, monkeypatch, caplog):
    calls = []
    monkeypatch.setattr(WandbRun, "_open", lambda self, settings: calls.append(1) or 1 / 0)
    logger = make_logger(LoggerConfig(console=False, wandb="online"), tmp_path)
    for step in range(5):
        logger.log(record(step))
    logger.close()
    first, last = (each.getMessage() for each in caplog.records)
    assert len(calls) == 1 and "division by zero" in first and "--wandb offline" in first
    assert "could not be reached" in last and "all rows are in the JSONL file" in last
    assert len(read_records(tmp_path / "metrics.jsonl")) == 5


@pytest.mark.fast
def test_damaged_wandb_file_does_not_stop_a_resume(tmp_path, caplog):
    (tmp_path / "wandb_run.json").write_text("{")
    logger = WandbLogger(LoggerConfig(wandb="offline"), tmp_path)
    logger.restore({"all": {"id": "abc", "seen": {"eval": [10, 1]}}})
    assert logger.state() == {
        "all": {"id": "abc", "labels": {}, "seen": {"eval": [10, 1]}, "rows": []}
    }
    assert logger.failures == 1 and len(caplog.records) == 1


@pytest.mark.full
@pytest.mark.process
def test_wandb_gets_the_settings_of_an_off_policy_run(tiny, tmp_path, quiet_wandb, monkeypatch):
    """Its replay buffer is announced before it trains, which must not open W&B without them."""
    for name in ("PROJECT", "NAME", "RUN_GROUP", "TAGS", "NOTES"):
        monkeypatch.setenv(f"WANDB_{name}", f"my {name.lower()}")
    settings = {"wandb": "offline", "wandb_name": "given", "console": False}
    config = {"run_dir": str(tmp_path / "run"), "logger_config": LoggerConfig(**settings)}
    with tiny.trainer("dqn", **config) as trainer:
        trainer.run(3)
    for name in ("PROJECT", "NAME", "RUN_GROUP", "TAGS", "NOTES"):
        monkeypatch.delenv(f"WANDB_{name}")
    with tiny.trainer("dqn", **config, restore_checkpoint="auto", num_checkpoints=9) as trainer:
        trainer.run(3)
    files = wandb_files(tmp_path)
    assert len(files) == 2
    for file in files:
        labels, stored = wandb_labels(file)
        assert labels == {
            "project": "my project",
            "name": "given",
            "group": "my run_group",
            "tags": ["my tags"],
            "notes": "my notes",
        }
        assert stored["seed"] == 3 and stored["algorithm"] == "dqn"
        assert stored["versions.rlkit"] == rlkit.__version__


@pytest.mark.process
def test_wandb_writes_where_its_variable_says(tmp_path, quiet_wandb, monkeypatch):
    wandb.setup()  # reads the environment, and is asked before the variable is set
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    logger = make_logger(LoggerConfig(wandb="offline", console=False), tmp_path / "run")
    logger.start({"lr": 1})
    logger.log(record(0))
    logger.close()
    (file,) = wandb_files(tmp_path)
    assert file.is_relative_to(tmp_path / "elsewhere")
    assert wandb_labels(file)[0]["project"] == "rlkit"


SETTINGS = {"trainer.num_seeds": 2, "seed": 5, "env.arguments": {"api_key": "x"}}


def opened(monkeypatch, count):
    """The first `count` runs that will be opened; further ones cannot be."""
    runs, settings = [FakeRun(refusals=0) for _ in range(count)], []
    left = list(runs)

    def open_run(self, given):
        settings.append(given)
        return left.pop(0)

    monkeypatch.setattr(WandbRun, "_open", open_run)
    return runs, settings


@pytest.mark.fast
def test_each_seed_has_a_run_of_its_own(tmp_path, monkeypatch):
    runs, settings = opened(monkeypatch, 2)
    logger = WandbLogger(LoggerConfig(wandb="offline", wandb_runs="per_seed"), tmp_path)
    logger.start(SETTINGS)
    logger.log(record(0, kind="text", text="hello", metrics={}))
    for seed, value in ((0, 1.0), (1, 3.0)):
        logger.log(record(10, seed=seed, metrics={"eval/avg_return": value}))
    logger.log(record(10, metrics={"eval/avg_return": 2.0}))  # only their mean: in neither run
    logger.log(record(10, metrics={"eval/avg_return": 2.0, "eval/extra": 7.0}))
    for run, value in zip(runs, (1.0, 3.0), strict=True):
        text, evaluation, extra = run.rows
        assert text["text"] == "hello" and extra["eval/extra"] == 7.0
        assert evaluation["eval/avg_return"] == value and evaluation["env_steps"] == 10
        assert "eval/avg_return" not in extra
    assert [(one["seed"], one["seed_index"]) for one in settings] == [(5, 0), (6, 1)]
    assert all(one["env.arguments"] == {"api_key": "<redacted>"} for one in settings)


@pytest.mark.fast
@pytest.mark.parametrize("num_seeds", [None, 1])
def test_one_seed_is_one_run(num_seeds, tmp_path, monkeypatch):
    (run,), settings = opened(monkeypatch, 1)
    logger = WandbLogger(LoggerConfig(wandb="offline", wandb_runs="per_seed"), tmp_path)
    given = {"seed": 5} | ({} if num_seeds is None else {"trainer.num_seeds": num_seeds})
    logger.start(given)
    logger.log(record(10))
    assert run.rows[0]["eval/avg_return"] == 10.0 and settings == [given]


@pytest.mark.fast
def test_runs_of_seeds_resume_on_their_own(tmp_path, monkeypatch):
    (one, two), _ = opened(monkeypatch, 2)
    config = LoggerConfig(wandb="offline", wandb_runs="per_seed")
    first, resumed = (WandbLogger(config, tmp_path) for _ in range(2))
    first.start(SETTINGS)
    for seed in (0, 1):
        first.log(record(10, seed=seed))
    two.refusals = 1  # so its row is still to be sent when the checkpoint is saved
    for seed in (0, 1):
        first.log(record(20, seed=seed))
    state = json.loads(json.dumps(first.state()))
    first.close()
    (again_one, again_two), _ = opened(monkeypatch, 2)
    resumed.restore(state)
    resumed.start(SETTINGS)
    for seed in (0, 1):
        resumed.log(record(30, seed=seed))
    assert {name: run["id"] for name, run in resumed.state().items()} == {
        name: run["id"] for name, run in state.items()
    }
    assert [row["env_steps"] for row in one.rows + again_one.rows if row["env_steps"] > 20] == [30]
    assert {row["env_steps"] for row in two.rows + again_two.rows} == {10, 20, 30}


@pytest.mark.fast
def test_when_one_of_several_runs_cannot_start_the_others_go_on(tmp_path, monkeypatch, caplog):
    (run,), settings = opened(monkeypatch, 1)
    logger = WandbLogger(LoggerConfig(wandb="online", wandb_runs="per_seed"), tmp_path)
    logger.start(SETTINGS)
    for step in (10, 20):
        for seed in (0, 1):
            logger.log(record(step, seed=seed))
    assert [row["env_steps"] for row in run.rows] == [10, 20]
    assert len(settings) == 2 and logger.failures == 1  # the second is not tried again
    assert "pop from empty list" in caplog.text


@pytest.mark.fast
def test_a_sweep_has_one_run_for_all_seeds(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_SWEEP_ID", "abc")
    with pytest.raises(ConfigError, match=r"one W&B run; leave it out, or set wandb_runs=\"one\""):
        make_logger(LoggerConfig(wandb="offline", wandb_runs="per_seed"), tmp_path)
    make_logger(LoggerConfig(wandb="offline"), tmp_path)


@pytest.mark.fast
def test_what_cannot_be_published_is_a_failure_like_others(tmp_path, monkeypatch, caplog):
    opened(monkeypatch, 1)
    logger = make_logger(LoggerConfig(wandb="online", wandb_artifacts=True), tmp_path)
    published = Outcome(curve=tmp_path / "absent.png", export_policy=lambda directory: 1 / 0)
    logger.state()
    logger.publish(published)  # before there is a run to add it to
    assert not caplog.records
    logger.log(record(10))
    logger.publish(published)
    logger.close()
    assert "failed 3 times in this run" in caplog.records[-1].getMessage()
