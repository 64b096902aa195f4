"""Loops that carry few arrays: on a CPU, each array costs a copy in every step."""

from collections.abc import Callable
from typing import TypeVar

import jax

from rlkit.xla_cpu.matmul import computes_little
from rlkit.xla_cpu.packing import LONGEST_SMALL, NO_PACKING, NoPacking, Packed, Packing, PyTree
from rlkit.xla_cpu.switch import may_be_on

SMALL_COUNTER = 16  # numbers

State = TypeVar("State")  # any pytree, and so are the others
PackedState = TypeVar("PackedState")
Input = TypeVar("Input")


def pack_parameters(params: PyTree, batch: PyTree) -> Packing | NoPacking:
    """How a loop of updates on batches like `batch` carries the parameters.

    Small ones go as one vector if the networks compute little: otherwise XLA wakes another thread
    to copy a dozen arrays at the end of every update (benchmarks/notes.md). Only pays off with
    `pack_small_arrays`, which computes new parameters as such a vector.
    """
    rows = max((x.shape[0] for x in jax.tree.leaves(batch) if x.ndim), default=1)
    return Packing(params, longest=LONGEST_SMALL) if _packs(params, rows) else NO_PACKING


def pack_counters(
    state: PyTree, params: PyTree, *, num_steps: int, batch_size: int
) -> Packing | NoPacking:
    """How a loop of iterations carries its state.

    An iteration takes `num_steps` environment steps and an update on `batch_size` rows. If that is
    a single step of the environments, and networks that compute little, counters and other tiny
    arrays go as vectors: copying a few dozen of them would cost as much as learning
    (benchmarks/notes.md).
    """
    packs = num_steps == 1 and _packs(params, batch_size)
    return Packing(state, longest=SMALL_COUNTER) if packs else NO_PACKING


def _packs(params: PyTree, rows: int) -> bool:
    return may_be_on("packing") and computes_little(params, rows)


def packed_scan(
    step: Callable[[State, Input], tuple[State, PyTree]],
    state: State,
    inputs: Input,
    pack: Callable[[State], PackedState],
    unpack: Callable[[PackedState], State],
) -> tuple[State, Packed]:
    """`jax.lax.scan` that carries `pack(state)` from step to step and stacks outputs as vectors."""

    def packed_step(packed: PackedState, x: Input) -> tuple[PackedState, Packed]:
        state, output = step(unpack(packed), x)
        return pack(state), Packed.of(output)

    packed, outputs = jax.lax.scan(packed_step, pack(state), inputs)
    return unpack(packed), outputs
