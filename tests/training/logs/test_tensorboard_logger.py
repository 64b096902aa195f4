"""Event files, read back by TensorBoard's own reader."""

import json
import math
import sys

import numpy as np
import pytest
from event_files import curves, hparams, read_events, texts

from rlkit.errors import ConfigError, RunDirectoryError
from rlkit.training.config import LoggerConfig
from rlkit.training.logs.records import Record
from rlkit.training.logs.tensorboard_logger import TensorboardLogger


def record(step, kind="eval", **fields):
    fields.setdefault("metrics", {"eval/avg_return": float(step)})
    return Record(kind=kind, env_steps=step, updates=step // 10, wall_seconds=step / 2, **fields)


def text(step, content, kind="event"):
    return record(step, kind=kind, text=content, metrics={})


@pytest.mark.fast
def test_seeds_are_runs_of_their_own_below_their_mean(tmp_path, caplog):
    logger = TensorboardLogger(tmp_path)
    settings = {"lr": 0.5, "sizes": [8, 8], "name": "ppo", "on": True, "token": "x"}
    logger.start(settings | {"unset": None})
    for step in (0, 10):
        for seed in (0, 1):
            logger.log(record(step, seed=seed, metrics={"eval/avg_return": step + seed}))
        logger.log(record(step, metrics={"eval/avg_return": step + 0.5, "eval/x": math.nan}))
    logger.log(record(20, kind="user", metrics={"user/my own": np.float32(3e38), "user/y": 1e300}))
    logger.close()
    mean = read_events(tmp_path)
    assert curves(mean)["eval/avg_return"] == [(0, 0.5), (10, 10.5)]
    assert all(math.isnan(value) for _, value in curves(mean)["eval/x"])
    assert curves(mean)["user/my own"] == [(20, float(np.float32(3e38)))]
    assert curves(mean)["user/y"] == [(20, math.inf)]  # the files hold 32 bits
    for seed in (0, 1):
        reader = read_events(tmp_path / f"seed_{seed}")
        assert curves(reader) == {"eval/avg_return": [(0, seed), (10, 10 + seed)]}
        assert hparams(reader) == {}
    assert not caplog.records
    assert hparams(mean) == settings | {"sizes": "[8, 8]", "token": "<redacted>"}


@pytest.mark.fast
def test_no_text_hides_another(tmp_path):
    """TensorBoard shows the last one of a name and step."""
    logger = TensorboardLogger(tmp_path)
    logger.log(text(0, "first"))
    logger.log(text(0, "second"))
    state = json.loads(json.dumps(logger.state()))
    logger.close()
    resumed = TensorboardLogger(tmp_path)
    resumed.restore(state)
    resumed.log(text(0, "third"))
    resumed.log(text(5, "fourth"))
    resumed.log(text(5, "Traceback\n  line", kind="error"))
    resumed.close()
    assert texts(read_events(tmp_path)) == {
        "event": [(0, "first"), (5, "fourth")],
        "event_2": [(0, "second")],
        "event_3": [(0, "third")],
        "error": [(5, "    Traceback\n      line")],  # code, in a tab that shows Markdown
    }


def log_steps(logger, steps):
    for step in steps:
        for seed in (0, 1, None):
            logger.log(record(step, seed=seed))
        logger.log(text(step, f"at {step}"))


@pytest.mark.fast
def test_resumed_files_equal_the_uninterrupted_ones(tmp_path):
    whole, first = TensorboardLogger(tmp_path / "whole"), TensorboardLogger(tmp_path / "parts")
    log_steps(whole, range(10))
    log_steps(first, range(4))
    state = json.loads(json.dumps(first.state()))
    first.log(text(3, "after the checkpoint"))
    log_steps(first, range(4, 7))
    first.log(record(6, seed=2))  # a file that the checkpoint does not know
    reader = read_events(tmp_path / "parts")
    assert len(curves(reader)["eval/avg_return"]) == 7
    first.close()
    second = TensorboardLogger(tmp_path / "parts")
    second.start({"lr": 1.0})
    second.restore(state)
    log_steps(second, range(4, 6))  # killed again, before another checkpoint
    second.close()
    third = TensorboardLogger(tmp_path / "parts")
    third.restore(state)
    log_steps(third, range(4, 10))
    for logger in (whole, third):
        logger.close()
    for folder in ("", "seed_0", "seed_1"):
        expected, found = (read_events(tmp_path / run / folder) for run in ("whole", "parts"))
        assert curves(found) == curves(expected) and texts(found) == texts(expected)
    assert not list((tmp_path / "parts" / "seed_2").iterdir())
    assert len(list((tmp_path / "parts").glob("*tfevents*"))) == 2
    expected = curves(read_events(tmp_path / "parts"))
    assert curves(reader.Reload()) == expected  # as one shows it that was left running


@pytest.mark.fast
def test_a_run_that_starts_over_has_nothing_twice(tmp_path):
    first = TensorboardLogger(tmp_path)
    first.start({"lr": 1.0})
    log_steps(first, range(3))
    (tmp_path / "events.out.tfevents.1700000000.mine").write_bytes(b"")  # somebody else's
    again = TensorboardLogger(tmp_path)
    again.start({"lr": 2.0})
    again.restore({})
    log_steps(again, range(2))
    again.close()
    (tmp_path / "events.out.tfevents.1700000000.mine").unlink()
    reader = read_events(tmp_path)
    assert curves(reader) == {"eval/avg_return": [(0, 0.0), (1, 1.0)]}
    assert hparams(reader) == {"lr": 2.0}


@pytest.mark.fast
def test_settings_are_written_once(tmp_path):
    first = TensorboardLogger(tmp_path)
    first.start({"lr": 1.0})
    first.log(record(0))
    state = first.state()
    first.close()
    resumed = TensorboardLogger(tmp_path)
    resumed.start({"lr": 2.0})
    resumed.restore(state)
    resumed.log(record(1))
    resumed.close()
    assert hparams(read_events(tmp_path)) == {"lr": 1.0}
    contents = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert contents.count(b"_hparams_/session_start_info") == 1


def test_without_tensorboardx_no_run_directory_is_made(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    config = LoggerConfig(tensorboard=True)
    with (
        tiny.trainer(run_dir=str(tmp_path / "run"), logger_config=config) as trainer,
        pytest.raises(ConfigError, match=r"needs tensorboardX .*; pip install tensorboardX$"),
    ):
        trainer.open()
    assert not (tmp_path / "run").exists()


@pytest.mark.fast
def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "tensorboard").write_text("")
    logger = TensorboardLogger(tmp_path / "tensorboard")
    with pytest.raises(RunDirectoryError, match=r"cannot write .*without --tensorboard"):
        logger.log(record(0))
