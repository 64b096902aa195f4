"""The updates of one iteration: one on each planned batch, in a loop."""

import dataclasses
from collections.abc import Callable
from functools import partial

import jax
from jax import Array

from rlkit.agents.base import Agent
from rlkit.algorithms.batch_builder import BatchBuilder, Plan, keys_of_updates
from rlkit.algorithms.metrics import not_measured, reduce_metrics
from rlkit.algorithms.process_batch import ProcessBatch, process
from rlkit.algorithms.replay_buffer import Reprioritizes
from rlkit.algorithms.replayed import Replayed
from rlkit.algorithms.update_interval import compute_if
from rlkit.algorithms.updaters import Updater
from rlkit.errors import ConfigError, require
from rlkit.optimizers import Elementwise
from rlkit.protocols import follows
from rlkit.types import Key, LearnerState, Memory, Metrics, Params, PyTree
from rlkit.xla_cpu.loops import pack_parameters, packed_scan
from rlkit.xla_cpu.packing import NO_PACKING, NoPacking, Packing

UpdateState = tuple[LearnerState, Memory]  # the memory is () where updates do not change it


@dataclasses.dataclass(frozen=True, kw_only=True)
class UpdateLoop:
    """Plans the batches of a dataset, then takes an update on each that is due."""

    agent: Agent
    batch_builder: BatchBuilder
    updater: Updater
    dataset: PyTree
    process_batch: ProcessBatch | None = None
    axis_name: str | None = None

    def run(
        self, learner: LearnerState, memory: Memory, key: Key
    ) -> tuple[LearnerState, Memory, Metrics]:
        """(learner, memory, metrics) after the updates of an iteration; the key is consumed."""
        draw_key, update_key = jax.random.split(key)
        plan = self.batch_builder.draw(self.dataset, draw_key)
        planned = plan, keys_of_updates(update_key, plan.num_updates)
        changes_memory = follows(self.batch_builder.replay_buffer, Reprioritizes)
        state = learner, memory if changes_memory else ()
        if plan.num_updates == 1:  # a loop of one would copy its inputs and outputs
            state, metrics = self._update_if_due(state, _first(planned))
        else:
            state, metrics = self._loop(state, planned)
        learner, changed = state
        return learner, changed if changes_memory else memory, metrics

    def _loop(self, state: UpdateState, planned: tuple[Plan, Key]) -> tuple[UpdateState, Metrics]:
        loop, packing = self._packed(state[0].params, *_first(planned))
        state, stacked = packed_scan(
            loop._update_if_due,
            state,
            planned,
            pack=partial(_change_params, packing.pack),
            unpack=partial(_change_params, packing.unpack),
        )
        return state, reduce_metrics(stacked)

    def _update_if_due(
        self, state: UpdateState, planned: tuple[Plan, Key]
    ) -> tuple[UpdateState, Metrics]:
        plan, key = planned
        update = partial(self._update, state, plan, key)
        if plan.is_due is None:
            return update()
        return compute_if(plan.is_due, update, lambda shapes: (state, not_measured(shapes[1])))

    def _update(self, state: UpdateState, plan: Plan, key: Key) -> tuple[UpdateState, Metrics]:
        """Batch, update, priorities."""
        learner, memory = state
        buffer, dataset = self.batch_builder.replay_buffer, self.dataset
        if follows(buffer, Reprioritizes):
            dataset = dataset.replace(memory=memory)
        batch = self._batch(dataset, plan, key)
        learner, metrics, error = self.updater.step(self.agent, learner, batch, key, self.axis_name)
        if follows(buffer, Reprioritizes):
            memory = buffer.reprioritize(memory, batch, errors_of(batch, error))
        return (learner, memory), metrics

    def _batch(self, dataset: PyTree, plan: Plan, key: Key) -> PyTree:
        """The batch of an update, whose key is not consumed."""
        batch = self.batch_builder.gather(dataset, plan.batches, self.axis_name)
        return process(self.process_batch, batch, key, self.axis_name)

    def _packed(
        self, params: Params, plan: Plan, key: Key
    ) -> tuple["UpdateLoop", Packing | NoPacking]:
        """The loop, and the form in which it carries the parameters from one update to the next.

        It differs from that of the agent only if one `elementwise` optimiser changes them all.
        """
        first, *others = self.updater.steps
        if others or first.group is not None or not isinstance(first.optimizer, Elementwise):
            return self, NO_PACKING

        def arrays() -> list[Array]:  # a user's `process_batch` may return other things as well
            batch = self._batch(self.dataset, plan, key)
            return [x for x in jax.tree.leaves(batch) if isinstance(x, Array)]

        packing = pack_parameters(params, jax.eval_shape(arrays))
        steps = (dataclasses.replace(first, packing=packing),)
        updater = dataclasses.replace(self.updater, steps=steps)
        return dataclasses.replace(self, updater=updater), packing


def errors_of(batch: PyTree, error: Array | None) -> Array:
    """The errors [M] of a sampled batch, for prioritised replay.

    Raises `ConfigError` if they are missing.
    """
    require(
        isinstance(batch, Replayed),
        "prioritised replay needs to know which transitions a batch holds, but process_batch"
        f" returned a {type(batch).__name__}",
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


def _change_params(change: Callable[[Params], Params], state: UpdateState) -> UpdateState:
    learner, memory = state
    return learner.replace(params=change(learner.params)), memory


def _first(planned: PyTree) -> PyTree:
    return jax.tree.map(lambda x: x[0], planned)
