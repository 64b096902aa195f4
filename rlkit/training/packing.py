"""A pytree as one vector for each dtype: a call of a compiled function costs over a microsecond for each array it is passed."""

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from rlkit.types import PyTree


class Packing:
    """Packs trees shaped like `example` (arrays or `jax.ShapeDtypeStruct`); packing and unpacking change no bit.

    Vectors may have gained leading axes when they are unpacked, such as one of iterations, and may be NumPy.
    """

    def __init__(self, example: PyTree):
        leaves, self._structure = jax.tree.flatten(example)
        self._leaves = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
        self._dtypes = list(dict.fromkeys(leaf.dtype for leaf in self._leaves))

    def pack(self, tree: PyTree) -> list[Array]:
        """A vector for each dtype that occurs in the tree."""
        leaves = jax.tree.leaves(tree)
        return [jnp.concatenate([x.ravel() for x in leaves if x.dtype == dtype]) for dtype in self._dtypes]

    def unpack(self, vectors: list[Any]) -> PyTree:
        """The tree back."""
        parts: dict[Any, Any] = {}
        for dtype, vector in zip(self._dtypes, vectors, strict=True):
            sizes = [math.prod(leaf.shape) for leaf in self._leaves if leaf.dtype == dtype]
            ends = list(itertools.accumulate(sizes))
            parts[dtype] = iter([vector[..., end - size : end] for size, end in zip(sizes, ends, strict=True)])
        front = vectors[0].shape[:-1]
        return self._structure.unflatten([next(parts[leaf.dtype]).reshape(front + leaf.shape) for leaf in self._leaves])


class Packed(struct.PyTreeNode):
    """A packed tree that knows how it is unpacked, for compiled functions to return."""

    vectors: list[Array]
    packing: Packing = struct.field(pytree_node=False)

    @classmethod
    def of(cls, tree: PyTree) -> "Packed":
        """The tree, packed."""
        packing = Packing(tree)
        return cls(vectors=packing.pack(tree), packing=packing)

    def unpack(self) -> PyTree:
        """The tree back."""
        return self.packing.unpack(self.vectors)
