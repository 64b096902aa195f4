"""A ring of transitions on the device, packed into one array, or two with images.

Writing a row and reading a batch then touch only that array. With an array for each field, XLA
fused the write of one field into the read after it, and so kept the old array and copied it in
every update: an update of SAC with a million transitions of HalfCheetah took 53 ms instead of 6.6.
If a memory is larger than the caches, the cost of a transition is the number of places that it is
read from.
"""

import itertools

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from rlkit.algorithms.packed_transition import (
    TRUNCATED,
    Layout,
    Section,
    of_flags,
    split_extras,
    to_flags,
)
from rlkit.algorithms.sequences import CARRY
from rlkit.errors import require
from rlkit.ops.rows import redivide
from rlkit.types import PyTree, Rollout, Transition


class Ring(struct.PyTreeNode, kw_only=True):
    """The last C rows of transitions, with a column for each of N environments."""

    words: Array  # [C, N, W] uint32: dtypes of four bytes or more
    singles: Array | None  # [C, N, B] uint8: smaller dtypes, such as frames; None if none
    head: Array  # [] int32: the row that is written next
    size: Array  # [] int32: rows that are filled
    layout: Layout = struct.field(pytree_node=False)

    @classmethod
    def create(cls, example: Transition, num_rows: int, num_envs: int) -> "Ring":
        """An empty ring for transitions like `example`.

        The leaves of `example` are `jax.ShapeDtypeStruct`, without batch axes.
        """
        layout = Layout.of(example)
        num_words, num_singles = layout.after.end
        return cls(
            words=jnp.zeros((num_rows, num_envs, num_words), jnp.uint32),
            singles=(
                jnp.zeros((num_rows, num_envs, num_singles), jnp.uint8) if num_singles else None
            ),
            head=jnp.int32(0),
            size=jnp.int32(0),
            layout=layout,
        )

    @property
    def num_rows(self) -> int:
        """C"""
        return self.words.shape[0]

    @property
    def num_envs(self) -> int:
        """N"""
        return self.words.shape[1]

    def next_rows(self, num_steps: int) -> Array:
        """The rows that the next `num_steps` steps go to, [T].

        Raises `ConfigError` if there are not as many.
        """
        require(
            num_steps <= self.num_rows,
            f"a rollout of {num_steps} steps does not fit into a replay buffer of {self.num_rows}"
            " for each environment",
            "raise replay_buffer_capacity or lower num_steps",
        )
        return (self.head + jnp.arange(num_steps)) % self.num_rows

    def add(self, rollout: Rollout) -> "Ring":
        """The ring with a rollout [T, N, ...], T <= C, written over the oldest rows."""
        num_steps = rollout.reward.shape[0]
        rows = self.next_rows(num_steps)
        layout = self.layout
        carry, extras = split_extras(rollout.extras)
        parts = [
            layout.carry.pack(carry, 2),
            layout.outcome.pack(
                (rollout.reward, to_flags(rollout.terminated, rollout.truncated)), 2
            ),
            layout.before.pack((rollout.obs, rollout.action, extras), 2),
            layout.after.pack(rollout.next_obs, 2),
        ]
        words, singles = (list(itertools.chain.from_iterable(x)) for x in zip(*parts, strict=True))

        def put(ring: Array, new: list[Array]) -> Array:
            packed = jnp.concatenate(new, axis=-1)
            if num_steps == 1:  # cheaper than a scatter
                return jax.lax.dynamic_update_slice_in_dim(ring, packed, self.head, 0)
            return ring.at[rows].set(packed, unique_indices=True, mode="promise_in_bounds")

        return self.replace(
            words=put(self.words, words),
            singles=None if self.singles is None else put(self.singles, singles),
            head=(self.head + num_steps) % self.num_rows,
            size=jnp.minimum(self.size + num_steps, self.num_rows),
        )

    @property
    def transitions(self) -> Transition:
        """All transitions, unpacked, [C, N, ...]; empty rows are zero."""
        layout, start = self.layout, (0, 0)
        reward, flags = layout.outcome.unpack(self.words, self.singles, start)
        terminated, truncated = of_flags(flags)
        obs, action, extras = layout.before.unpack(self.words, self.singles, start)
        if layout.has_memory:
            carry = layout.carry.unpack(self.words, self.singles, start)
            extras = {**extras, CARRY: carry}
        return Transition(
            obs=obs,
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            next_obs=layout.after.unpack(self.words, self.singles, start),
            extras=extras,
        )

    def cut(self) -> "Ring":
        """The ring with its newest row marked as truncated."""
        newest = (self.head - 1) % self.num_rows
        position = self.layout.outcome.end[0] - 1  # the last word of the outcome
        flags = self.words[newest, :, position] | TRUNCATED
        return self.replace(words=self.words.at[newest, :, position].set(flags))

    def resized(self, num_rows: int, num_envs: int) -> tuple["Ring", Array]:
        """A ring of another size with the newest transitions of this one, in the same order.

        The oldest that fill no whole row, or are too many, are left out. All are marked as
        truncated, since the row after a transition may be that of another environment. Also returns
        where each came from, as row · N + column of this ring, [C', N']; rows that are not filled
        come from anywhere.
        """
        stored = self.size * self.num_envs
        size = jnp.minimum(stored // num_envs, num_rows)
        place = jnp.arange(num_rows * num_envs).reshape(num_rows, num_envs)
        # The place in the order of age; `place` has fewer elements than there are from there on.
        old = jnp.clip(stored - size * num_envs + place, 0, self.num_rows * self.num_envs - 1)
        row, env = self.row(old // self.num_envs), old % self.num_envs
        is_filled = (jnp.arange(num_rows) < size)[:, None]
        flags = self.layout.outcome.end[0] - 1  # the last word of the outcome
        words = jnp.where(is_filled[..., None], self.words[row, env], 0)
        cut = jnp.where(is_filled, words[..., flags] | TRUNCATED, 0)
        singles = self.singles
        if singles is not None:
            singles = jnp.where(is_filled[..., None], singles[row, env], 0).astype(singles.dtype)
        ring = self.replace(
            words=words.at[..., flags].set(cut.astype(words.dtype)).astype(self.words.dtype),
            singles=singles,
            head=(size % num_rows).astype(self.head.dtype),
            size=size.astype(self.size.dtype),
        )
        return ring, row * self.num_envs + env

    def row(self, age: Array) -> Array:
        """The index of the row that is `age` rows newer than the oldest one."""
        return (self.head - self.size + age) % self.num_rows

    def age(self, row: Array) -> Array:
        """How many rows newer than the oldest one a row is."""
        return (row - self.head + self.size) % self.num_rows

    def read(self, row: Array, env: Array, *sections: Section) -> list[PyTree]:
        """Adjacent sections, in order, of the transitions in rows and columns [...].

        Each has leaves [..., *shape].
        """
        start, end = sections[0].start, sections[-1].end
        words = _take(self.words, row, env, start[0], end[0])
        singles = (
            None
            if self.singles is None or start[1] == end[1]
            else _take(self.singles, row, env, start[1], end[1])
        )
        return [section.unpack(words, singles, start) for section in sections]


def redivided_rings(rings: Ring, num_devices: int) -> Ring:
    """The rings [D, ...] of D devices, which were written at the same times, as those of another
    number of them [D', ...]. Every column stays whole.
    """

    def cut(x: Array) -> Array:
        return redivide(x, num_devices, axis=1)

    return rings.replace(
        words=cut(rings.words),
        singles=None if rings.singles is None else cut(rings.singles),
        head=jnp.full(num_devices, rings.head[0]),
        size=jnp.full(num_devices, rings.size[0]),
    )


def _take(packed: Array, row: Array, env: Array, start: int, end: int) -> Array:
    """`packed[row, env, start:end]`, as one gather of just these entries."""

    def one(row: Array, env: Array) -> Array:
        return jax.lax.dynamic_slice(packed, (row, env, start), (1, 1, end - start))[0, 0]

    found = jax.vmap(one)(row.ravel(), jnp.broadcast_to(env, row.shape).ravel())
    return found.reshape(*row.shape, end - start)
