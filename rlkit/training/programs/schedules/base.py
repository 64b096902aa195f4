"""What the schedules share: the parts, states and results of iterations."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import jax
import numpy as np
from flax import struct
from jax import Array

from rlkit.training.programs.host_collector import HostCollector
from rlkit.training.programs.host_functions import HostFunctions, Learned, bare, with_obs_and_carry
from rlkit.types import Counters, PolicyState, Rollout, TrainState
from rlkit.xla_cpu.packing import Packed


class IterationResult(NamedTuple):
    """What iterations return besides the state."""

    metrics: Packed  # of one iteration; vectors of several have a leading axis K
    counters: Counters  # after the last one


class LoopState(struct.PyTreeNode, kw_only=True):
    """The state between two iterations, and the rollout it learns from next."""

    ts: TrainState
    rollout: Rollout  # [T, (S,) N, ...]
    behaviour: PolicyState | None = None  # collected the rollout; None: the current policy
    is_collected: bool | Array = True  # False in a compiled loop if no step was taken


class Parts(Protocol):
    """The parts of an iteration, called from Python or traced into a program."""

    def collect(self, ts: TrainState, policy: PolicyState, /) -> LoopState:
        """A rollout by `policy`."""
        ...

    def update(self, state: LoopState, /) -> tuple[TrainState, IterationResult]:
        """One update from the rollout; donates the state."""
        ...


class Schedule(Protocol):
    """Runs the iterations of an outer iteration on the host."""

    last_finished: tuple[TrainState, int] | None
    """(state, iterations) after the last update finished in this `run`."""

    def run(self, ts: TrainState, num_iterations: int, /) -> tuple[TrainState, IterationResult]:
        """The state after `num_iterations` iterations, and stacked metrics; donates `ts`."""
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


def update(learn: Callable[..., Learned], state: LoopState) -> tuple[TrainState, IterationResult]:
    """Calls `learn` (see `SeedFunctions`) on a state, keeping its observations and carry."""
    before = state.ts.local
    learner, local, metrics, counters = learn(
        state.ts.learner, bare(before), state.rollout, state.behaviour
    )
    ts = TrainState(learner=learner, local=with_obs_and_carry(local, before))
    return ts, IterationResult(metrics, counters)


def stack(results: Sequence[IterationResult]) -> IterationResult:
    """Joins the results of iterations; metrics become NumPy vectors [K, (S,) ...]."""
    metrics = jax.device_get([result.metrics for result in results])
    return IterationResult(
        jax.tree.map(lambda *vectors: np.stack(vectors), *metrics), results[-1].counters
    )
