"""Rollouts that take several steps in one turn of the compiled loop."""

from collections.abc import Callable
from typing import Any

import jax

from rlkit.xla_gpu.switch import is_on
from rlkit.xla_gpu.work import work_of

STEPS = 8  # in one turn; measured in benchmarks/notes.md
MOST_OPERATIONS = 1_000  # of a step; longer ones take longer to compile, and gain less: a choice


def scan_rollout(
    step: Callable[[Any, Any], tuple[Any, Any]], start: Any, rows: Any, num_steps: int
) -> tuple[Any, Any]:
    """`jax.lax.scan` of `step` over the `num_steps` rows of a rollout.

    A single row needs no loop, which would copy its inputs and outputs. On a GPU, short steps are
    unrolled: XLA then writes the rows of several steps with one kernel, and copies no state. `step`
    is traced once more, to see whether it is short.
    """
    if num_steps == 1 or not is_on("unrolled-rollouts"):
        return jax.lax.scan(step, start, rows, unroll=num_steps == 1)
    first = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), rows)
    traced = jax.make_jaxpr(step)(start, first)
    short = work_of(traced).operations <= MOST_OPERATIONS
    return jax.lax.scan(step, start, rows, unroll=min(STEPS, num_steps) if short else 1)
