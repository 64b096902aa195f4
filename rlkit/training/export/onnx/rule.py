"""What a rule is: it adds the nodes of one primitive to a graph."""

from collections.abc import Callable
from typing import Any

import numpy as np

Rule = Callable[..., Any]
"""`rule(graph, eqn, *inputs)`: the name of the output, or a list of them. `eqn` is JAX's."""


class Unsupported(Exception):
    """A primitive that has a rule, in a form that the rule does not cover; says which form."""


def shape_of(variable: Any) -> tuple[Any, ...]:
    """The shape of a variable of an equation; dimensions are integers or symbolic."""
    return variable.aval.shape


def dtype_of(variable: Any) -> np.dtype:
    """The dtype of a variable of an equation."""
    return np.dtype(variable.aval.dtype)
