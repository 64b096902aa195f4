"""The modules of benchmarks/, which are scripts beside each other and no package."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    before = set(sys.modules)
    for part in ("", "curves", "learning", "drivers"):
        monkeypatch.syspath_prepend(str(BENCHMARKS / part))
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
            del sys.modules[name]
