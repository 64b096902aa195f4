"""Records survive kills, resumes and a broken W&B."""

import json
import math
import os
import signal
import struct
import subprocess
import sys
import time

import pytest

import rlkit
from rlkit.errors import ConfigError, RunDirectoryError
from rlkit.training.config import LoggerConfig
from rlkit.training.logs.loggers import (
    ConsoleLogger,
    JsonlLogger,
    Logger,
    MultiLogger,
    as_logger,
    human_count,
    human_seconds,
    make_logger,
)
from rlkit.training.logs.records import Record, read_records
from rlkit.training.logs.wandb_logger import WandbLogger, redact


def record(step, kind="eval", **fields):
    fields.setdefault("metrics", {"eval/avg_return": float(step)})
    return Record(kind=kind, env_steps=step, updates=step // 10, wall_seconds=step / 2, **fields)


@pytest.mark.fast
def test_records_round_trip_with_non_finite_values(tmp_path):
    path = tmp_path / "metrics.jsonl"
    logger = JsonlLogger(path)
    metrics = {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.1, "e": 1e-300}
    written = [record(1, seed=3, metrics=metrics), record(2, kind="text", text="naïve\nline")]
    for row in written:
        logger.log(row)
    logger.close()
    rows = [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]
    assert [rows[0]["metrics"][name] for name in "abc"] == [None, "Infinity", "-Infinity"]
    read = read_records(path)
    assert math.isnan(read[0].metrics.pop("a")) and math.isnan(written[0].metrics.pop("a"))
    assert read == written


@pytest.mark.fast
def test_resumed_file_equals_the_uninterrupted_one(tmp_path):
    whole = JsonlLogger(tmp_path / "whole.jsonl")
    for step in range(10):
        whole.log(record(step))
    cut = JsonlLogger(tmp_path / "cut.jsonl")
    for step in range(7):
        cut.log(record(step))
        if step == 3:
            state = json.loads(json.dumps(cut.state()))
    with open(cut.path, "a") as file:
        file.write('{"kind": "ev')
    resumed = JsonlLogger(cut.path)
    resumed.restore(state)
    for step in range(4, 10):
        resumed.log(record(step))
    assert cut.path.read_bytes() == whole.path.read_bytes()
    dropped = resumed.dropped_path.read_text().splitlines()
    assert sorted(dropped) == sorted(
        [*(record(step).to_json() for step in (4, 5, 6)), '{"kind": "ev']
    )
    assert resumed.state() == whole.state()


@pytest.mark.fast
def test_restoring_nothing_begins_again(tmp_path):
    config = LoggerConfig(console=False)
    make_logger(config, tmp_path).log(record(5))
    again = make_logger(config, tmp_path)
    again.restore({})
    again.log(record(6))
    assert read_records(tmp_path / "metrics.jsonl") == [record(6)]
    assert read_records(tmp_path / "metrics.dropped.jsonl") == [record(5)]


@pytest.mark.fast
def test_missing_rows_are_reported_not_invented(tmp_path, caplog):
    logger = JsonlLogger(tmp_path / "metrics.jsonl")
    logger.restore({"bytes": 100})
    logger.log(record(1))
    assert "early rows are missing" in caplog.text
    assert read_records(logger.path) == [record(1)]


@pytest.mark.process
def test_kill_while_logging_leaves_a_readable_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    code = (
        "import itertools, sys\nfrom rlkit.training.logs.loggers import *\nfrom"
        " rlkit.training.logs.records import *\nlogger = JsonlLogger(sys.argv[1])\nfor n in"
        " itertools.count(): logger.log(Record(kind='train', env_steps=n, updates=n,"
        " wall_seconds=0.0, seed=0))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)])
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not (path.exists() and path.stat().st_size > 50_000):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    steps = [row.env_steps for row in read_records(path)]
    assert len(steps) > 100 and steps == list(range(len(steps)))


@pytest.mark.fast
def test_half_written_row_is_skipped_and_set_aside(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(record(1).to_json() + "\n" + record(2).to_json()[:-9])
    assert read_records(path) == [record(1)]
    JsonlLogger(path).log(record(2))
    assert read_records(path) == [record(1), record(2)]


@pytest.mark.fast
def test_unusable_files_name_the_fix(tmp_path):
    (tmp_path / "file").write_text("not json\n")
    with pytest.raises(
        RunDirectoryError, match=r"cannot write records to .*; start a new run with --jsonl PATH"
    ):
        JsonlLogger(tmp_path / "file" / "metrics.jsonl")
    with pytest.raises(RunDirectoryError, match="cannot write"):
        JsonlLogger(tmp_path)
    with pytest.raises(ConfigError, match="run directory"):
        read_records(tmp_path / "absent.jsonl")
    with pytest.raises(ConfigError, match=r"line 1: not a record.*delete that line"):
        read_records(tmp_path / "file")
    with pytest.raises(ConfigError, match="cannot log to 3"):
        as_logger(3, tmp_path)  # pyright: ignore[reportArgumentType]


@pytest.mark.fast
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full disk")
def test_full_disk_is_raised_after_the_others_ran(tmp_path, capsys):
    full = JsonlLogger(tmp_path / "metrics.jsonl")
    full._descriptor = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(RunDirectoryError, match="No space left"):
        MultiLogger([full, ConsoleLogger()]).log(record(7))
    assert "return 7" in capsys.readouterr().out


@pytest.mark.fast
def test_one_failing_logger_does_not_stop_the_others(tmp_path, caplog):
    broken, whole = ConsoleLogger(), JsonlLogger(tmp_path / "metrics.jsonl")
    broken.log = lambda record: 1 / 0
    multi = MultiLogger([broken, whole])
    for step in range(3):
        multi.log(record(step))
    assert len(read_records(whole.path)) == 3
    assert caplog.text.count("ZeroDivisionError") == 1


@pytest.mark.fast
def test_console_lines(capsys):
    logger = ConsoleLogger()
    logger.log(record(1_250_000, metrics={"eval/avg_return": 123.456, "eval/done_info/x": 1.0}))
    logger.log(
        record(1_250_000, metrics={"eval/avg_return": 1.0}, seed=2)
    )  # of several seeds, only their mean is shown
    logger.log(
        record(
            0, metrics={"eval/avg_return": 1.0, **{f"eval/done_info/{name}": 1.0 for name in "xyz"}}
        )
    )
    of_episodes = {"return": -12345.678, "length": 1000.0}
    both = [
        (f"eval/{kind}avg_{name}", x)
        for kind in ("", "sampled_")
        for name, x in of_episodes.items()
    ]
    logger.log(record(999_000, metrics=dict(sorted(both))))
    logger.log(record(0, kind="train"))
    logger.log(record(0, kind="error", text="it broke", metrics={}))
    lines = capsys.readouterr().out.splitlines()
    evaluation = " 1.25M steps | 173h36m | return 123.5 | done_info/x 1"
    whole = "  999k steps | 138h45m | return -1.235e+04 (sampled -1.235e+04) | length 1000"
    assert lines == [
        evaluation,
        "     0 steps | 0s | return 1",
        whole,
        "     0 steps | 0s | error: it broke",
    ]
    assert [human_count(n) for n in (999, 999_960, 3e9)] == ["999", "1M", "3B"]
    assert [human_seconds(n) for n in (59.4, 185, math.nan)] == ["59s", "3m05s", "?"]


@pytest.mark.fast
def test_secrets_are_redacted():
    config = {
        "lr": 1.0,
        "env": {"API_KEY": "x", "nested": [{"userPassword": "y", "steps": 3}]},
        "auth_token": None,
    }
    clean = redact(config)
    assert clean["env"] == {
        "API_KEY": "<redacted>",
        "nested": [{"userPassword": "<redacted>", "steps": 3}],
    }
    assert (
        clean["lr"] == 1.0
        and clean["auth_token"] == "<redacted>"
        and config["env"]["API_KEY"] == "x"
    )


@pytest.mark.fast
def test_every_logger_follows_the_protocol(tmp_path):
    loggers = [
        as_logger(tmp_path / "a.jsonl"),
        as_logger(None, tmp_path),
        ConsoleLogger(),
        WandbLogger(LoggerConfig(), None),
    ]
    for logger in loggers:
        assert isinstance(logger, Logger) and as_logger(logger) is logger
        json.dumps(logger.state())
    assert (tmp_path / "metrics.jsonl").exists()


@pytest.mark.process
def test_importing_stays_light():
    code = """
import sys, rlkit.training.logs.loggers, rlkit.training.logs.plotting
print({'jax', 'wandb', 'matplotlib'} & set(sys.modules))
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


def wandb_history(directory):
    """The rows of all offline runs below `directory`, oldest run first, with the run ids."""
    from wandb.proto import wandb_internal_pb2

    rows, ids = [], []
    for path in sorted(
        directory.glob("wandb/*run-*/run-*.wandb"), key=lambda path: path.stat().st_mtime_ns
    ):
        for data in wandb_entries(path.read_bytes()):
            entry = wandb_internal_pb2.Record()
            entry.ParseFromString(data)
            if entry.WhichOneof("record_type") == "history":
                rows.append(
                    {
                        item.key or "/".join(item.nested_key): json.loads(item.value_json)
                        for item in entry.history.item
                    }
                )
            elif entry.WhichOneof("record_type") == "run":
                ids.append(entry.run.run_id)
    return rows, ids


def wandb_entries(content):
    """Splits W&B's file, in the log format of LevelDB: blocks of 32 KiB with chunks of crc, length,
    place (full, first, …).
    """
    place, entry = 7, b""
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        _, length, chunk = struct.unpack("<IHB", content[place : place + 7])
        entry += content[place + 7 : place + 7 + length]
        place += 7 + length
        if chunk in (1, 4):  # full, last
            yield entry
            entry = b""


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
    assert not caplog.records
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
from rlkit.training.logs.loggers import *
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
    monkeypatch.setattr(WandbLogger, "_open", lambda self: run)
    logger = make_logger(LoggerConfig(console=False, wandb="online"), tmp_path)
    for step in range(5):
        logger.log(record(step))
    logger.close()
    assert [row["env_steps"] for row in run.rows] == list(
        range(5)
    )  # the refused ones were sent later
    assert len(read_records(tmp_path / "metrics.jsonl")) == 5
    assert logger.loggers["WandbLogger"].failures == 4
    first, last = (each.getMessage() for each in caplog.records)
    assert "the JSONL file contains all rows" in first
    assert last == "Weights & Biases failed 4 times in this run: rows may be missing there"


@pytest.mark.fast
def test_only_rows_that_wandb_may_have_lost_are_sent_again(tmp_path, monkeypatch):
    clock, runs = [0.0], [FakeRun(refusals=0), FakeRun(refusals=0)]
    monkeypatch.setattr("rlkit.training.logs.wandb_logger.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(WandbLogger, "_open", lambda self: runs.pop(0))
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
    assert [row["env_steps"] for row in second.rows] == list(
        range(140, 250, 10)
    )  # up to 130 a minute had passed


@pytest.mark.fast
def test_wandb_that_cannot_start_is_tried_once(tmp_path, monkeypatch, caplog):
    calls = []
    monkeypatch.setattr(WandbLogger, "_open", lambda self: calls.append(1) or 1 / 0)
    logger = make_logger(LoggerConfig(console=False, wandb="online"), tmp_path)
    for step in range(5):
        logger.log(record(step))
    logger.close()
    assert len(calls) == 1 and "--wandb offline" in caplog.text
    assert len(read_records(tmp_path / "metrics.jsonl")) == 5


@pytest.mark.fast
def test_damaged_wandb_file_does_not_stop_a_resume(tmp_path, caplog):
    (tmp_path / "wandb_run.json").write_text("{")
    logger = WandbLogger(LoggerConfig(wandb="offline"), tmp_path)
    logger.restore({"id": "abc", "seen": {"eval": [10, 1]}})
    assert logger.state() == {
        "id": "abc",
        "labels": {},
        "seen": {"eval": [10, 1]},
        "rows": [],
    }
    assert logger.failures == 1 and len(caplog.records) == 1


def wandb_labels(path):
    """What a W&B file says of its run: its labels and its config."""
    from wandb.proto import wandb_internal_pb2

    labels, config = {}, {}
    for data in wandb_entries(path.read_bytes()):
        entry = wandb_internal_pb2.Record()
        entry.ParseFromString(data)
        kind = entry.WhichOneof("record_type")
        update = entry.run.config if kind == "run" else entry.config
        if kind in ("run", "config"):
            config |= {item.key: json.loads(item.value_json) for item in update.update if item.key}
        if kind == "run":
            labels = {
                "project": entry.run.project,
                "name": entry.run.display_name,
                "group": entry.run.run_group,
                "tags": list(entry.run.tags),
                "notes": entry.run.notes,
            }
    return labels, config


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
    files = sorted(tmp_path.rglob("*.wandb"), key=lambda path: path.stat().st_mtime_ns)
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
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    logger = make_logger(LoggerConfig(wandb="offline", console=False), tmp_path / "run")
    logger.start({"lr": 1})
    logger.log(record(0))
    logger.close()
    (file,) = tmp_path.rglob("*.wandb")
    assert file.is_relative_to(tmp_path / "elsewhere")
    assert wandb_labels(file)[0]["project"] == "rlkit"
