"""Records survive kills, resumes and broken loggers."""

import json
import math
import os
import signal
import subprocess
import sys
import time
import traceback

import pytest

from rlkit.errors import ConfigError, RunDirectoryError
from rlkit.training.config import LoggerConfig
from rlkit.training.logs.console_logger import ConsoleLogger
from rlkit.training.logs.csv_logger import CsvLogger
from rlkit.training.logs.human_units import human_count, human_seconds
from rlkit.training.logs.jsonl_logger import JsonlLogger
from rlkit.training.logs.logger import Logger, Outcome, Publisher
from rlkit.training.logs.loggers import as_logger, check_logger, make_logger
from rlkit.training.logs.multi_logger import MultiLogger
from rlkit.training.logs.records import Record, read_records
from rlkit.training.logs.redaction import redact
from rlkit.training.logs.tensorboard_logger import TensorboardLogger
from rlkit.training.logs.wandb_logger import WandbLogger


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
@pytest.mark.parametrize("kind", [JsonlLogger, CsvLogger])
def test_resumed_file_equals_the_uninterrupted_one(kind, tmp_path):
    whole = kind(tmp_path / "whole.txt")
    for step in range(10):
        whole.log(record(step))
    cut = kind(tmp_path / "cut.txt")
    for step in range(7):
        cut.log(record(step))
        if step == 3:
            state = json.loads(json.dumps(cut.state()))
    with open(cut.path, "a") as file:
        file.write('{"kind": "ev')
    cut.close()
    resumed = kind(cut.path)
    resumed.restore(state)
    for step in range(4, 10):
        resumed.log(record(step))
    assert cut.path.read_bytes() == whole.path.read_bytes()
    dropped = (tmp_path / "cut.dropped.txt").read_text()
    assert dropped.startswith(kind.HEADER)
    lost = "".join(resumed.rows(record(step)) for step in (4, 5, 6)) + '{"kind": "ev\n'
    assert sorted(dropped.removeprefix(kind.HEADER).splitlines()) == sorted(lost.splitlines())
    assert resumed.state() == whole.state()


@pytest.mark.fast
def test_restoring_nothing_begins_again(tmp_path):
    config = LoggerConfig(console=False, csv=True)
    make_logger(config, tmp_path).log(record(5))
    again = make_logger(config, tmp_path)
    again.restore({})
    again.log(record(6))
    assert read_records(tmp_path / "metrics.jsonl") == [record(6)]
    assert read_records(tmp_path / "metrics.dropped.jsonl") == [record(5)]
    for name, step in (("metrics.csv", 6), ("metrics.dropped.csv", 5)):
        row = f"eval,{step},0,{step / 2},,eval/avg_return,{step}.0\n"
        assert (tmp_path / name).read_text() == CsvLogger.HEADER + row


@pytest.mark.fast
@pytest.mark.parametrize("before", [lambda path: path, lambda path: [path], JsonlLogger])
@pytest.mark.parametrize("after", [lambda path: path, lambda path: [path], JsonlLogger])
def test_a_file_is_cut_where_the_checkpoint_was_however_it_is_given(before, after, tmp_path):
    path = tmp_path / "rows.jsonl"
    logger = as_logger(before(path))
    logger.log(record(1))
    state = logger.state()
    logger.log(record(2))
    logger.close()
    resumed = as_logger(after(path))
    resumed.restore(json.loads(json.dumps(state)))
    resumed.log(record(3))
    resumed.close()
    assert read_records(path) == [record(1), record(3)]


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
        "import itertools, sys\nfrom rlkit.training.logs.jsonl_logger import *\nfrom"
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
@pytest.mark.parametrize("name", ["csv", "tensorboard"])
def test_files_of_a_run_need_its_directory(name):
    config = LoggerConfig(**{name: True})
    with pytest.raises(ConfigError, match=f"{name}=True .* but there is none; set run_dir"):
        as_logger(config)


@pytest.mark.fast
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full disk")
def test_full_disk_is_raised_after_the_others_ran(tmp_path, capsys):
    full = JsonlLogger(tmp_path / "metrics.jsonl")
    full._file._descriptor = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(RunDirectoryError, match="No space left"):
        MultiLogger([full, ConsoleLogger()]).log(record(7))
    assert "return 7" in capsys.readouterr().out


@pytest.mark.fast
@pytest.mark.parametrize("name", ["csv", "tensorboard"])
def test_copies_that_cannot_be_written_stop_nothing(name, tmp_path, caplog):
    logger = make_logger(LoggerConfig(console=False, **{name: True}), tmp_path)
    (tmp_path / name).touch()  # in the way of TensorBoard's directory
    copy = logger.loggers.get("CsvLogger")
    if copy is not None:
        copy._file._descriptor = os.open("/dev/full", os.O_WRONLY)
    for step in (1, 2):
        logger.log(record(step))
    logger.close()
    assert read_records(tmp_path / "metrics.jsonl") == [record(1), record(2)]
    failures = [text for text in caplog.messages if "and the other loggers continue" in text]
    assert len(failures) == 1 and "cannot write records to" in failures[0]


@pytest.mark.fast
def test_one_failing_logger_does_not_stop_the_others(tmp_path, caplog):
    broken, whole = ConsoleLogger(), JsonlLogger(tmp_path / "metrics.jsonl")
    broken.log = lambda record: 1 / 0
    multi = MultiLogger([broken, whole])
    for step in range(3):
        multi.log(record(step))
    assert len(read_records(whole.path)) == 3
    assert caplog.text.count("ZeroDivisionError") == 1


class Gallery(ConsoleLogger):
    def publish(self, outcome):
        self.got = outcome


@pytest.mark.fast
def test_an_outcome_goes_to_those_that_publish():
    gallery, outcome = Gallery(), Outcome(curve=None, export_policy=None)
    multi = MultiLogger([ConsoleLogger(), gallery])
    assert isinstance(multi, Publisher)
    multi.publish(outcome)
    assert gallery.got is outcome


@pytest.mark.fast
def test_console_lines(capsys):
    logger = ConsoleLogger()
    logger.log(record(1_250_000, metrics={"eval/avg_return": 123.456, "eval/done_info/x": 1.0}))
    # Of several seeds, only their mean is shown.
    logger.log(record(1_250_000, metrics={"eval/avg_return": 1.0}, seed=2))
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
    with pytest.raises(ZeroDivisionError) as caught:
        try:
            raise KeyError("first")
        except KeyError:
            1 / 0  # noqa: B018
    caught.value.add_note("For simplicity, frames are left out.")
    broken = "".join(traceback.format_exception(caught.value))
    logger.log(record(0, kind="error", text=broken, metrics={}))
    lines = capsys.readouterr().out.splitlines()
    evaluation = " 1.25M steps | 173h36m | return 123.5 | done_info/x 1"
    whole = "  999k steps | 138h45m | return -1.235e+04 (sampled -1.235e+04) | length 1000"
    assert lines == [
        evaluation,
        "     0 steps | 0s | return 1",
        whole,
        "     0 steps | 0s | error: it broke",
        "     0 steps | 0s | error: ZeroDivisionError: division by zero",
    ]
    assert [human_count(n) for n in (999, 999_960, 3e9)] == ["999", "1M", "3B"]
    assert [human_seconds(n) for n in (59.4, 185, math.nan)] == ["59s", "3m05s", "?"]


@pytest.mark.fast
def test_secrets_are_redacted():
    config = {
        "lr": 1.0,
        "env": {"API_KEY": "x", "nested": [{"userPassword": "y", "steps": 3}]},
        "auth_token": ["z"],
        "num_tokens": 3,
        "secret_door": True,
        "token": None,
    }
    clean = redact(config)
    assert clean["env"] == {
        "API_KEY": "<redacted>",
        "nested": [{"userPassword": "<redacted>", "steps": 3}],
    }
    assert (
        clean["lr"] == 1.0
        and clean["auth_token"] == ["<redacted>"]
        and [clean[name] for name in ("num_tokens", "secret_door", "token")] == [3, True, None]
        and config["env"]["API_KEY"] == "x"
    )


@pytest.mark.fast
def test_every_logger_follows_the_protocol(tmp_path):
    loggers = [
        as_logger(tmp_path / "a.jsonl"),
        as_logger(None, tmp_path),
        ConsoleLogger(),
        CsvLogger(tmp_path / "a.csv"),
        TensorboardLogger(tmp_path / "tensorboard"),
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
print({'jax', 'wandb', 'matplotlib', 'tensorboardX'} & set(sys.modules))
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


class Own:
    """A logger of a user."""

    def __init__(self):
        self.calls = []

    def start(self, run_info):
        self.calls.append("start")

    def log(self, record):
        raise RuntimeError("boom")

    def state(self):
        return {"seen": 3}

    def restore(self, state):
        self.calls.append(state)

    def flush(self):
        self.calls.append("flush")

    def close(self):
        self.calls.append("close")


@pytest.mark.fast
def test_loggers_of_a_user_stand_beside_others(tmp_path, caplog):
    own = Own()
    logger = as_logger([LoggerConfig(console=False), own, tmp_path / "copy.jsonl"], tmp_path)
    logger.start({})
    logger.log(record(8))
    logger.restore(logger.state() | {"JsonlLogger": {}})
    logger.log(record(16))
    logger.close()
    for name in ("metrics.jsonl", "copy.jsonl"):
        assert [row.env_steps for row in read_records(tmp_path / name)][-1] == 16
    assert own.calls == ["start", {"seen": 3}, "flush"]  # it is the user's to close
    assert caplog.text.count("Own failed (RuntimeError: boom)") == 1
    for nested in ([[own]], [MultiLogger([own])]):
        as_logger(nested, tmp_path / "nested").close()
    assert "close" not in own.calls
    with pytest.raises(ConfigError, match=r"cannot log to 3; .* or a list of these"):
        as_logger([own, 3], tmp_path)
    with pytest.raises(ConfigError, match="csv=True writes to the run directory"):
        check_logger([own, LoggerConfig(csv=True)], None)
