"""Prioritised experience replay (Schaul et al. 2016), proportional variant."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from rlkit.algorithms.replay_buffer import ReplaySettings, rows_for
from rlkit.algorithms.replay_storage import Ring, redivided_rings
from rlkit.algorithms.replayed import Replayed
from rlkit.errors import require, require_share
from rlkit.ops.rows import redivide
from rlkit.ops.sum_tree import SumTree
from rlkit.types import Key, Rollout, Transition

# a larger error would outweigh all others for good, and the sum of a million of these is finite
MAX_ERROR = 1e8
MIN_PRIORITY = 1e-30  # with all priorities 0, nothing could be drawn
LARGEST_SHARE = 0.9  # of the largest error in that of a sequence, the mean is the rest: η in R2D2


class PrioritizedMemory(struct.PyTreeNode, kw_only=True):
    """Transitions and their priorities."""

    ring: Ring
    tree: SumTree  # priority^α of row · N + column
    max_priority: Array  # [] float32: the highest so far, before the exponent


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrioritizedReplay(ReplaySettings):
    """Draws in proportion to (|error| + `min_priority`)^`priority_exponent`, with replacement.

    The error is from the last update on the transition; new ones get the highest priority so far.
    Batches have `weight` (size · probability)^-β, divided by the largest of the batch, over all
    devices. β rises linearly over the run from `importance_exponent` to 1. Draws are independent,
    where the paper's appendix draws one from each of M equal shares.

    Sequences have priorities of their own, as in R2D2: 0.9 of the largest |error| of their steps
    and 0.1 of the mean. A sequence gets its first one once all of its steps are stored.
    """

    priority_exponent: float | Array = 0.6
    importance_exponent: float | Array = 0.4
    min_priority: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        require_share(self, "priority_exponent", "importance_exponent")
        require(
            MIN_PRIORITY <= self.min_priority <= MAX_ERROR,
            f"min_priority={self.min_priority} of {type(self).__name__} is outside [1e-30, 1e8]",
            "use 1e-6, for instance",
        )

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
        before, num_steps = memory.ring, rollout.reward.shape[0]
        rows, ring, tree = before.next_rows(num_steps), before.add(rollout), memory.tree
        index = rows[:, None] * ring.num_envs + jnp.arange(ring.num_envs)  # [T, N]
        urgency = memory.max_priority**self.priority_exponent
        if (num_rows := self.rows_read(ring)) > 1:
            # New rows begin no sequence yet; they complete those that began so many rows before.
            tree = tree.set(index.ravel(), jnp.zeros(index.size))
            age = ring.size - num_steps + jnp.arange(num_steps) - (num_rows - 1)
            index = ring.row(age)[:, None] * ring.num_envs + jnp.arange(ring.num_envs)
            urgency = jnp.where(age >= 0, urgency, 0.0)[:, None]
        urgency = jnp.broadcast_to(urgency, index.shape)
        return memory.replace(ring=ring, tree=tree.set(index.ravel(), urgency.ravel()))

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

    def redivided(self, memories: PrioritizedMemory, num_devices: int) -> PrioritizedMemory:
        """See `Divides`; transitions keep their priorities."""
        rows, num_envs = memories.ring.words.shape[1:3]
        leaves = memories.tree.levels[0][:, : rows * num_envs].reshape(-1, rows, num_envs)
        ring = redivided_rings(memories.ring, num_devices)
        urgency = redivide(leaves, num_devices, axis=1).reshape(num_devices, -1)
        size = urgency.shape[1]
        tree = jax.vmap(lambda x: SumTree.create(size).set(jnp.arange(size), x))(urgency)
        max_priority = jnp.full(num_devices, memories.max_priority[0])
        return PrioritizedMemory(ring=ring, tree=tree, max_priority=max_priority)

    def sample(self, memory: PrioritizedMemory, key: Key, progress: Array) -> Replayed:
        """Transitions or sequences, with replacement."""
        ring = memory.ring
        index = memory.tree.draw(key, self.num_samples(ring))
        row, env = index // ring.num_envs, index % ring.num_envs
        batch = self.read(ring, ring.age(row), env)
        probability = memory.tree.leaves[index] / memory.tree.total
        beta = self.importance_exponent + progress * (1.0 - self.importance_exponent)
        num_starts = (ring.size - self.rows_read(ring) + 1) * ring.num_envs
        weight = (num_starts * probability) ** -beta
        largest = self._largest(weight.max())
        weight = jnp.tile(weight / largest, batch.weight.size // weight.size)
        return batch.replace(weight=weight)

    def reprioritize(
        self, memory: PrioritizedMemory, batch: Replayed, error: Array
    ) -> PrioritizedMemory:
        """The memory with new priorities for a sampled batch, from its errors [M].

        Errors that are not finite change nothing.
        """
        size, index = jnp.abs(error), batch.index
        if memory.ring.layout.has_memory:
            size, index = (x.reshape(self.sequence_length, -1) for x in (size, index))  # [L, S]
            size = LARGEST_SHARE * size.max(axis=0) + (1.0 - LARGEST_SHARE) * size.mean(axis=0)
            index = index[0]
        is_finite = jnp.isfinite(size)
        priority = jnp.where(is_finite, jnp.minimum(size, MAX_ERROR) + self.min_priority, 0.0)
        urgency = jnp.where(is_finite, priority**self.priority_exponent, memory.tree.leaves[index])
        return memory.replace(
            tree=memory.tree.set(index, urgency),
            max_priority=jnp.maximum(memory.max_priority, self._largest(priority.max())),
        )

    def _largest(self, x: Array) -> Array:
        return x if self.axis_name is None else jax.lax.pmax(x, self.axis_name)
