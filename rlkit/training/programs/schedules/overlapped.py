"""Overlapped: the next rollout is collected while the update from the last one is computed."""

from collections.abc import Callable
from concurrent import futures
from typing import Protocol

from rlkit.training.programs.host_functions import with_obs_and_carry
from rlkit.training.programs.schedules.base import HostParts, IterationResult, LoopState, stack
from rlkit.types import PolicyState, TrainState

Update = Callable[[TrainState], tuple[TrainState, IterationResult]]


class OverlappedParts(Protocol):
    """The parts of an overlapped iteration, called from Python or traced into a program."""

    def copy_policy(self, policy: PolicyState, /) -> PolicyState:
        """The policy, usable after an update has donated its state."""
        ...

    def update(self, state: LoopState, /) -> tuple[TrainState, IterationResult]:
        """One update from the rollout; donates the state."""
        ...

    def collect_during(
        self, ts: TrainState, policy: PolicyState, update: Update, /
    ) -> tuple[LoopState, IterationResult]:
        """A rollout by `policy`, collected while `update` runs; returns the updated state.

        The rollout takes its keys from `ts`; `update` gets the state without them.
        """
        ...


def first_rollout(parts: HostParts, ts: TrainState) -> LoopState:
    """The first rollout, by the current policy, in the form of overlapped ones."""
    policy = ts.learner.policy
    return parts.collect(ts, policy).replace(behaviour=parts.functions.copy_policy(policy))


def update_while_collecting(
    parts: OverlappedParts, state: LoopState
) -> tuple[LoopState, IterationResult]:
    """The update, and meanwhile the next rollout by the policy from before the update.

    This is what `overlap="update"` means. `behaviour` says which policy collected the rollout.
    """
    policy = parts.copy_policy(state.ts.learner.policy)
    following, result = parts.collect_during(
        state.ts, policy, lambda ts: parts.update(state.replace(ts=ts))
    )
    return following.replace(behaviour=policy), result


class Overlapped:
    """The `Schedule` that updates in its own thread while the caller's thread collects.

    The first rollout and the last update overlap with nothing, so checkpoints hold no rollout.
    """

    def __init__(self, parts: HostParts):
        self._parts = parts
        self.last_finished: tuple[TrainState, int] | None = None

    def run(self, ts: TrainState, num_iterations: int) -> tuple[TrainState, IterationResult]:
        """See `Schedule`."""
        self.last_finished = ts, 0
        state = first_rollout(self._parts, ts)
        results: list[IterationResult] = []
        with futures.ThreadPoolExecutor(max_workers=1) as self._thread:
            for _ in range(num_iterations - 1):
                state, result = update_while_collecting(self, state)
                results.append(result)
        ts, result = self.update(state)
        return ts, stack([*results, result])

    def copy_policy(self, policy: PolicyState) -> PolicyState:
        """See `OverlappedParts`."""
        return self._parts.functions.copy_policy(policy)

    def update(self, state: LoopState) -> tuple[TrainState, IterationResult]:
        """See `OverlappedParts`; returns before the update is computed."""
        assert self.last_finished is not None
        ts, result = self._parts.update(state)
        self.last_finished = ts, self.last_finished[1] + 1
        return ts, result

    def collect_during(
        self, ts: TrainState, policy: PolicyState, update: Update
    ) -> tuple[LoopState, IterationResult]:
        """See `OverlappedParts`; waits for the update even after an error."""
        collector = self._parts.collector
        ts, group_keys = collector.take_keys(ts)
        updating = self._thread.submit(update, ts)
        try:
            seen, rollout = collector.collect(ts, policy, group_keys, self._parts.functions.act)
        finally:
            ts, result = updating.result()
        ts = ts.replace(local=with_obs_and_carry(ts.local, seen.local))
        return LoopState(ts=ts, rollout=rollout), result
