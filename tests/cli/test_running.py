"""Signals, threads, exit codes and the final report."""

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from rlkit.cli import main as command
from rlkit.cli.closing_words import closing_words, mean_and_spread
from rlkit.cli.running import StopSignals, pin_threads
from rlkit.errors import NonFiniteError, RlkitError
from rlkit.training.config import Plan

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


class FakeTrainer:
    plan = Plan(
        num_checkpoints=20, epochs_per_checkpoint=50, env_steps_per_iteration=100, prefill_steps=0
    )

    def __init__(self, iteration_seconds=None, max_in_progress=1):
        self.reasons, self.iteration_seconds = [], iteration_seconds
        self.max_in_progress = max_in_progress

    def request_stop(self, reason):
        self.reasons.append(reason)


@pytest.mark.fast
@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_asks_the_trainer_to_stop(number, capfd):
    before = [signal.getsignal(each) for each in SIGNALS]
    with StopSignals() as signals:
        signals.trainer = trainer = FakeTrainer()
        os.kill(os.getpid(), number)
        assert trainer.reasons == [number.name]
        assert signals.received is number
        assert [signal.getsignal(each) for each in SIGNALS] == [
            signal.SIG_DFL
        ] * 3  # so the second one ends the process
    assert [signal.getsignal(each) for each in SIGNALS] == before
    assert "finishing this outer iteration (5,000 environment steps) and" in capfd.readouterr().err


@pytest.mark.fast
def test_a_signal_says_how_long_the_run_may_go_on(capfd):
    with StopSignals() as signals:
        signals.trainer = FakeTrainer(iteration_seconds=135.0, max_in_progress=2)
        os.kill(os.getpid(), signal.SIGINT)
    said = "finishing up to 2 outer iterations (10,000 environment steps, up to 4m30s) and saving"
    assert said in capfd.readouterr().err


@pytest.mark.fast
def test_without_a_signal_nothing_changes():
    before = [signal.getsignal(each) for each in SIGNALS]
    with StopSignals() as signals:
        assert signals.received is None
    assert [signal.getsignal(each) for each in SIGNALS] == before


@pytest.mark.fast
def test_a_signal_that_the_process_ignores_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopSignals() as signals:
            os.kill(os.getpid(), signal.SIGINT)
            assert signals.received is None
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.process
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("has_trainer", [True, False])
def test_the_signal_that_ends_at_once(number, has_trainer):
    """The second signal, or the first while there is nothing to save."""
    program = f"""
import os
from rlkit.cli.running import StopSignals
class Plan: steps_per_checkpoint = 100
class Trainer:
    plan, iteration_seconds, max_in_progress = Plan, None, 1
    def request_stop(self, reason): print("asked", flush=True)
with StopSignals() as signals:
    signals.trainer = Trainer() if {has_trainer} else None
    os.kill(os.getpid(), {number.value})
    os.kill(os.getpid(), {number.value})
print("survived")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -number
    assert done.stdout == ("asked\n" if has_trainer else "")


@pytest.mark.fast
def test_threads_are_pinned_before_jax_starts(monkeypatch):
    monkeypatch.setenv("NPROC", "8")
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    pin_threads()
    assert os.environ["NPROC"] == "1"


@pytest.mark.fast
def test_threads_cannot_be_pinned_later(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", sys)
    monkeypatch.delenv("NPROC", raising=False)
    with pytest.raises(RlkitError, match="too late"):
        pin_threads()
    monkeypatch.setenv("NPROC", "1")
    pin_threads()


@pytest.mark.fast
@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (RlkitError("one\ntwo"), 2, "rlkit: error: one two\n"),
        (NonFiniteError("diverged"), 1, "rlkit: error: diverged\n"),
        (KeyboardInterrupt(), 130, "rlkit: interrupted\n"),
    ],
)
def test_exit_codes(error, code, said, monkeypatch, capsys):
    def fail(arguments):
        raise error

    monkeypatch.setattr(command, "_dispatch", fail)
    assert command.main([]) == code
    assert capsys.readouterr().err == said


@pytest.mark.fast
def test_a_bug_shows_its_traceback(monkeypatch):
    monkeypatch.setattr(command, "_dispatch", lambda arguments: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        command.main([])


@pytest.mark.process
def test_a_reader_that_leaves_is_no_error():
    pipe = f"{sys.executable} -m rlkit.cli.main list envs | head -1"
    done = subprocess.run(pipe, shell=True, capture_output=True, timeout=60, check=True)
    assert done.stderr == b""


def evaluation(*seeds):
    returns = np.array(seeds, float)
    return {"return": returns, "length": returns + 1}


@pytest.mark.fast
class TestReport:
    def test_has_a_row_for_each_seed_and_one_for_all(self, tmp_path):
        said = closing_words(
            [evaluation([0, 0], [0, 0]), evaluation([1, 3], [7, 9])], str(tmp_path)
        ).splitlines()
        assert "mean ± standard deviation over 2 episodes; all: over seeds" in said
        rows = {line.split()[0]: line.split()[1:] for line in said if "±" in line}
        assert rows["0"] == ["2.00", "±", "1.41", "3.00", "±", "1.41"]
        assert rows["1"][:3] == ["8.00", "±", "1.41"]
        assert rows["all"][:3] == ["5.00", "±", "4.24"]

    def test_of_one_seed_needs_no_row_for_all(self, tmp_path):
        said = closing_words([evaluation(1, 3)], str(tmp_path))
        assert "mean ± standard deviation over 2 episodes\n" in said
        assert said.count("±") == 1 + 2
        assert "2.00 ± 1.41" in said

    def test_says_how_to_go_on(self):
        assert closing_words([], "run").endswith("\ntrain on     rlkit resume run --total-steps N")
        assert "rlkit evaluate 'my run'\n" in closing_words([], "my run")
        assert closing_words([], "run", is_stopped=True).endswith("\ncontinue     rlkit resume run")
        elsewhere = closing_words([], "run", outside=["my rows.jsonl", "saved"])
        assert "rlkit resume run --outside 'my rows.jsonl' saved --total-steps N" in elsewhere

    def test_uses_the_last_evaluation_there_is(self, tmp_path):
        assert "5.00 ±" in closing_words([evaluation(5, 5), {}], str(tmp_path))

    @pytest.mark.parametrize("history", [[], [{}]])
    def test_without_evaluations_the_next_commands_are_shown(self, history, tmp_path):
        said = closing_words(history, str(tmp_path))
        assert "±" not in said
        assert f"rlkit evaluate {tmp_path}" in said
        assert "learning_curve" not in said

    @pytest.mark.parametrize(
        ("num_seeds", "speed"),
        [
            (1, ("512,000 steps", "")),
            (4, ("4 x 512,000 steps", " over all seeds")),
        ],
    )
    def test_speed_and_plot(self, num_seeds, speed, tmp_path):
        summary = {
            "env_steps": 512_000,
            "num_seeds": num_seeds,
            "wall_seconds": 64.0,
            "compile_seconds": 8.0,
            "env_steps_per_second": 9000.0,
        }
        (tmp_path / "summary.json").write_text(json.dumps(summary))
        (tmp_path / "learning_curve.png").touch()
        said = closing_words([], str(tmp_path))
        size, over = speed
        compiling = "in 1m04s, of which compiling took 8s"
        assert f"\n{size} {compiling}; then 9,000 steps per second{over}\n" in said
        assert f"{tmp_path}/learning_curve.png" in said
        (tmp_path / "summary.json").write_text(json.dumps(summary | {"part_seconds": 20.0}))
        resumed = f"{size} in 1m04s; of this part's 20s, compiling took 8s; then 9,000 steps"
        assert resumed in closing_words([], str(tmp_path))
        (tmp_path / "summary.json").write_text(json.dumps(summary | {"part_seconds": 63.999}))
        assert f"{size} {compiling}" in closing_words([], str(tmp_path))
        nothing = summary | {"env_steps_per_second": 0.0}  # a run that was finished before
        (tmp_path / "summary.json").write_text(json.dumps(nothing))
        assert "per second" not in closing_words([], str(tmp_path))

    def test_a_seed_that_diverged_does_not_hide_the_others(self):
        assert mean_and_spread(np.array([1.0, np.nan, 3.0])).split() == ["2.00", "±", "1.41"]
        assert mean_and_spread(np.array([np.nan])).split() == ["nan"]


def test_done_info_is_shown_in_both_forms():
    from types import SimpleNamespace

    from rlkit.cli.evaluate import _as_json, _as_table

    policy = SimpleNamespace(checkpoint_step=3, env_steps=1000, num_seeds=1, seed_index=None)
    values = {
        name: np.array([1.0, 3.0])
        for name in ("return", "length", "sampled_return", "sampled_length")
    }
    result = values | {"done_info": {"won": np.array([0.0, 1.0, np.nan])}}
    told = json.loads(_as_json(policy, result))
    assert (
        told["return_mean"] == 2.0
        and told["return"] == [1.0, 3.0]
        and told["done_info_mean"] == {"won": 0.5}
        and told["done_info"]["won"][:2] == [0.0, 1.0]
    )
    assert json.loads(_as_json(policy, values))["done_info"] == {}
    table = _as_table(policy, result, is_best=True)
    assert table.startswith("checkpoint 3, after 1,000 steps\n")
    assert re.search(r"\nwon +0\.5$", table)
    assert "won" not in _as_table(policy, values, is_best=True)
    nested = values | {"done_info": {"parts": {"goal": {"hit": np.array([1.0, 2.0])}}}}
    table = _as_table(policy, nested, is_best=True)
    assert table.splitlines()[-1].split() == ["parts/goal/hit", "1.5"]  # as the logs call it
    pictures = values | {"done_info": {"picture": np.zeros((2, 3))}}
    assert "reported" not in _as_table(policy, pictures, is_best=True)


@pytest.mark.parametrize(
    ("is_best", "metrics", "said"),
    [
        (True, {"eval/avg_return": 1.0}, "the best of 4 seeds"),
        (True, {}, "of 4 seeds"),  # the run was never evaluated
        (False, {"eval/avg_return": 1.0}, "of 4 seeds"),
    ],
)
def test_of_several_seeds_the_evaluated_one_is_named(is_best, metrics, said):
    from types import SimpleNamespace

    from rlkit.cli.evaluate import _as_table

    seeds = {"num_seeds": 4, "seed_index": 2}
    policy = SimpleNamespace(checkpoint_step=3, env_steps=1000, metrics=metrics, **seeds)
    names = ("return", "length", "sampled_return", "sampled_length")
    values = {name: np.array([1.0, 3.0]) for name in names}
    first = _as_table(policy, values, is_best=is_best).splitlines()[0]
    assert first == f"checkpoint 3, after 1,000 steps, seed index 2 ({said})"
