"""How much work a traced function is, without compiling it."""

import math
from typing import Any, NamedTuple

from jax.extend.core import ClosedJaxpr, Jaxpr, jaxprs_in_params


class Work(NamedTuple):
    """What one call takes: operations on arrays, and the numbers that they compute."""

    operations: float  # infinite, like numbers, with a loop of unknown length
    numbers: float


def work_of(jaxpr: ClosedJaxpr | Jaxpr) -> Work:
    """The work of a (closed) jaxpr: loops count as often as they run, conditionals all branches."""
    operations = numbers = 0.0
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        inner = list(jaxprs_in_params(equation.params))
        times = _times(equation)
        for each in inner:
            work = work_of(each)
            operations += times * work.operations
            numbers += times * work.numbers
        if not inner:
            operations += 1
            numbers += sum(math.prod(getattr(x.aval, "shape", ())) for x in equation.outvars)
    return Work(operations, numbers)


def _times(equation: Any) -> float:
    if equation.primitive.name == "while":
        return math.inf
    return equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
