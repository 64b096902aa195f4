"""Prioritised experience replay (Schaul et al. 2016), proportional variant."""

import dataclasses

import jax.numpy as jnp
from flax import struct
from jax import Array

from rlkit.algorithms.replay_buffer import Replayed, check_settings, rows_for, window
from rlkit.algorithms.replay_storage import Ring
from rlkit.ops.sum_tree import SumTree
from rlkit.types import Key, Rollout, Transition

# a larger error would outweigh all others for good, and the sum of a million of these is finite
MAX_ERROR = 1e8


class PrioritizedMemory(struct.PyTreeNode, kw_only=True):
    """Transitions and their priorities."""

    ring: Ring
    tree: SumTree  # priority^α of row · N + column
    max_priority: Array  # [] float32: the highest so far, before the exponent


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrioritizedReplay:
    """`UniformReplay`, but drawing in proportion to (|error| + `min_priority`)^`priority_exponent`.

    The error is from the last update on the transition; new ones get the highest priority so far.
    Batches have `weight` (size · probability)^-β, divided by the largest of the batch, where β
    rises linearly over the run from `importance_exponent` to 1. Draws are independent, where the
    paper's appendix draws one from each of M equal shares.
    """

    capacity: int
    batch_size: int
    gamma: float | Array
    n_step: int = 1
    priority_exponent: float | Array = 0.6
    importance_exponent: float | Array = 0.4
    min_priority: float = 1e-6

    def __post_init__(self) -> None:
        check_settings(self, shares=("gamma", "priority_exponent", "importance_exponent"))

    def init(self, example: Transition, num_envs: int) -> PrioritizedMemory:
        """An empty memory."""
        rows = rows_for(self.capacity, num_envs)
        return PrioritizedMemory(
            ring=Ring.create(example, rows, num_envs),
            tree=SumTree.create(rows * num_envs),
            max_priority=jnp.float32(1.0),
        )

    def add(self, memory: PrioritizedMemory, rollout: Rollout) -> PrioritizedMemory:
        """The memory with a rollout [T, N, ...], T <= C, written over the oldest rows."""
        ring = memory.ring
        rows = ring.next_rows(rollout.reward.shape[0])
        index = (rows[:, None] * ring.num_envs + jnp.arange(ring.num_envs)).ravel()
        urgency = jnp.full(index.shape, memory.max_priority**self.priority_exponent)
        return memory.replace(ring=ring.add(rollout), tree=memory.tree.set(index, urgency))

    def cut(self, memory: PrioritizedMemory) -> PrioritizedMemory:
        """See `ReplayBuffer`."""
        return memory.replace(ring=memory.ring.cut())

    def resized(self, memory: PrioritizedMemory, num_envs: int) -> PrioritizedMemory:
        """See `UniformReplay.resized`; transitions keep their priorities."""
        rows = rows_for(self.capacity, num_envs)
        ring, origin = memory.ring.resized(rows, num_envs)
        is_filled = (jnp.arange(rows) < ring.size)[:, None]
        urgency = jnp.where(is_filled, memory.tree.leaves[origin], 0.0).ravel()
        tree = SumTree.create(rows * num_envs).set(jnp.arange(rows * num_envs), urgency)
        return memory.replace(ring=ring, tree=tree)

    def sample(self, memory: PrioritizedMemory, key: Key, progress: Array) -> Replayed:
        """`batch_size` transitions, with replacement."""
        ring = memory.ring
        index = memory.tree.draw(key, self.batch_size)
        row, env = index // ring.num_envs, index % ring.num_envs
        batch = window(ring, ring.age(row), env, gamma=self.gamma, n_step=self.n_step)
        probability = memory.tree.leaves[index] / memory.tree.total
        beta = self.importance_exponent + progress * (1.0 - self.importance_exponent)
        weight = (ring.size * ring.num_envs * probability) ** -beta
        return batch.replace(weight=weight / weight.max())

    def reprioritize(
        self, memory: PrioritizedMemory, batch: Replayed, error: Array
    ) -> PrioritizedMemory:
        """The memory with new priorities for a sampled batch, from its errors [M].

        Errors that are not finite change nothing.
        """
        is_finite = jnp.isfinite(error)
        priority = jnp.where(
            is_finite, jnp.minimum(jnp.abs(error), MAX_ERROR) + self.min_priority, 0.0
        )
        urgency = jnp.where(
            is_finite, priority**self.priority_exponent, memory.tree.leaves[batch.index]
        )
        return memory.replace(
            tree=memory.tree.set(batch.index, urgency),
            max_priority=jnp.maximum(memory.max_priority, priority.max()),
        )
