"""The updates of one iteration: one on each planned batch, in a loop."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax import Array

from rlkit.algorithms.batch_builders import BatchBuilder, Plan, keys_of_updates
from rlkit.algorithms.metrics import not_measured, reduce_metrics
from rlkit.algorithms.replay_buffer import ReplayBuffer, Replayed, Reprioritizes
from rlkit.algorithms.updaters import Updater
from rlkit.errors import ConfigError, require
from rlkit.types import Key, LearnerState, Memory, Metrics, Params
from rlkit.xla_cpu.loops import pack_parameters, packed_scan
from rlkit.xla_cpu.packing import NO_PACKING, NoPacking, Packing

LoopState = tuple[LearnerState, Memory]  # the memory is () where updates do not change it


@dataclasses.dataclass(frozen=True, kw_only=True)
class UpdateLoop:
    """Plans batches of a dataset, then takes an update on each that is due."""

    batch_builder: BatchBuilder
    updater: Updater
    replay_buffer: ReplayBuffer | None = None

    def run(
        self,
        agent: Any,
        learner: LearnerState,
        memory: Memory,
        dataset: Any,
        key: Key,
        axis_name: str | None = None,
    ) -> tuple[LearnerState, Memory, Metrics]:
        """(learner, memory, metrics) after the updates of an iteration; the key is consumed."""
        draw_key, update_key = jax.random.split(key)
        plan = self.batch_builder.draw(dataset, draw_key)
        inputs = plan, keys_of_updates(update_key, plan.num_updates)
        first = jax.tree.map(lambda x: x[0], inputs)
        changes_memory = isinstance(self.replay_buffer, Reprioritizes)
        state = learner, memory if changes_memory else ()
        is_loop = plan.num_updates > 1  # a loop of one would copy what goes in and out
        packing = (
            self._packing(learner.params, partial(self._gather, dataset, first[0]))
            if is_loop
            else NO_PACKING
        )
        step = partial(self._update_if_due, agent, dataset, axis_name, packing)
        if not is_loop:
            (learner, changed), metrics = step(state, first)
        else:
            (learner, changed), stacked = packed_scan(
                step,
                state,
                inputs,
                pack=partial(_change_params, packing.pack),
                unpack=partial(_change_params, packing.unpack),
            )
            metrics = reduce_metrics(stacked)
        return learner, changed if changes_memory else memory, metrics

    def _update_if_due(
        self,
        agent: Any,
        dataset: Any,
        axis_name: str | None,
        packing: Packing | NoPacking,
        state: LoopState,
        planned: tuple[Plan, Key],
    ) -> tuple[LoopState, Metrics]:
        """One turn of the loop."""
        plan, key = planned
        update = partial(self._update, agent, dataset, axis_name, packing, state, plan, key)
        if plan.is_due is None:
            return update()
        return jax.lax.cond(
            plan.is_due, update, lambda: (state, not_measured(jax.eval_shape(update)[1]))
        )

    def _update(
        self,
        agent: Any,
        dataset: Any,
        axis_name: str | None,
        packing: Packing | NoPacking,
        state: LoopState,
        plan: Plan,
        key: Key,
    ) -> tuple[LoopState, Metrics]:
        learner, memory = state
        if isinstance(self.replay_buffer, Reprioritizes):
            dataset = dataset.replace(memory=memory)
        batch = self._gather(dataset, plan, axis_name)
        learner, metrics, error = self.updater.step(agent, learner, batch, key, axis_name, packing)
        if isinstance(self.replay_buffer, Reprioritizes):
            memory = self.replay_buffer.reprioritize(memory, batch, errors_of(batch, error))
        return (learner, memory), metrics

    def _gather(self, dataset: Any, plan: Plan, axis_name: str | None = None) -> Any:
        return self.batch_builder.gather(dataset, plan.batches, axis_name)

    def _packing(self, params: Params, gather: Callable[[], Any]) -> Packing | NoPacking:
        """How the parameters go from one update to the next."""
        if not self.updater.is_elementwise:
            return NO_PACKING

        def arrays() -> list[Array]:  # a user's `process_batch` may return anything beside them
            return [x for x in jax.tree.leaves(gather()) if isinstance(x, Array)]

        return pack_parameters(params, jax.eval_shape(arrays))


def errors_of(batch: Any, error: Array | None) -> Array:
    """The errors [M] of a sampled batch, for prioritised replay. Raises `ConfigError` where they
    are missing.
    """
    require(
        isinstance(batch, Replayed),
        "prioritised replay needs to know which transitions a batch holds, process_batch returned"
        f" a {type(batch).__name__}",
        "return batch.replace(...), or set priority_exponent=None",
    )
    if error is None:
        raise ConfigError(
            "prioritised replay needs the error of every transition, but no loss returns it; "
            'return {"loss": ..., "td_error": errors}, of shape [M], or set priority_exponent=None'
        )
    require(
        error.shape == batch.index.shape,
        f'a loss returned "td_error" of shape {error.shape} for a batch of {batch.index.shape[0]}',
        "return one for each transition of the batch",
    )
    return error


def _change_params(change: Callable[[Any], Any], state: LoopState) -> LoopState:
    learner, memory = state
    return learner.replace(params=change(learner.params)), memory
