"""Batches from the replay memory, as many as the ratio of updates to environment steps says."""

import dataclasses
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from rlkit.agents.base import Agent
from rlkit.algorithms.batch_builder import Plan, keys_of_updates
from rlkit.algorithms.replay_buffer import ReplayBuffer
from rlkit.errors import require
from rlkit.ops.running_stats import RunningStats, normalize
from rlkit.types import (
    Key,
    LearnerState,
    Memory,
    Metrics,
    PolicyState,
    PyTree,
    Rollout,
    Sequences,
)
from rlkit.validation import require_known

MAX_DENOMINATOR = 1000
MOST_STEPS = 2**16  # between two updates; `StepCounter.remainder` takes no larger divisor


class ReplayDataset(struct.PyTreeNode, kw_only=True):
    """What the batches of one iteration are drawn from."""

    memory: Memory
    obs_stats: RunningStats | None
    progress: Array  # [] of the run, in [0, 1]
    is_due: Array | None  # as in `Plan`
    num_updates: int = struct.field(pytree_node=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayBatchBuilder:
    """Adds the rollout to the replay memory, then draws batches from it.

    It draws `updates_per_step` batches for each environment step, over all devices. If that is not
    a whole number for a rollout, some iterations draw one batch more, so that the ratio holds
    exactly over the run (with several seeds, that update is computed in all iterations, and dropped
    where it is not due). Batches are `Replayed`, with observations normalised by the statistics of
    the iteration.
    """

    replay_buffer: ReplayBuffer
    updates_per_step: float

    def __post_init__(self) -> None:
        require_known(f"updates_per_step of {type(self).__name__}", self.updates_per_step)
        require(
            0 < self.updates_per_step < math.inf,
            f"updates_per_step={self.updates_per_step} of {type(self).__name__} must be a positive"
            " number",
            "use 1.0 for an update in each environment step",
        )

    def ingest(
        self,
        agent: Agent,
        learner: LearnerState,
        memory: Memory,
        rollout: Rollout,
        axis_name: str | None = None,
        behaviour: PolicyState | None = None,
    ) -> tuple[Memory, ReplayDataset, Metrics]:
        """See `BatchBuilder`; the behaviour policy does not matter."""
        memory = self.replay_buffer.add(memory, rollout)
        num_devices = 1 if axis_name is None else jax.lax.axis_size(axis_name)
        num_updates, is_due = self._updates(learner, rollout.reward.size * num_devices)
        dataset = ReplayDataset(
            memory=memory,
            obs_stats=learner.obs_stats,
            progress=learner.progress,
            is_due=is_due,
            num_updates=num_updates,
        )
        return memory, dataset, {}

    def _updates(self, learner: LearnerState, num_steps: int) -> tuple[int, Array | None]:
        """(maximum number of updates, which are due) after `num_steps` more environment steps.

        Over the run, floor(ratio · steps) updates are due.
        """
        above, below = as_fraction(self.updates_per_step).as_integer_ratio()
        most = -(-above * num_steps // below)
        if above * num_steps % below == 0:
            return most, None
        before = learner.env_steps.remainder(below).astype(jnp.int32)
        num_due = above * (before + num_steps) // below - above * before // below
        return most, jnp.arange(most) < num_due

    def draw(self, dataset: ReplayDataset, key: Key) -> Plan:
        """A key for each batch."""
        keys = keys_of_updates(key, dataset.num_updates)
        return Plan(batches=keys, is_due=dataset.is_due)

    def gather(self, dataset: ReplayDataset, plan: Key, axis_name: str | None = None) -> PyTree:
        """A `Replayed` [M, ...]."""
        batch = self.replay_buffer.sample(dataset.memory, plan, dataset.progress)
        if isinstance(batch.obs, Sequences):  # one pass over the same steps, with other results
            seen = normalize(dataset.obs_stats, batch.obs.obs)
            obs, next_obs = batch.obs.replace(obs=seen), batch.next_obs.replace(obs=seen)
        else:
            obs, next_obs = (normalize(dataset.obs_stats, x) for x in (batch.obs, batch.next_obs))
        return batch.replace(obs=obs, next_obs=next_obs)


def as_fraction(updates_per_step: float) -> Fraction:
    """The nearest fraction with a denominator up to `MAX_DENOMINATOR`; for less, the nearest 1/n.

    n is at most `MOST_STEPS`. Updates are counted exactly in such fractions.
    """
    if updates_per_step < 1 / MAX_DENOMINATOR:
        return Fraction(1, round(1 / max(updates_per_step, 1 / MOST_STEPS)))
    return Fraction(updates_per_step).limit_denominator(MAX_DENOMINATOR)
