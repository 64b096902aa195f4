"""The attack of `make faults` is what docs/reliability.md says that it was."""

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
