"""A ring of transitions on the device, packed into one array, or two with images.

Writing a row and reading a batch then touch only that array. With an array for each field, XLA
fused the write of one field into the read after it, and so kept the old array and copied it in
every update: an update of SAC with a million transitions of HalfCheetah took 53 ms instead of 6.6.
If a memory is larger than the caches, the cost of a transition is the number of places that it is
read from.
"""

import dataclasses
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from rlkit.errors import require
from rlkit.types import PyTree, Rollout, Transition

WORD = 4  # bytes
TERMINATED, TRUNCATED = 1, 2  # bits of a transition's flags


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a transition, and its place in a packed one; packing is lossless."""

    structure: Any
    leaves: tuple[tuple[tuple[int, ...], np.dtype], ...]  # (shape, dtype)
    start: tuple[int, int]  # in (words, bytes)
    size: tuple[int, int]

    @classmethod
    def of(cls, example: PyTree, start: tuple[int, int]) -> "Section":
        """The section for trees like `example`, beginning at `start`.

        The leaves of `example` are `jax.ShapeDtypeStruct`.
        """
        found, structure = jax.tree.flatten(example)
        leaves = tuple((leaf.shape, jnp.dtype(leaf.dtype)) for leaf in found)
        size = tuple(
            sum(_num_units(*leaf) for leaf in leaves if _is_wide(leaf[1]) == wide)
            for wide in (True, False)
        )
        return cls(structure, leaves, start, (size[0], size[1]))

    @property
    def end(self) -> tuple[int, int]:
        """Where the next section begins."""
        return self.start[0] + self.size[0], self.start[1] + self.size[1]

    def pack(self, tree: PyTree, num_axes: int) -> tuple[list[Array], list[Array]]:
        """(words, bytes) of the leaves, cast to their dtypes.

        Each has `num_axes` leading axes and one more. Raises `ConfigError` for a tree of other
        shapes.
        """
        found, structure = jax.tree.flatten(tree)
        shapes = [leaf.shape[num_axes:] for leaf in found]
        require(
            structure == self.structure and shapes == [shape for shape, _ in self.leaves],
            f"the replay buffer was made for {self.structure} of shapes"
            f" {[shape for shape, _ in self.leaves]}, a rollout has {structure} of shapes {shapes}",
            "let the agent return the same extras in every step, and the environment the"
            " observations that it declares",
        )
        units = [
            (dtype, _to_units(leaf.astype(dtype), num_axes))
            for leaf, (_, dtype) in zip(found, self.leaves, strict=True)
        ]
        return tuple([x for dtype, x in units if _is_wide(dtype) == wide] for wide in (True, False))  # pyright: ignore

    def unpack(self, words: Array, singles: Array | None, offset: tuple[int, int]) -> PyTree:
        """The tree from packed rows [..., W] and [..., B].

        Their first entries are at `offset` in a transition. `singles` may be None if no leaf is in
        them.
        """
        position = [self.start[0] - offset[0], self.start[1] - offset[1]]
        leaves = []
        for shape, dtype in self.leaves:
            source, index = (words, 0) if _is_wide(dtype) else (singles, 1)
            assert source is not None
            size = _num_units(shape, dtype)
            leaves.append(
                _from_units(source[..., position[index] : position[index] + size], shape, dtype)
            )
            position[index] += size
        return self.structure.unflatten(leaves)


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a transition is packed: its outcome, what came before, what came after; in this order."""

    outcome: Section  # (reward, flags), see `to_flags`
    before: Section  # (obs, action, extras)
    after: Section  # next_obs

    @classmethod
    def of(cls, example: Transition) -> "Layout":
        """The layout for transitions like `example`, without batch axes."""
        outcome = Section.of((example.reward, jax.ShapeDtypeStruct((), jnp.uint32)), (0, 0))
        before = Section.of((example.obs, example.action, example.extras), outcome.end)
        return cls(outcome, before, Section.of(example.next_obs, before.end))


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

    def written(self, num_steps: int) -> Array:
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
        rows = self.written(num_steps)
        layout = self.layout
        parts = [
            layout.outcome.pack(
                (rollout.reward, to_flags(rollout.terminated, rollout.truncated)), 2
            ),
            layout.before.pack((rollout.obs, rollout.action, rollout.extras), 2),
            layout.after.pack(rollout.next_obs, 2),
        ]
        words, singles = (list(itertools.chain.from_iterable(x)) for x in zip(*parts, strict=True))
        if num_steps == 1:  # cheaper than a scatter

            def put(ring: Array, new: list[Array]) -> Array:
                return jax.lax.dynamic_update_slice_in_dim(
                    ring, jnp.concatenate(new, axis=-1), self.head, 0
                )

        else:

            def put(ring: Array, new: list[Array]) -> Array:
                return ring.at[rows].set(
                    jnp.concatenate(new, axis=-1), unique_indices=True, mode="promise_in_bounds"
                )

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

    def row(self, age: Array) -> Array:
        """The index of the row that is `age` rows newer than the oldest one."""
        return (self.head - self.size + age) % self.num_rows

    def age(self, row: Array) -> Array:
        """How many rows newer than the oldest one a row is."""
        return (row - self.head + self.size) % self.num_rows

    def read(self, row: Array, env: Array, *sections: Section) -> list[Any]:
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


def to_flags(terminated: Array, truncated: Array) -> Array:
    """Both as one uint32 word.

    If they were bytes, transitions would be read from two places.
    """
    return jnp.where(terminated, jnp.uint32(TERMINATED), 0) | jnp.where(
        truncated, jnp.uint32(TRUNCATED), 0
    )


def of_flags(flags: Array) -> tuple[Array, Array]:
    """(terminated, truncated) from `to_flags`."""
    return flags & TERMINATED != 0, flags & TRUNCATED != 0


def _take(packed: Array, row: Array, env: Array, start: int, end: int) -> Array:
    """`packed[row, env, start:end]`, as one gather of just these entries."""

    def one(row: Array, env: Array) -> Array:
        return jax.lax.dynamic_slice(packed, (row, env, start), (1, 1, end - start))[0, 0]

    found = jax.vmap(one)(row.ravel(), jnp.broadcast_to(env, row.shape).ravel())
    return found.reshape(*row.shape, end - start)


def _is_wide(dtype: np.dtype) -> bool:
    return jnp.dtype(dtype).itemsize >= WORD and dtype != jnp.bool_


def _unit(dtype: np.dtype) -> Any:
    return jnp.uint32 if _is_wide(dtype) else jnp.uint8


def _num_units(shape: tuple[int, ...], dtype: np.dtype) -> int:
    return math.prod(shape) * (dtype.itemsize // jnp.dtype(_unit(dtype)).itemsize)


def _to_units(x: Array, num_axes: int) -> Array:
    """[..., ...] -> [..., units]"""
    units = (
        x.astype(jnp.uint8)
        if x.dtype == jnp.bool_
        else jax.lax.bitcast_convert_type(x, _unit(x.dtype))
    )
    return units.reshape(*x.shape[:num_axes], -1)


def _from_units(units: Array, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """[..., units] -> [..., *shape]"""
    batch, each = units.shape[:-1], dtype.itemsize // units.dtype.itemsize
    units = units.reshape(*batch, *shape, *((each,) if each > 1 else ()))
    return units != 0 if dtype == jnp.bool_ else jax.lax.bitcast_convert_type(units, dtype)
