"""The mutants can be tried: what they change is there, once, and so are the tests."""

from pathlib import Path

import pytest
from mutants import MUTANTS
from try_mutants import verdict

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_is_changed_and_tested_exists(mutant):
    assert (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.old) == 1
    assert mutant.new != mutant.old and mutant.tests
    for test in mutant.tests:
        path, _, name = test.partition("::")
        assert f"def {name}" in (ROOT / path).read_text(encoding="utf-8")


def test_a_mutant_without_its_anchor_is_told(tmp_path):
    assert "ANCHOR NOT FOUND" in verdict(tmp_path, MUTANTS[0])
