"""Sequential: collect, then update, exactly on-policy."""

from jax import Array

from rlkit.training.core.module import iteration
from rlkit.training.programs.schedules.base import (
    HostParts,
    IterationResult,
    LoopState,
    Parts,
    stack,
)
from rlkit.types import TrainState


class Sequential:
    """The `Schedule` that alternates between collecting and updating."""

    def __init__(self, parts: HostParts):
        self._parts = parts
        self.last_finished: tuple[TrainState, int] | None = None

    def run(self, ts: TrainState, num_iterations: int) -> tuple[TrainState, IterationResult]:
        """See `Schedule`."""
        results: list[IterationResult] = []
        for index in range(num_iterations):
            self.last_finished = ts, index
            ts, result = iteration(self, ts, index)
            results.append(result)
        self.last_finished = ts, num_iterations
        return ts, stack(results)

    def get_batch(self, ts: TrainState, i: Array | int) -> tuple[TrainState, LoopState]:
        """See `Module`: a rollout by the current policy."""
        state = self._parts.collect(ts, ts.learner.policy)
        return state.ts, state

    def training_step(
        self, i: Array | int, ts: TrainState, batch: LoopState
    ) -> tuple[TrainState, IterationResult]:
        """See `Module`: the update from that rollout; returns before it is computed."""
        return self._parts.update(batch.replace(ts=ts))


def update_then_collect(parts: Parts, state: LoopState) -> tuple[LoopState, IterationResult]:
    """The update, then the next rollout by the new policy: the same order from mid-iteration."""
    ts, result = parts.update(state)
    return parts.collect(ts, ts.learner.policy), result
