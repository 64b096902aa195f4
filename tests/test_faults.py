"""The attack of `make faults`: its table in docs/reliability.md, its parts, its samples."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.full
@pytest.mark.process
def test_the_page_shows_the_records():
    """After an attack or a soak: `python tests/faults/table.py`."""
    command = [sys.executable, "tests/faults/table.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.full
@pytest.mark.process
def test_a_part_that_does_not_exist_is_named():
    command = [sys.executable, "tests/faults", "kill"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2 and "there is no part 'kill'; choose from kills" in done.stderr


@pytest.mark.full
@pytest.mark.process
def test_a_sample_has_tests_of_every_entry(monkeypatch):
    """Also after tests have moved from the default suite to the full matrix."""
    monkeypatch.syspath_prepend(ROOT / "tests" / "faults")
    for name, tests in importlib.import_module("under_pytest").TESTS.items():
        options = ["-q", "--collect-only", *tests.options(is_sample=True)]
        command = [sys.executable, "-m", "pytest", *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, f"{name}: {done.stdout[-2000:]}"
