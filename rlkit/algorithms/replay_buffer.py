"""Replay memories: a pytree on the device and pure functions over it."""

import dataclasses
from typing import Protocol, Self, runtime_checkable

from jax import Array

from rlkit.algorithms.configs import BURN_IN, SEQUENCE_LENGTH
from rlkit.algorithms.replay_storage import Ring, redivided_rings
from rlkit.algorithms.replayed import Replayed, window
from rlkit.algorithms.replayed_sequences import SequenceReader
from rlkit.errors import near_multiples, require, require_counts, require_share
from rlkit.ops.random_bits import uniform_integers
from rlkit.types import Key, Memory, Rollout, Transition


@runtime_checkable
class ReplayBuffer(Protocol):
    """Where an off-policy `Algorithm` stores transitions; on-policy algorithms have none."""

    @property
    def capacity(self) -> int:
        """How many transitions fit, over all environments."""
        ...

    @property
    def batch_size(self) -> int:
        """Transitions in a batch."""
        ...

    @property
    def n_step(self) -> int:
        """The most environment steps that a sampled transition sums over."""
        ...

    def init(self, example: Transition, num_envs: int) -> Memory:
        """An empty memory for transitions shaped like `example`.

        The leaves of `example` are `jax.ShapeDtypeStruct`, without batch axes.
        """
        ...

    def add(self, memory: Memory, rollout: Rollout) -> Memory:
        """The memory with a rollout [T, N, ...] written over the oldest transitions."""
        ...

    def sample(self, memory: Memory, key: Key, progress: Array) -> Replayed:
        """A batch [M, ...]; `progress` in [0, 1] drives schedules. The key is consumed.

        The memory holds at least as many transitions: `check_compatible` makes sure of that.
        """
        ...

    def cut(self, memory: Memory) -> Memory:
        """The memory with the episodes in flight truncated.

        What is added next then does not continue them.
        """
        ...


@runtime_checkable
class Reprioritizes(Protocol):
    """A `ReplayBuffer` whose priorities follow the errors of the last batch."""

    def reprioritize(self, memory: Memory, batch: Replayed, error: Array) -> Memory:
        """The memory with new priorities for a sampled batch, from its errors [M]."""
        ...


@runtime_checkable
class Divides(Protocol):
    """A `ReplayBuffer` of which each of several devices can have a share.

    A device stores what its own environments did, and samples from that.
    """

    def divided(self, num_devices: int, axis_name: str) -> ReplayBuffer:
        """The buffer of one device, where `axis_name` is the mapped axis of all of them."""
        ...

    def redivided(self, memories: Memory, num_devices: int) -> Memory:
        """The memories [D, ...] of D devices as those of another number [D', ...].

        Called on the whole buffer. Every environment keeps its transitions.
        """
        ...


@runtime_checkable
class Resizes(Protocol):
    """A `ReplayBuffer` that can go on with another number of environments."""

    def resized(self, memory: Memory, num_envs: int) -> Memory:
        """The memory, with its transitions, for rollouts of `num_envs` environments.

        No episode goes on: what is added next continues none of them.
        """
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """What a replay buffer holds, and what its samples are.

    The capacity is rounded up to whole rows of environments. With `n_step` > 1, rewards are summed
    over up to n steps of the same environment. The sum stops where an episode ends, for either
    reason, and at the newest row, which is treated as if the episode had been truncated there:
    `discount` counts the steps that were summed. `next_obs` is stored along with `obs`, so that
    targets at time limits are right; images take twice the memory.

    For agents with memory, samples are sequences, see `SequenceReader`: as many as it takes for
    `batch_size` steps that are learned from. They begin anywhere, as long as all their steps are
    stored, so none reaches the newest row before its sums are complete.
    """

    capacity: int
    batch_size: int
    gamma: float | Array
    n_step: int = 1
    sequence_length: int = SEQUENCE_LENGTH
    burn_in: int = BURN_IN
    axis_name: str | None = None  # the mapped axis of devices, see `Divides`

    def __post_init__(self) -> None:
        require_share(self, "gamma")
        require_counts(self, capacity=1, batch_size=1, n_step=1, sequence_length=2, burn_in=0)

    def divided(self, num_devices: int, axis_name: str) -> Self:
        """See `Divides`. Raises `ConfigError` for a batch that cannot be divided equally."""
        size = self.batch_size
        require(
            size % num_devices == 0,
            f"batch_size={size} cannot be divided among {num_devices} devices",
            f"use {near_multiples(size, num_devices)}, or another number of devices",
        )
        capacity = -(-self.capacity // num_devices)
        return dataclasses.replace(
            self, capacity=capacity, batch_size=size // num_devices, axis_name=axis_name
        )

    @property
    def sequences(self) -> SequenceReader:
        """How samples for agents with memory are read."""
        return SequenceReader(
            length=self.sequence_length, burn_in=self.burn_in, n_step=self.n_step, gamma=self.gamma
        )

    @property
    def num_sequences(self) -> int:
        """Sequences in a batch for agents with memory, S."""
        return -(-self.batch_size // self.sequence_length)

    def num_samples(self, ring: Ring) -> int:
        """Transitions or sequences in a batch."""
        return self.num_sequences if ring.layout.has_memory else self.batch_size

    def rows_read(self, ring: Ring) -> int:
        """How many rows of a sample, from its first one, must be stored."""
        return self.sequences.num_rows if ring.layout.has_memory else 1

    def read(self, ring: Ring, age: Array, env: Array) -> Replayed:
        """The samples that start `age` [M] rows after the oldest one, in columns `env` [M]."""
        if ring.layout.has_memory:
            return self.sequences.read(ring, age, env)
        return window(ring, age, env, gamma=self.gamma, n_step=self.n_step)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UniformReplay(ReplaySettings):
    """Samples uniformly, with replacement, from the last `capacity` transitions."""

    def init(self, example: Transition, num_envs: int) -> Ring:
        """An empty memory."""
        return Ring.create(example, rows_for(self.capacity, num_envs), num_envs)

    def add(self, memory: Ring, rollout: Rollout) -> Ring:
        """The memory with a rollout [T, N, ...], T <= C, written over the oldest rows."""
        return memory.add(rollout)

    def cut(self, memory: Ring) -> Ring:
        """The memory with its newest row marked as truncated.

        No n-step sum then continues past it.
        """
        return memory.cut()

    def resized(self, memory: Ring, num_envs: int) -> Ring:
        """The newest transitions, in columns of `num_envs` environments.

        The columns mix environments, so n-step sums end at each transition that was stored before.
        Not for agents with memory: a curriculum refuses them.
        """
        return memory.resized(rows_for(self.capacity, num_envs), num_envs)[0]

    def redivided(self, memories: Ring, num_devices: int) -> Ring:
        """See `Divides`."""
        return redivided_rings(memories, num_devices)

    def sample(self, memory: Ring, key: Key, progress: Array) -> Replayed:
        """Transitions or sequences; all that are stored are equally likely."""
        num_starts = (memory.size - self.rows_read(memory) + 1) * memory.num_envs
        chosen = uniform_integers(key, (self.num_samples(memory),), num_starts)
        age, env = chosen // memory.num_envs, chosen % memory.num_envs  # age 0 is the oldest row
        return self.read(memory, age, env)


def rows_for(capacity: int, num_envs: int) -> int:
    """Rows of a ring that holds `capacity` transitions, rounded up."""
    return -(-capacity // num_envs)
