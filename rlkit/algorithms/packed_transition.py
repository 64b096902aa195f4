"""How a transition is packed: words of four bytes, and single bytes for smaller dtypes."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlkit.agents.base import Outputs
from rlkit.algorithms.sequences import CARRY
from rlkit.errors import require
from rlkit.types import Carry, PyTree, Transition

WORD = 4  # bytes
TERMINATED, TRUNCATED = 1, 2  # bits of a transition's flags


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a transition, and its place in a packed one; packing is lossless."""

    structure: Any  # of type `PyTreeDef`
    leaves: tuple[tuple[tuple[int, ...], np.dtype], ...]  # (shape, dtype)
    start: tuple[int, int]  # in (words, singles)
    size: tuple[int, int]

    @classmethod
    def of(cls, example: PyTree, start: tuple[int, int]) -> "Section":
        """The section for trees like `example`, beginning at `start`.

        The leaves of `example` are `jax.ShapeDtypeStruct`.
        """
        found, structure = jax.tree.flatten(example)
        leaves = tuple((leaf.shape, jnp.dtype(leaf.dtype)) for leaf in found)
        words = sum(_num_units(*leaf) for leaf in leaves if _is_wide(leaf[1]))
        singles = sum(_num_units(*leaf) for leaf in leaves if not _is_wide(leaf[1]))
        return cls(structure, leaves, start, (words, singles))

    @property
    def end(self) -> tuple[int, int]:
        """Where the next section begins."""
        return self.start[0] + self.size[0], self.start[1] + self.size[1]

    def pack(self, tree: PyTree, num_axes: int) -> tuple[list[Array], list[Array]]:
        """(words, singles) of the leaves, cast to their dtypes.

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
        words = [x for dtype, x in units if _is_wide(dtype)]
        singles = [x for dtype, x in units if not _is_wide(dtype)]
        return words, singles

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
    """How a transition is packed, in this order.

    The memory of an agent comes first, since of a sequence only that of the first step is read.
    """

    carry: Section  # the agent's memory before the step, () without
    outcome: Section  # (reward, flags), see `to_flags`
    before: Section  # (obs, action, other extras)
    after: Section  # next_obs

    @classmethod
    def of(cls, example: Transition) -> "Layout":
        """The layout for transitions like `example`, without batch axes."""
        memory, extras = split_extras(example.extras)
        carry = Section.of(memory, (0, 0))
        outcome = Section.of((example.reward, jax.ShapeDtypeStruct((), jnp.uint32)), carry.end)
        before = Section.of((example.obs, example.action, extras), outcome.end)
        return cls(carry, outcome, before, Section.of(example.next_obs, before.end))

    @property
    def has_memory(self) -> bool:
        """Whether an agent with memory collects the transitions."""
        return bool(self.carry.leaves)


def split_extras(extras: dict[str, PyTree]) -> tuple[Carry, dict[str, PyTree]]:
    """(the memory before the step, () without; all other extras that are stored)

    `Outputs` of an actor-critic are not: what is replayed is computed with newer parameters.
    """
    stored = {name: x for name, x in extras.items() if name != CARRY and not isinstance(x, Outputs)}
    return extras.get(CARRY, ()), stored


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
