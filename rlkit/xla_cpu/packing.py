"""Pytrees as one vector for each dtype.

A call has a cost for each array that it is passed, a compiled program for each that it computes.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jax import Array

PyTree = Any
# The most numbers in an array that joins a vector; measured in benchmarks/notes.md. Checkpoints
# hold optimiser states in this form: with another value, existing runs cannot be resumed.
LONGEST_SMALL = 2**14


class Packing:
    """Packs trees shaped like `example` (arrays or `jax.ShapeDtypeStruct`), without loss.

    Leaves of more than `longest` numbers, if given, stay separate arrays. When they are unpacked,
    vectors may have gained leading axes, such as one of iterations, and may be NumPy. Two for equal
    trees are equal: under `jax.disable_jit()`, a loop makes one in each step, and stacks outputs.
    """

    def __init__(self, example: PyTree, *, longest: int | None = None):
        leaves, self._structure = jax.tree.flatten(example)
        self._leaves = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
        self._joins = [longest is None or math.prod(leaf.shape) <= longest for leaf in leaves]
        self._dtypes = list(
            dict.fromkeys(
                leaf.dtype for leaf, joins in zip(leaves, self._joins, strict=True) if joins
            )
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packing) and self._layout == other._layout

    def __hash__(self) -> int:
        return hash(self._layout)

    @property
    def _layout(self) -> tuple[Any, ...]:
        return self._structure, tuple(self._leaves), tuple(self._joins)

    def pack(self, tree: PyTree) -> list[Array]:
        """One vector for each dtype among the leaves to join, then the other leaves.

        Leaves may differ from the example in dtype, as updates of half-precision parameters do;
        they join the vector of the example's dtype.
        """
        leaves = jax.tree.leaves(tree)
        assert jax.tree.structure(tree) == self._structure, "made for another tree"
        assert [x.shape for x in leaves] == [x.shape for x in self._leaves], "made for other shapes"
        pairs = list(zip(leaves, self._leaves, self._joins, strict=True))
        vectors = [
            jnp.concatenate(
                [x.ravel() for x, like, joins in pairs if joins and like.dtype == dtype]
            )
            for dtype in self._dtypes
        ]
        return vectors + [x for x, _, joins in pairs if not joins]

    def unpack(self, packed: PyTree) -> PyTree:
        """The tree back."""
        vectors, others = (
            dict(zip(self._dtypes, packed, strict=False)),
            iter(packed[len(self._dtypes) :]),
        )
        used = dict.fromkeys(self._dtypes, 0)

        def take(leaf: jax.ShapeDtypeStruct, joins: bool) -> Array | np.ndarray:
            if not joins:
                return next(others)
            vector, start = vectors[leaf.dtype], used[leaf.dtype]
            used[leaf.dtype] = end = start + math.prod(leaf.shape)
            return vector[..., start:end].reshape(vector.shape[:-1] + leaf.shape)

        return self._structure.unflatten(map(take, self._leaves, self._joins))


class NoPacking:
    """A `Packing` that leaves trees as they are."""

    def pack(self, tree: PyTree) -> PyTree:
        """The tree itself."""
        return tree

    unpack = pack


NO_PACKING = NoPacking()


class Packed(struct.PyTreeNode):
    """A packed tree that can unpack itself, for compiled functions to return."""

    vectors: list[Array]
    packing: Packing = struct.field(pytree_node=False)

    @classmethod
    def of(cls, tree: PyTree) -> "Packed":
        """The tree, packed; its leaves may be Python numbers."""
        tree = jax.tree.map(jnp.asarray, tree)
        packing = Packing(tree)
        return cls(vectors=packing.pack(tree), packing=packing)

    def unpack(self) -> PyTree:
        """The tree back."""
        return self.packing.unpack(self.vectors)


def pack_small_arrays(
    optimizer: optax.GradientTransformation,
) -> optax.GradientTransformationExtraArgs:
    """As `optax.flatten`, but larger arrays stay separate: joining them costs copies.

    `progress` is the only extra argument that is passed on, since others may have the form of the
    parameters.
    """
    optimizer = optax.with_extra_args_support(optimizer)

    def init(params: PyTree) -> PyTree:
        return optimizer.init(_small_packing(params).pack(params))

    def update(
        updates: PyTree, state: PyTree, params: PyTree = None, **extra: Any
    ) -> tuple[PyTree, PyTree]:
        packing = _small_packing(updates)
        change, state = optimizer.update(
            packing.pack(updates),
            state,
            None if params is None else packing.pack(params),
            **{name: extra[name] for name in ("progress",) if name in extra},
        )
        return packing.unpack(change), state

    return optax.GradientTransformationExtraArgs(init, update)


def global_norm(tree: PyTree) -> Array:
    """As `optax.tree.norm`, in fewer kernels: small arrays are joined in one vector."""
    return optax.tree.norm(_small_packing(tree).pack(tree))


def _small_packing(tree: PyTree) -> Packing:
    return Packing(tree, longest=LONGEST_SMALL)
