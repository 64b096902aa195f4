"""The mutants can be tried: what they change is there, once, and so are the tests."""

import subprocess
from pathlib import Path

import pytest
import try_mutants
from mutants import MUTANTS
from try_mutants import check_unchanged, judge, verdict

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_is_changed_and_tested_exists(mutant):
    assert (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.old) == 1
    assert mutant.new != mutant.old and mutant.tests
    for test in mutant.tests:
        path, _, name = test.partition("[")[0].partition("::")
        assert f"def {name}" in (ROOT / path).read_text(encoding="utf-8")


def test_a_mutant_without_its_anchor_is_told(tmp_path):
    assert "ANCHOR NOT FOUND" in verdict(tmp_path, MUTANTS[0])


@pytest.mark.parametrize(
    ("raised", "wanted"),
    [("AssertionError", "caught (AssertionError)"), ("AttributeError", "NOT TRIED")],
)
def test_a_mutant_that_is_no_valid_code_counts_as_not_tried(raised, wanted):
    said = f"E   what was wrong\n\ntests/ops/test_returns.py:12: {raised}\n1 failed in 0.1s\n"
    assert judge(MUTANTS[0], 1, said).startswith(wanted)


def test_each_file_has_its_own_time_without_a_mutant(tmp_path, monkeypatch):
    asked = []

    def run_tests(copy, tests):
        asked.append(tests)
        if len(asked) == 3:
            raise subprocess.TimeoutExpired("pytest", try_mutants.LONGEST)
        return 0, ""

    monkeypatch.setattr(try_mutants, "run_tests", run_tests)
    with pytest.raises(SystemExit, match=r"test_losses\.py takes more than 600 s"):
        check_unchanged(tmp_path, [MUTANTS[i] for i in (0, 1, 4, 5, 0)])
    assert asked == [MUTANTS[i].tests for i in (0, 4, 5)]
