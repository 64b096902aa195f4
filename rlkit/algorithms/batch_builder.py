"""`BatchBuilder`: from rollouts to the batches that an updater learns from."""

from typing import Any, Protocol

import jax
from flax import struct
from jax import Array

from rlkit.algorithms.replay_buffer import ReplayBuffer
from rlkit.types import Key, LearnerState, Memory, Metrics, PolicyState, PyTree, Rollout


class BatchBuilder(Protocol):
    """Turns one rollout into the batches of one iteration."""

    @property
    def replay_buffer(self) -> ReplayBuffer | None:
        """Where it stores transitions and draws batches from; None: it is on-policy."""
        ...

    def ingest(
        self,
        agent: Any,
        learner: LearnerState,
        memory: Memory,
        rollout: Rollout,
        axis_name: str | None = None,
        behaviour: PolicyState | None = None,
    ) -> tuple[Memory, PyTree, Metrics]:
        """(memory, dataset, metrics) from a rollout by `behaviour` (None: `learner.policy`).

        `learner.reward_stats` already include the rollout.
        """
        ...

    def draw(self, dataset: PyTree, key: Key) -> "Plan":
        """A plan of all batches of the iteration; the key is consumed."""
        ...

    def gather(self, dataset: PyTree, plan: PyTree, axis_name: str | None = None) -> PyTree:
        """The batch for one row of `Plan.batches`, leaves [M, ...]."""
        ...


class Plan(struct.PyTreeNode, kw_only=True):
    """The U batches of one iteration; small, since batches are gathered one at a time."""

    batches: PyTree  # leaves [U, ...]: what `gather` makes each batch from
    is_due: Array | None = None  # [U] bool: which updates are taken; None: all

    @property
    def num_updates(self) -> int:
        """U, including updates that are not due."""
        return jax.tree.leaves(self.batches)[0].shape[0]


def keys_of_updates(key: Key, num: int) -> Key:
    """A key for each update, [num]; the key is consumed.

    A single update gets `key` itself, which saves a draw.
    """
    return key[None] if num == 1 else jax.random.split(key, num)
