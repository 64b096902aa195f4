"""These tests are of the tricks themselves, so that they are on whatever the suite runs with."""

import pytest

from rlkit.xla_cpu.switch import VARIABLE


@pytest.fixture(autouse=True)
def tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "on")
