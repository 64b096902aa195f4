"""What the schedules of an outer iteration share: its parts, its states, its results."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from flax import struct
from jax import Array

from rlkit.training.programs.host_collector import HostCollector
from rlkit.training.programs.host_functions import HostFunctions, bare
from rlkit.types import PolicyState, Rollout, TrainState
from rlkit.xla_cpu.packing import Packed


class IterationResult(NamedTuple):
    """What iterations return apart from the state."""

    metrics: Packed  # of one iteration; of several, vectors have a leading axis K
    counters: Any  # (environment steps, updates) after the last one


class LoopState(struct.PyTreeNode, kw_only=True):
    """Between two iterations: a state, and the rollout that it learns from next."""

    ts: TrainState
    rollout: Rollout  # [T, (S,) N, ...]
    behaviour: PolicyState | None = None  # collected the rollout; None: the present policy
    is_collected: bool | Array = True  # in a compiled loop False where there was no more step


class Parts(Protocol):
    """What an iteration is made of: called from Python, or traced into a program."""

    def collect(self, ts: TrainState, policy: PolicyState, /) -> LoopState:
        """A rollout by `policy`."""
        ...

    def update(self, state: LoopState, /) -> tuple[TrainState, IterationResult]:
        """One update from the rollout, whose state is taken over."""
        ...


class Schedule(Protocol):
    """Runs the iterations of an outer iteration on the host."""

    last_finished: tuple[TrainState, int] | None
    """(state, iterations) after the last update that was finished in this `run`."""

    def run(self, ts: TrainState, num_iterations: int, /) -> tuple[TrainState, IterationResult]:
        """The state after that many iterations, which takes `ts` over; metrics are stacked."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostParts:
    """The parts of an iteration, called from Python."""

    functions: HostFunctions
    collector: HostCollector

    def collect(self, ts: TrainState, policy: PolicyState) -> LoopState:
        """See `Parts`."""
        ts, group_keys = self.collector.take_keys(ts)
        ts, rollout = self.collector.collect(ts, policy, group_keys, self.functions.act)
        return LoopState(ts=ts, rollout=rollout)

    def update(self, state: LoopState) -> tuple[TrainState, IterationResult]:
        """See `Parts`; returns before the update is computed."""
        return update(self.functions.learn, state)


def update(learn: Callable[..., Any], state: LoopState) -> tuple[TrainState, IterationResult]:
    """`learn` (see `SeedFunctions`) for a state with observations and carry, which stay."""
    before = state.ts.local
    learner, local, metrics, counters = learn(
        state.ts.learner, bare(before), state.rollout, state.behaviour
    )
    local = local.replace(obs=before.obs, carry=before.carry)
    return TrainState(learner=learner, local=local), IterationResult(metrics, counters)


def stack(results: Sequence[IterationResult]) -> IterationResult:
    """The results of iterations as one, metrics as NumPy vectors [K, (S,) ...]."""
    metrics = jax.device_get([result.metrics for result in results])
    return IterationResult(
        jax.tree.map(lambda *vectors: np.stack(vectors), *metrics), results[-1].counters
    )
