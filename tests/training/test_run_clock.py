"""The clock of a run: a row's speed is that of everything since the row before."""

import types

import pytest

from rlkit.training.run_clock import RunClock

pytestmark = pytest.mark.fast


def test_the_speed_of_a_logged_lap_is_that_of_all_since_the_last_one(monkeypatch):
    compiler = types.SimpleNamespace(seconds=0.0)
    now = iter([100.0, 101.0, 103.0, 104.0])
    monkeypatch.setattr("rlkit.training.run_clock.time.perf_counter", lambda: next(now))
    clock = RunClock(compiler)
    clock.start_laps()
    assert clock.lap(60, is_logged=False) == 60.0
    assert clock.lap(60) == 40.0 and clock.lap_seconds == 2.0
    compiler.seconds = 0.5  # of the next second
    assert clock.lap(60) == 120.0 and clock.env_steps == 180
