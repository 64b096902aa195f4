"""Which tests of a parametrised battery run by default: one algorithm stands for each kind, all
others are in the full matrix (`make test-all`).

For what the parts around an algorithm do: command line, checkpoints, the loop on the host. What an
algorithm computes (laws, probes, losses) is tested by default for each of them.
"""

from collections.abc import Iterable
from typing import Any

import pytest

REPRESENTATIVES = ("ppo", "dqn", "sac")  # on-policy; replay; replay and continuous actions


def representative(cases: Iterable[Any]) -> list[Any]:
    """`cases` for `parametrize`, names of algorithms or tuples that begin with one; those of other
    algorithms than `REPRESENTATIVES` are marked `full`.
    """
    return [_marked(case if isinstance(case, tuple) else (case,)) for case in cases]


def _marked(case: tuple[Any, ...]) -> Any:
    marks = () if case[0] in REPRESENTATIVES else (pytest.mark.full,)
    return pytest.param(*case, marks=marks)
