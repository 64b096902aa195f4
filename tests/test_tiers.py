"""The tiers of the suite, and the process that runs its scripts."""

import os

import pytest
from script_process import ScriptProcess
from tiers import REPRESENTATIVES, by_default, representative

from rlkit.algorithms.registry import list_algorithms


@pytest.mark.fast
def test_a_new_algorithm_goes_to_the_full_matrix():
    cases = representative([*list_algorithms(), ("new", "none", 1), ("dqn", "none", 1)])
    full = [case.values for case in cases if is_full(case)]
    default = [case for case in cases if not is_full(case)]
    assert default == [x for x in list_algorithms() if x in REPRESENTATIVES] + [("dqn", "none", 1)]
    assert len(default) == 1 + len(REPRESENTATIVES)
    assert len(default) + len(full) == len(cases) and ("new", "none", 1) in full


def is_full(case):
    return [mark.name for mark in getattr(case, "marks", ())] == ["full"]


@pytest.mark.fast
def test_what_is_no_default_is_in_the_full_matrix():
    first, second, third = by_default([1, (2, "b")], [1, (2, "b"), (3, "c")])
    assert (first, second) == (1, (2, "b")) and is_full(third) and third.values == (3, "c")
    with pytest.raises(AssertionError):  # a default that is no case would run nowhere
        by_default([4], [1])


@pytest.mark.process
def test_scripts_in_one_process_do_not_see_each_other(tmp_path):
    """Own arguments, directory, output and exit status; one that ends the process ends no other."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\n"
        "print(__name__, os.getcwd(), sys.argv[1:], 'x' in globals())\n"
        "x = 1\n"
        "if sys.argv[1] == 'exit':\n    sys.exit(3)\n"
        "if sys.argv[1] == 'abort':\n    os._exit(4)\n"
        "if sys.argv[1] == 'raise':\n    raise ValueError('wrong')\n"
    )
    with ScriptProcess() as scripts:
        words = ("fine", "exit", "raise", "abort", "fine")
        done = [scripts.run(script, word, directory=tmp_path) for word in words]
    assert [one.returncode for one in done] == [0, 3, 1, 4, 0]
    assert "ValueError: wrong" in done[2].stderr and done[0].stderr == done[4].stderr == ""
    for word, one in zip(words, done, strict=True):
        if word != "abort":  # which loses what Python had not written yet
            assert one.stdout == f"__main__ {os.path.realpath(tmp_path)} ['{word}'] False\n"
