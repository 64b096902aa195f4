"""Callbacks know a small view of the run, which need not be a Trainer."""

import io
import sys
import types

import numpy as np
import pytest

from rlkit.training.callbacks import ProgressBar
from rlkit.training.config import Plan
from rlkit.training.run_progress import RunProgress

PLAN = Plan(
    num_checkpoints=3, epochs_per_checkpoint=2, env_steps_per_iteration=16, prefill_steps=20
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def a_view():
    progress = RunProgress.start(PLAN)
    return types.SimpleNamespace(
        plan=PLAN, env_steps=progress.env_steps, steps_at=lambda i: progress.steps_at(i, PLAN)
    )


@pytest.mark.fast
def test_nothing_is_drawn_into_a_pipe(monkeypatch):
    monkeypatch.setattr("sys.stderr", io.StringIO())
    bar, view = ProgressBar(), a_view()
    bar.on_run_start(view)
    bar.on_iteration_end(view, 2, {})
    bar.on_evaluation(view, 2, {"return": np.array([1.0, 2.0])})
    bar.on_run_end(view)
    assert sys.stderr.getvalue() == ""


@pytest.mark.fast
def test_the_progress_bar_asks_for_steps_alone(monkeypatch):
    monkeypatch.setattr("sys.stderr", Terminal())
    view = a_view()
    bar = ProgressBar()
    bar.on_iteration_end(view, 1, {})  # before the run: nothing to show
    bar.on_run_start(view)
    assert (bar._bar.initial, bar._bar.total) == (20, PLAN.total_steps)
    bar.on_iteration_end(view, 2, {})
    bar.on_evaluation(view, 2, {"return": np.array([1.0, 2.0])})
    assert bar._bar.n == 20 + 2 * 32 and "eval_return=1.5" in bar._bar.postfix
    bar.on_run_end(view)
    assert bar._bar is None and "eval_return=1.5" in sys.stderr.getvalue()
