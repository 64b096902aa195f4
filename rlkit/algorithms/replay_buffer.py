"""Replay memories: a pytree on the device and pure functions over it."""

import dataclasses
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
from flax import struct
from jax import Array

from rlkit.algorithms.packed_transition import of_flags
from rlkit.algorithms.replay_storage import Ring
from rlkit.errors import require
from rlkit.ops.random_bits import uniform_integers
from rlkit.types import Key, Memory, Obs, PyTree, Rollout, Transition


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

    def sample(self, memory: Memory, key: Key, progress: Array) -> "Replayed":
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

    def reprioritize(self, memory: Memory, batch: "Replayed", error: Array) -> Memory:
        """The memory with new priorities for a sampled batch, from its errors [M]."""
        ...


@runtime_checkable
class Resizes(Protocol):
    """A `ReplayBuffer` that can go on with another number of environments."""

    def resized(self, memory: Memory, num_envs: int) -> Memory:
        """The memory, with its transitions, for rollouts of `num_envs` environments.

        No episode goes on: what is added next continues none of them.
        """
        ...


class Replayed(struct.PyTreeNode, kw_only=True):
    """Sampled transitions of one or several steps, leaves [M, ...]; observations not normalised."""

    obs: Obs
    action: Array
    reward: Array  # [M] the discounted sum of rewards from here to `next_obs`
    discount: Array  # [M] of the value of `next_obs`: γ^k after k steps, 0 where the task ended
    next_obs: Obs
    extras: dict[str, PyTree]  # what the agent added when it acted, zero for random actions
    # [M] weights of the errors in a loss: 1, or a correction for sampling that is not uniform
    weight: Array
    index: Array  # [M] int32: position in the memory, row · N + column


@dataclasses.dataclass(frozen=True, kw_only=True)
class UniformReplay:
    """Samples uniformly, with replacement, from the last `capacity` transitions.

    The capacity is rounded up to whole rows of environments. With `n_step` > 1, rewards are summed
    over up to n steps of the same environment. The sum stops where an episode ends, for either
    reason, and at the newest row, which is treated as if the episode had been truncated there:
    `discount` counts the steps that were summed. `next_obs` is stored along with `obs`, so that
    targets at time limits are right; images take twice the memory.
    """

    capacity: int
    batch_size: int
    gamma: float | Array
    n_step: int = 1

    def __post_init__(self) -> None:
        check_settings(self, shares=("gamma",))

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
        """
        return memory.resized(rows_for(self.capacity, num_envs), num_envs)[0]

    def sample(self, memory: Ring, key: Key, progress: Array) -> Replayed:
        """`batch_size` transitions; all stored ones are equally likely."""
        chosen = uniform_integers(key, (self.batch_size,), memory.size * memory.num_envs)
        age, env = chosen // memory.num_envs, chosen % memory.num_envs  # age 0 is the oldest row
        return window(memory, age, env, gamma=self.gamma, n_step=self.n_step)


def check_settings(buffer: ReplayBuffer, *, shares: tuple[str, ...]) -> None:
    """Raises `ConfigError` for settings of a replay buffer that are out of range.

    Those named in `shares` must be in [0, 1].
    """
    for name in ("capacity", "batch_size", "n_step"):
        value = getattr(buffer, name)
        require(
            value >= 1,
            f"{name}={value} of {type(buffer).__name__} is not positive",
            "use 1 or more",
        )
    for name in shares:
        value = getattr(buffer, name)
        require(
            not isinstance(value, (int, float)) or 0 <= value <= 1,
            f"{name}={value} of {type(buffer).__name__} is outside [0, 1]",
            "use a number from 0 to 1",
        )


def rows_for(capacity: int, num_envs: int) -> int:
    """Rows of a ring that holds `capacity` transitions, rounded up."""
    return -(-capacity // num_envs)


def window(ring: Ring, age: Array, env: Array, *, gamma: float | Array, n_step: int) -> Replayed:
    """The transitions that start `age` [M] rows after the oldest one, in columns `env` [M].

    See `UniformReplay`.
    """
    layout, row, gamma = ring.layout, ring.row(age), jnp.asarray(gamma, jnp.float32)
    if n_step == 1:
        (reward, flags), before, next_obs = ring.read(
            row, env, layout.outcome, layout.before, layout.after
        )
        terminated, _ = of_flags(flags)
        discount = gamma * (1.0 - terminated)
    else:
        ages = age[:, None] + jnp.arange(n_step)  # [M, n]
        [(rewards, flags)] = ring.read(ring.row(ages), env[:, None], layout.outcome)
        terminated, truncated = of_flags(flags)
        done = terminated | truncated
        # Step k counts if it is stored and none of the k before it ended an episode.
        ended_before = jnp.pad(jnp.cumsum(done, axis=1)[:, :-1], ((0, 0), (1, 0)))
        counts = (ages < ring.size) & (ended_before == 0)
        reward = jnp.where(counts, gamma ** jnp.arange(n_step) * rewards, 0.0).sum(1)
        num_counted = counts.sum(1)
        is_over = jnp.take_along_axis(terminated, num_counted[:, None] - 1, axis=1)[:, 0]
        discount = gamma**num_counted * (1.0 - is_over)
        [before] = ring.read(row, env, layout.before)
        [next_obs] = ring.read(ring.row(age + num_counted - 1), env, layout.after)
    obs, action, extras = before
    return Replayed(
        obs=obs,
        action=action,
        reward=reward,
        discount=discount,
        next_obs=next_obs,
        extras=extras,
        weight=jnp.ones_like(reward),
        index=row * ring.num_envs + env,
    )
