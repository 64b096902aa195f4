"""Replay memories: a pytree on the device and pure functions over it."""

import dataclasses
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from rlkit.errors import require
from rlkit.types import Key, Memory, Obs, Rollout, Transition


@runtime_checkable
class ReplayBuffer(Protocol):
    """What an off-policy `Algorithm` keeps transitions in; on-policy algorithms have none."""

    @property
    def capacity(self) -> int:
        """Transitions, over all environments."""
        ...

    @property
    def batch_size(self) -> int:
        """Transitions in a batch."""
        ...

    def init(self, example: Transition, num_envs: int) -> Memory:
        """An empty memory for transitions shaped like `example` (`jax.ShapeDtypeStruct` leaves, without batch axes)."""
        ...

    def add(self, memory: Memory, rollout: Rollout) -> Memory:
        """The memory with a rollout [T, N, ...] added; the oldest transitions make room."""
        ...

    def sample(self, memory: Memory, key: Key) -> "Replayed":
        """A batch [M, ...] of what `can_sample`; the key is consumed."""
        ...

    def can_sample(self, memory: Memory) -> Array:
        """Whether there is a batch in it, [] bool."""
        ...

    def cut(self, memory: Memory) -> Memory:
        """The memory with the episodes in flight truncated: what is added next follows from nothing in it."""
        ...


class Replayed(struct.PyTreeNode, kw_only=True):
    """Sampled transitions of one or several steps, leaves [M, ...]; observations are raw (not normalised)."""

    obs: Obs
    action: Array
    reward: Array  # [M] the discounted sum of rewards from here to `next_obs`
    discount: Array  # [M] of the value of `next_obs`: γ^k after k steps, 0 where the task ended
    next_obs: Obs


class ReplayMemory(struct.PyTreeNode, kw_only=True):
    """A ring over time, a column for each environment."""

    steps: Transition  # [C, N, ...], dtypes as they come (uint8 frames stay uint8)
    head: Array  # [] int32: the row that is written next
    size: Array  # [] int32: rows that hold something


@dataclasses.dataclass(frozen=True, kw_only=True)
class UniformReplay:
    """The last `capacity` transitions, rounded up to whole rows of environments, sampled uniformly with replacement.

    With `n_step` > 1, rewards are summed over up to n steps of the same environment. The sum stops where an episode ends for
    either reason, and at the newest row, which is treated as if the episode had been cut there: `discount` counts the steps
    that were summed. `next_obs` is stored beside `obs`, so that targets at time limits are right; images take twice the memory.
    """

    capacity: int
    batch_size: int
    gamma: float | Array
    n_step: int = 1

    def num_rows(self, num_envs: int) -> int:
        """Rows of the ring, C."""
        return -(-self.capacity // num_envs)

    def init(self, example: Transition, num_envs: int) -> ReplayMemory:
        """An empty memory."""
        shape = (self.num_rows(num_envs), num_envs)
        rows = jax.tree.map(lambda x: jnp.zeros((*shape, *x.shape), x.dtype), example)
        return ReplayMemory(steps=rows, head=jnp.int32(0), size=jnp.int32(0))

    def add(self, memory: ReplayMemory, rollout: Rollout) -> ReplayMemory:
        """The memory with a rollout [T, N, ...], T <= C, written over the oldest rows."""
        num_steps, num_rows = rollout.reward.shape[0], memory.steps.reward.shape[0]
        require(
            num_steps <= num_rows,
            f"a rollout of {num_steps} steps does not fit into a replay buffer of {num_rows} for each environment",
            "raise replay_buffer_capacity or lower num_steps",
        )
        if num_steps == 1:  # in place, and much cheaper than a scatter

            def put(ring: Array, new: Array) -> Array:
                return jax.lax.dynamic_update_slice_in_dim(ring, new.astype(ring.dtype), memory.head, 0)
        else:
            rows = (memory.head + jnp.arange(num_steps)) % num_rows

            def put(ring: Array, new: Array) -> Array:
                return ring.at[rows].set(new.astype(ring.dtype), unique_indices=True, mode="promise_in_bounds")

        return ReplayMemory(
            steps=jax.tree.map(put, memory.steps, rollout),
            head=(memory.head + num_steps) % num_rows,
            size=jnp.minimum(memory.size + num_steps, num_rows),
        )

    def can_sample(self, memory: ReplayMemory) -> Array:
        """Whether the memory holds a batch."""
        return memory.size * memory.steps.reward.shape[1] >= self.batch_size

    def cut(self, memory: ReplayMemory) -> ReplayMemory:
        """The memory with its newest row marked as truncated, so that no n-step sum goes on into the next one."""
        newest = (memory.head - 1) % memory.steps.reward.shape[0]
        steps = memory.steps.replace(truncated=memory.steps.truncated.at[newest].set(True))
        return memory.replace(steps=steps)

    def sample(self, memory: ReplayMemory, key: Key) -> Replayed:
        """`batch_size` transitions; every one that is stored is equally likely."""
        num_envs = memory.steps.reward.shape[1]
        chosen = jax.random.randint(key, (self.batch_size,), 0, memory.size * num_envs)
        age, env = chosen // num_envs, chosen % num_envs  # age 0 is the oldest row
        return self.window(memory, age, env)

    def window(self, memory: ReplayMemory, age: Array, env: Array) -> Replayed:
        """The transitions that begin `age` [M] rows after the oldest one, in columns `env` [M]."""
        steps, num_rows = memory.steps, memory.steps.reward.shape[0]

        def row(age: Array) -> Array:
            return (memory.head - memory.size + age) % num_rows

        ages = age[:, None] + jnp.arange(self.n_step)  # [M, n]
        done = (steps.terminated | steps.truncated)[row(ages), env[:, None]]
        known = ages < memory.size
        # Step k counts if it is stored and none of the k before it ended an episode.
        before = jnp.pad(jnp.cumsum(done, axis=1)[:, :-1], ((0, 0), (1, 0)))
        counts = known & (before == 0)
        gammas = jnp.asarray(self.gamma, jnp.float32) ** jnp.arange(self.n_step)
        reward = jnp.where(counts, gammas * steps.reward[row(ages), env[:, None]], 0.0).sum(1)
        num_counted = counts.sum(1)
        last = row(age + num_counted - 1)
        discount = jnp.asarray(self.gamma, jnp.float32) ** num_counted * (1.0 - steps.terminated[last, env])

        def at(rows: Array) -> Any:
            return lambda x: x[rows, env]

        return Replayed(
            obs=jax.tree.map(at(row(age)), steps.obs),
            action=steps.action[row(age), env],
            reward=reward,
            discount=discount,
            next_obs=jax.tree.map(at(last), steps.next_obs),
        )
