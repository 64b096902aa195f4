"""How one leaf of an observation becomes floats: scaled, as one-hot vectors, or from tables."""

import math
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from gymnasium import spaces
from jax import Array

from rlkit.agents.first_weights import described
from rlkit.errors import SpaceError
from rlkit.ops.one_hots import one_hots
from rlkit.spaces import Space, is_image, map_space


class EncodingConfig(Protocol):
    """What the configs of agents say about integers."""

    @property
    def embedding_threshold(self) -> int:
        """More values than this are read from a table."""
        ...

    @property
    def embedding_size(self) -> int:
        """Width of such a table."""
        ...


class Table(nnx.Module):
    """A learned vector for each of `num_values` values: indices [B] -> [B, size].

    With orthogonal weights, its numbers begin with a variance of 1. What is out of range is read as
    zeros, as in a one-hot vector.
    """

    def __init__(self, num_values: int, size: int):
        self.rows = described((num_values, size), "orthogonal", math.sqrt(num_values))
        self.num_values = num_values

    def __call__(self, index: Array) -> Array:
        index = jnp.where(index < 0, self.num_values, index)  # `take` would count from the end
        return jnp.take(self.rows[...], index, axis=0, mode="fill", fill_value=0)


class Encoder(nnx.Module):
    """Encodes a leaf: a batch [B, ...] -> floats [B, features].

    Images keep their shape [B, H, W, C]. uint8 is scaled to [0, 1] by the bounds of the Box. Each
    integer of a Discrete or MultiDiscrete space becomes a one-hot vector, or a row of a `Table` of
    its own if it has more than `embedding_threshold` values. All else is flattened.
    """

    def __init__(self, space: Space, config: EncodingConfig):
        self.space, self.num_values = space, num_values(space)
        self.tables = nnx.List(
            [
                Table(count, config.embedding_size) if count > config.embedding_threshold else None
                for count in self.num_values
            ]
        )
        widths = [
            count if table is None else config.embedding_size
            for count, table in zip(self.num_values, self.tables, strict=True)
        ]
        self.out_features = sum(widths) if widths else _flat_size(space)

    def __call__(self, x: Array) -> Array:
        if self.num_values:
            index = x.astype(jnp.int32).reshape(x.shape[0], -1) - _starts(self.space)
            return self._integers(index)
        if x.dtype == jnp.uint8 and isinstance(self.space, spaces.Box):
            x = _scaled(self.space, x)
        x = x.astype(jnp.float32)
        return x if is_image(self.space) else x.reshape(x.shape[0], -1)

    def _integers(self, index: Array) -> Array:
        """[B, K] from 0 -> [B, features]."""
        if not any(self.tables):
            return one_hots(index, self.num_values)
        parts = [
            jax.nn.one_hot(index[:, i], count) if table is None else table(index[:, i])
            for i, (count, table) in enumerate(zip(self.num_values, self.tables, strict=True))
        ]
        return jnp.concatenate(parts, axis=-1)


def num_values(space: Space) -> tuple[int, ...]:
    """How many values each integer of a Discrete or MultiDiscrete space has; () for others."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(int(count) for count in space.nvec.ravel())
    return ()


def encoding_note(space: Space, config: EncodingConfig) -> str | None:
    """A sentence on the integers that are read from tables; None if all are one-hot vectors."""
    paths = jax.tree.leaves_with_path(map_space(num_values, space), is_leaf=_are_counts)
    rows = [
        f"observation{jax.tree_util.keystr(path)} ({max(large):,} values)"
        for path, counts in paths
        if (large := [count for count in counts if count > config.embedding_threshold])
    ]
    if not rows:
        return None
    more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
    return (
        f"{', '.join(rows[:3])}{more}: read from learned tables, {config.embedding_size} numbers"
        " for each value, instead of one-hot vectors (embedding_size; embedding_threshold"
        f" {config.embedding_threshold:,})"
    )


def _are_counts(node: object) -> bool:
    return isinstance(node, tuple) and all(isinstance(each, int) for each in node)


def _starts(space: Space) -> int | np.ndarray:
    """The smallest value of each integer."""
    if isinstance(space, spaces.MultiDiscrete):
        return np.asarray(space.start, np.int32).ravel()
    assert isinstance(space, spaces.Discrete)
    return int(space.start)


def _scaled(space: spaces.Box, x: Array) -> Array:
    """uint8 [B, ...] from the bounds of the Box to [0, 1]; where these agree, 0."""
    low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
    width = np.maximum(high - low, 1.0)
    x = x.astype(jnp.float32)
    x = x - low if low.any() else x
    return x / (float(width.flat[0]) if (width == width.flat[0]).all() else width)


def _flat_size(space: Space) -> int:
    if space.shape is None:
        raise SpaceError(
            f"observations of {space} have no fixed size; use Box, Discrete, MultiDiscrete,"
            " MultiBinary, Dict or Tuple"
        )
    return math.prod(space.shape)
