"""Which cases of a parametrised battery run by default: one algorithm stands for each kind, and
each option appears once, but for the slowest. All combinations are in the full matrix (`make
test-matrix`).

For what the parts around an algorithm do: command line, checkpoints, the loop on the host. What an
algorithm computes (laws, losses, most probes) is tested by default for each of them.
"""

from collections.abc import Iterable
from typing import Any

import pytest

REPRESENTATIVES = ("ppo", "dqn", "sac")  # on-policy; replay; replay and continuous actions


def representative(cases: Iterable[Any]) -> list[Any]:
    """`cases` for `parametrize`, names of algorithms or tuples that begin with one; those of other
    algorithms than `REPRESENTATIVES` are marked `full`.
    """
    return [case if _name(case) in REPRESENTATIVES else in_full(case) for case in cases]


def in_full(case: Any) -> Any:
    """A case (one argument, or a tuple of them) that only the full matrix tests."""
    arguments = case if isinstance(case, tuple) else (case,)
    return pytest.param(*arguments, marks=pytest.mark.full)


def by_default(defaults: Iterable[Any], cases: Iterable[Any]) -> list[Any]:
    """`cases` for `parametrize`: `defaults` run by default, the others are marked `full`."""
    wanted, cases = list(defaults), list(cases)
    assert all(case in cases for case in wanted)
    return [case if case in wanted else in_full(case) for case in cases]


def _name(case: Any) -> str:
    return case[0] if isinstance(case, tuple) else case
