"""Several seeds on a CPU: in groups, one for each core, since a program uses little more than one;
or, in a deterministic run, one after the other.
"""

import math
import os
from collections.abc import Callable
from concurrent import futures
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from rlkit.types import PyTree
from rlkit.xla_cpu.switch import is_on

# of the memory: the replay memories of all seeds are split into groups and joined again, and
# meanwhile exist twice
SHARE = 0.25

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def num_groups(num_seeds: int, *, replay_bytes: int = 0, memory: int | None = None) -> int:
    """The number of equally large groups in which seeds train fastest here: one per core.

    Returns 1 if the device is not a CPU, if the trick "parallel-seeds" is off, or if the replay
    memories of all seeds (`replay_bytes`) take more than a quarter of `memory` (bytes).
    """
    is_split = not _is_large(replay_bytes, memory) and is_on("parallel-seeds")
    if num_seeds == 1 or not is_split:
        return 1
    size = math.ceil(num_seeds / min(num_seeds, cores()))
    return math.ceil(num_seeds / size)


def trains_seed_by_seed(
    num_seeds: int, *, deterministic: bool, replay_bytes: int = 0, memory: int | None = None
) -> bool:
    """Whether each of several seeds is to equal the single run of its seed in every bit.

    On other devices than a CPU one program for all seeds is much faster, and with large replay
    memories (see `num_groups`) it takes half the memory: there they are equal up to rounding.
    """
    is_cpu = jax.default_backend() == "cpu"
    return deterministic and num_seeds > 1 and is_cpu and not _is_large(replay_bytes, memory)


def _is_large(replay_bytes: int, memory: int | None) -> bool:
    return memory is not None and replay_bytes > SHARE * memory


def cores() -> int:
    """The cores XLA uses: `NPROC` if it is a positive number, else all open to this process."""
    asked = os.environ.get("NPROC", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ParallelSeeds(Generic[Argument, Result]):
    """A function of one argument for all seeds [S, ...], computed for groups of them in parallel.

    All groups have the same size, so they share one executable. If S is not divisible, the last two
    overlap, and the last one's results for the shared seeds are dropped. Like any compiled
    function, it returns before the results are computed.

    Args:
        compiled: compiles a function, see `Compiler`.
        function: maps a pytree with a leading axis of any size to results with the same axis.
        threads: returns a single-thread executor for each group.
        num_seeds, groups: S and the number of groups.
        donate: whether the argument is donated.
    """

    def __init__(
        self,
        compiled: Callable[..., Any],
        function: Callable[[Argument], Result],
        threads: Callable[[], list[futures.ThreadPoolExecutor]],
        *,
        num_seeds: int,
        groups: int,
        donate: bool,
    ):
        size = math.ceil(num_seeds / groups)
        shared = groups * size - num_seeds  # seeds in both of the last two groups

        def part(argument: PyTree, start: int) -> PyTree:
            return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, start, size), argument)

        def join(*found: PyTree) -> PyTree:
            return jax.tree.map(lambda *x: jnp.concatenate([*x[:-1], x[-1][shared:]]), *found)

        self._starts = [np.int32(min(index * size, num_seeds - size)) for index in range(groups)]
        self._part, self._join = compiled(part), compiled(join)
        self.function = compiled(function, donate=(0,) if donate else ())
        self._donate = donate
        self._threads = threads

    def __call__(self, argument: Argument) -> Result:
        parts = [self._part(argument, start) for start in self._starts]
        self.function.compile(parts[0])
        if self._donate:
            _delete(argument)
        started = [
            thread.submit(self.function, part)
            for thread, part in zip(self._threads(), parts, strict=True)
        ]
        futures.wait(started)
        return self._join(*(future.result() for future in started))


class SeedBySeed(Generic[Argument, Result]):
    """A function of one argument for all seeds [S, ...], computed for one seed after the other.

    The program is that of a run with a single seed, so the results are equal to the bit: mapped
    over seeds, XLA may add up products in another order. Arguments as of `ParallelSeeds`, but
    `function` maps a pytree without the axis S.
    """

    def __init__(
        self,
        compiled: Callable[..., Any],
        function: Callable[[Argument], Result],
        *,
        num_seeds: int,
        donate: bool,
    ):
        def part(argument: PyTree, index: int) -> PyTree:
            return jax.tree.map(lambda x: x[index], argument)

        def join(*found: PyTree) -> PyTree:
            return jax.tree.map(lambda *x: jnp.stack(x), *found)

        self._indices = [np.int32(index) for index in range(num_seeds)]
        self._part, self._join = compiled(part), compiled(join)
        self.function = compiled(function, donate=(0,) if donate else ())
        self._donate = donate

    def __call__(self, argument: Argument) -> Result:
        parts = [self._part(argument, index) for index in self._indices]
        self.function.compile(parts[0])
        if self._donate:
            _delete(argument)
        return self._join(*(self.function(part) for part in parts))


def _delete(tree: PyTree) -> None:
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, jax.Array):
            leaf.delete()
