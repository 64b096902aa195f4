"""A sum tree, for sampling indices in proportion to changing priorities.

Every sum is recomputed from its children when one of them changes, instead of adding a difference:
after any number of updates the tree is bit for bit the one built from its leaves. Sampling descends
from the root with a new random number on each level, so that small priorities among millions are
not lost to rounding.
"""

import itertools

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

FAN_OUT = 16


class SumTree(struct.PyTreeNode, kw_only=True):
    """Each level is padded with zeros to full groups of `FAN_OUT` siblings."""

    levels: tuple[Array, ...]  # float32, leaves first; the last level is a single group

    @classmethod
    def create(cls, num_leaves: int) -> "SumTree":
        """A tree of zeros."""
        sizes = [-(-num_leaves // FAN_OUT)]  # groups
        while sizes[-1] > 1:
            sizes.append(-(-sizes[-1] // FAN_OUT))
        return cls(levels=tuple(jnp.zeros(size * FAN_OUT, jnp.float32) for size in sizes))

    @property
    def leaves(self) -> Array:
        """The priorities, including the zeros at the end."""
        return self.levels[0]

    @property
    def total(self) -> Array:
        """The sum of all priorities, []."""
        return _partial_sums(self.levels[-1])[-1]

    def set(self, index: Array, value: Array) -> "SumTree":
        """Sets leaves `index` [K] to `value` [K], non-negative; for duplicates, either value."""
        levels = [self.levels[0].at[index].set(value, mode="promise_in_bounds")]
        for level in self.levels[1:]:
            index = index // FAN_OUT
            sums = _partial_sums(_group(levels[-1], index))[-1]
            levels.append(level.at[index].set(sums, mode="promise_in_bounds"))
        return self.replace(levels=tuple(levels))

    def draw(self, key: Array, num: int) -> Array:
        """Samples [num] int32 leaves with probability priority / total (> 0). Consumes the key."""
        index = jnp.zeros(num, jnp.int32)
        uniform = jax.random.uniform(key, (len(self.levels), num))
        for level, u in zip(reversed(self.levels), uniform, strict=True):
            sums = _partial_sums(_group(level, index))
            # Leaves without priority are never the first above.
            below = sum((x <= u * sums[-1]).astype(jnp.int32) for x in sums)
            index = index * FAN_OUT + below
        return index


def _group(level: Array, index: Array) -> Array:
    """The siblings below the nodes `index` [K], [K, FAN_OUT]."""
    return level.reshape(-1, FAN_OUT)[index]


def _partial_sums(siblings: Array) -> list[Array]:
    """Cumulative sums over the last axis, as FAN_OUT arrays [...] that never decrease."""
    return list(itertools.accumulate(siblings[..., i] for i in range(FAN_OUT)))
