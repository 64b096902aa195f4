"""The parts of the attack that are tests: they are run by pytest, and counted.

python tests/faults/under_pytest.py --all
"""

import os
import random
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any, NamedTuple

from attacked_runs import ROOT
from record import Record, Row, attack

LIMIT = 1500.0  # seconds for one of them


class Tests(NamedTuple):
    """An entry of the record: files of tests, and what `pytest -k` selects in them."""

    files: list[str]
    selected: str = ""
    sample: str | None = None  # what it selects for a sample; None: what the default suite has

    def options(self, *, is_sample: bool) -> list[str]:
        """Those of pytest that select them."""
        tiers, selected = "full or not full", self.selected
        if is_sample and self.sample is None:
            tiers = "not full"
        elif is_sample:
            selected = self.sample or ""
        return ["-m", tiers, "-k", selected, *self.files]


# By name in the record.
TESTS = {
    "bad_inputs": Tests(["tests/test_bad_inputs.py"]),
    "crafted_directories": Tests(["tests/training/test_strangers_directory.py"], "crafted"),
    "interrupted_calls": Tests(["tests/training/test_interrupted_calls.py"]),
    "dropped_fields": Tests(
        ["tests/training/test_dropped_fields.py"], sample="sac.pink or ppo.gru"
    ),
    "compilations_after_warm_up": Tests(
        ["tests/training/test_trainer.py", "tests/training/test_resume.py"],
        "one_compilation or extension_continues",
    ),
}
TITLES = {
    "bad_inputs": "bad inputs: one clear error, nothing written",
    "crafted_directories": "a stranger's run directory",
    "interrupted_calls": "calls of `run` that end early",
    "dropped_fields": "a field of the state dropped from a checkpoint: the resumed run differs",
    "compilations_after_warm_up": "compilations after the first outer iteration: none",
}


def main(dice: random.Random, directory: Path, is_sample: bool) -> dict[str, Any]:
    """Passed and failed tests of each entry; "not run" for one whose file is not there."""
    counts: dict[str, Any] = {}
    failures = []
    for name, tests in TESTS.items():
        if not all((ROOT / file).exists() for file in tests.files):
            counts[name] = "not run"
            continue
        passed, failed = _count(tests.options(is_sample=is_sample), directory)
        counts[name] = {"passed": passed, "failed": len(failed)}
        failures += [f"{name}: {test}" for test in failed]
        print(f"  {name}: {passed} passed, {len(failed)} failed", flush=True)
    return counts | {"failures": failures}


def _count(options: list[str], directory: Path) -> tuple[int, list[str]]:
    """How many cases passed, and the names of the tests that failed.

    A test is one case, unless it says how many it has by the property `cases`.
    """
    report = directory / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    command += ["-o", "junit_family=xunit1"]  # which may hold how many cases a test has
    command += [f"--junit-xml={report}"]
    environment = {k: v for k, v in os.environ.items() if k != "NPROC"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-2000:]
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [case for case in cases if {child.tag for child in case} & {"failure", "error"}]
    skipped = [case for case in cases if case.find("skipped") is not None]
    passed = [case for case in cases if case not in failed and case not in skipped]
    return sum(map(_size, passed)), [case.attrib["name"] for case in failed]


def _size(case: ElementTree.Element) -> int:
    told = case.find("properties/property[@name='cases']")
    return 1 if told is None else int(told.attrib["value"])


def rows(record: Record) -> list[Row]:
    """The rows of the table: what is attacked, how often, and what came of it."""
    return [(what, *_told(record.get(name, "not run"))) for name, what in TITLES.items()]


def _told(found: Any) -> tuple[str, str]:
    if not isinstance(found, dict):
        return "not run", ""
    return f"{found['passed'] + found['failed']} cases", f"{found['failed']} failed"


if __name__ == "__main__":
    attack("under_pytest", main)
