"""Finds Boxes of integers that seem to be codes for things, such as the symbols of a grid."""

from collections.abc import Iterator

import numpy as np
from gymnasium import spaces

from rlkit.envs.jittable.contract import Finding
from rlkit.spaces import Space

MOST_CODES = 32  # values; pictures and counts have more, kinds of things seldom
MULTI_DISCRETE = (
    "declare spaces.MultiDiscrete(np.full(shape, number of codes)): agents read each as a one-hot"
    " vector, or from a learned table if there are many (embedding_threshold)"
)


def code_findings(label: str, space: Space, low: float, high: float) -> Iterator[Finding]:
    """A warning if the integers of a Box look like codes; `low` and `high` are what was seen.

    They do if several have the same small range from 0 on. A single one, or several with ranges of
    their own, may as well be a count; two values need no code. uint8 that reaches 255 by its bounds
    but hardly differs from 0 is either codes or badly scaled.
    """
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.integer):
        return
    if space.low.size < 2 or (space.low != 0).any() or np.ptp(space.high) != 0:
        return
    most = int(space.high.flat[0])
    if 1 < most < MOST_CODES:
        what = f"{label} holds integers from 0 to {most}"
        why = "if they stand for things, networks would read code 2 as between codes 1 and 3"
        yield Finding("warning", what, f"if these are codes, {MULTI_DISCRETE}", why)
    elif space.dtype == np.uint8 and most >= MOST_CODES and 0 < high < MOST_CODES and low == 0:
        what = f"{label} never exceeds {int(high)}, but its space allows {most}"
        why = (
            f"uint8 is divided by the bound of its space, so networks see at most {high / most:.2g}"
        )
        fix = "declare the highest value as the bound; or if these are codes, " + MULTI_DISCRETE
        yield Finding("warning", what, fix, why)
