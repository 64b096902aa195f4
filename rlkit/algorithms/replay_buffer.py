"""The contract of replay memories: a pytree on the device and pure functions over it."""

from typing import Protocol, runtime_checkable

from jax import Array

from rlkit.types import Key, Memory, Rollout, Transition


@runtime_checkable
class ReplayBuffer(Protocol):
    """What an off-policy `Algorithm` keeps transitions in; on-policy algorithms have none."""

    capacity: int  # transitions, over all environments

    def init(self, example: Transition) -> Memory:
        """An empty memory for transitions shaped like `example` (`jax.ShapeDtypeStruct` leaves, without batch axes)."""
        ...

    def add(self, memory: Memory, rollout: Rollout) -> Memory:
        """The memory with a rollout [T, N, ...] added; the oldest transitions make room."""
        ...

    def sample(self, memory: Memory, key: Key) -> Transition:
        """A batch [M, ...]; the key is consumed."""
        ...

    def can_sample(self, memory: Memory) -> Array:
        """Whether there is enough in it, [] bool."""
        ...
