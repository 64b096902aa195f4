"""How much work a traced function is, without compiling it."""

import math
from typing import NamedTuple

from jax.extend.core import ClosedJaxpr, Jaxpr, jaxprs_in_params


class Work(NamedTuple):
    """What one call takes: operations on arrays, and the numbers that they compute."""

    operations: float
    numbers: float


HOLDERS = ("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call")
HOLDERS += ("remat2", "checkpoint", "cond", "scan")
"""Primitives that do what the jaxprs in them say; others have some for a single number."""
ENDLESS = Work(math.inf, math.inf)


def work_of(jaxpr: ClosedJaxpr | Jaxpr) -> Work:
    """The work of a (closed) jaxpr: loops count as often as they run, conditionals all branches.

    Endless with a loop of unknown length, or a call of Python.
    """
    operations = numbers = 0.0
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        name = equation.primitive.name
        if name == "while" or name.endswith("_callback"):
            return ENDLESS
        if name in HOLDERS:
            times = equation.params.get("length", 1) if name == "scan" else 1
            for inner in jaxprs_in_params(equation.params):
                work = work_of(inner)
                operations += times * work.operations
                numbers += times * work.numbers
        else:
            operations += 1
            numbers += sum(math.prod(getattr(x.aval, "shape", ())) for x in equation.outvars)
    return Work(operations, numbers)
