"""XLA options for small programs on a CPU."""

import math
from collections.abc import Iterator
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, jaxprs_in_params

from rlkit.xla_cpu.matmul import SMALL_PRODUCT
from rlkit.xla_cpu.switch import is_on

ON_ONE_THREAD: dict[str, str | bool] = {
    "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"
}


def compiler_options(jaxpr: ClosedJaxpr | Jaxpr) -> dict[str, str | bool]:
    """Recommended XLA options for the program of a (closed) jaxpr.

    Pass them to `lower(...).compile(compiler_options=...)`. On a CPU, XLA runs independent parts of
    a program on several threads. Waking a thread takes longer than a part of a program whose matrix
    products are all small, so such a program runs on one thread. {} for other programs, for other
    devices, and if the trick "compiler-options" is off. The Trainer compiles all its programs this
    way. For `fit`:

        rlkit.xla_cpu.enable()
        traced = jax.jit(lambda key: rlkit.fit(module, key, num_outer_iterations=10)).trace(key)
        program = traced.lower().compile(compiler_options=rlkit.compiler_options(traced.jaxpr))
    """
    is_small = is_on("compiler-options") and all(size <= SMALL_PRODUCT for size in _products(jaxpr))
    return dict(ON_ONE_THREAD) if is_small else {}


def _products(jaxpr: Any) -> Iterator[float]:
    """The number of multiplications of each matrix product, anywhere in the program.

    A convolution counts as large.
    """
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        if equation.primitive.name == "dot_general":
            (summed, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            yield math.prod(equation.outvars[0].aval.shape) * math.prod(
                shape[axis] for axis in summed
            )
        elif equation.primitive.name == "conv_general_dilated":
            yield math.inf
        for inner in jaxprs_in_params(equation.params):
            yield from _products(inner)
