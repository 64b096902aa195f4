"""A tree of sums, to draw indices in proportion to priorities that change.

Every sum is computed anew from its children whenever one of them changes, never by adding a
difference: after any number of updates the tree is, bit for bit, the one that would be built from
its leaves. A draw descends from the root and takes a random number of its own on each level, so
that small priorities among millions are not lost in the rounding of one number.
"""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

FAN_OUT = 16


class SumTree(struct.PyTreeNode, kw_only=True):
    """Each level is padded with zeros to whole groups of `FAN_OUT` siblings."""

    levels: tuple[Array, ...]  # float32, leaves first; the last one is a single group

    @classmethod
    def create(cls, num_leaves: int) -> "SumTree":
        """All zero."""
        sizes = [-(-num_leaves // FAN_OUT)]  # groups
        while sizes[-1] > 1:
            sizes.append(-(-sizes[-1] // FAN_OUT))
        return cls(levels=tuple(jnp.zeros(size * FAN_OUT, jnp.float32) for size in sizes))

    @property
    def leaves(self) -> Array:
        """The priorities, zeros at the end included."""
        return self.levels[0]

    @property
    def total(self) -> Array:
        """The sum of all priorities, []."""
        return _partial_sums(self.levels[-1])[-1]

    def set(self, index: Array, value: Array) -> "SumTree":
        """With leaves `index` [K] set to `value` [K], non-negative; of an index that occurs twice,
        either value.
        """
        levels = [self.levels[0].at[index].set(value, mode="promise_in_bounds")]
        for level in self.levels[1:]:
            index = index // FAN_OUT
            sums = _partial_sums(_group(levels[-1], index))[-1]
            levels.append(level.at[index].set(sums, mode="promise_in_bounds"))
        return self.replace(levels=tuple(levels))

    def draw(self, key: Array, num: int) -> Array:
        """Leaves [num] int32, each with probability priority / total, which must not be 0; the key
        is consumed.
        """
        index = jnp.zeros(num, jnp.int32)
        uniform = jax.random.uniform(key, (len(self.levels), num))
        for level, u in zip(reversed(self.levels), uniform, strict=True):
            sums = _partial_sums(_group(level, index))
            below = sum(
                (x <= u * sums[-1]).astype(jnp.int32) for x in sums
            )  # what has no priority is never the first above
            index = index * FAN_OUT + below
        return index


def _group(level: Array, index: Array) -> Array:
    """The siblings under nodes `index` [K], [K, FAN_OUT]."""
    return level.reshape(-1, FAN_OUT)[index]


def _partial_sums(siblings: Array) -> list[Any]:
    """[..., FAN_OUT] -> FAN_OUT arrays [...], added up from the left, so that they never fall."""
    return list(itertools.accumulate(siblings[..., i] for i in range(FAN_OUT)))
