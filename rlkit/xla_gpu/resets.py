"""Whether to reset every environment in each step, or to look for those that ended."""

from collections.abc import Callable
from typing import Any

import jax
from jax import Array

from rlkit.xla_gpu.switch import is_on
from rlkit.xla_gpu.work import work_of

# A loop over those that ended asks the host at least once in each step whether to go on, and costs
# as much as some dozens of kernels (benchmarks/notes.md). These bounds are about as much, a choice.
MOST_OPERATIONS = 1_500  # of one reset
MOST_NUMBERS = 2**26  # of all resets together, mapped seeds not counted


def resets_all(reset: Callable[[Array], Any], key: Array, num_envs: int) -> bool:
    """Whether `num_envs` environments are all reset in each step, and those chosen that ended.

    `reset` takes a key like `key`. True on a GPU, if resetting all is less work than a loop over
    the few.
    """
    if not is_on("whole-resets"):
        return False
    work = work_of(jax.make_jaxpr(reset)(jax.ShapeDtypeStruct(key.shape, key.dtype)))
    return work.operations <= MOST_OPERATIONS and work.numbers * num_envs <= MOST_NUMBERS
