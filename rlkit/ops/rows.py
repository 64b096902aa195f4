"""Rows of batches: selected, joined over two axes, and searched for NaN and infinity."""

import functools
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

Tree = TypeVar("Tree")


def where_rows(condition: Array, yes: Tree, no: Tree) -> Tree:
    """`jnp.where` for rows of trees [N, ...]: `yes` where `condition` [N] holds, else `no`."""

    def chosen(yes: Array, no: Array) -> Array:
        return jnp.where(
            condition.reshape(condition.shape + (1,) * (no.ndim - condition.ndim)), yes, no
        )

    return jax.tree.map(chosen, yes, no)


def flatten(tree: Tree) -> Tree:
    """Joins the first two axes of every leaf: [T, N, ...] -> [T·N, ...]."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def redivide(x: Array, num_parts: int, axis: int = 0) -> Array:
    """Parts [D, ...] of an array that was cut along `axis`, cut into another number of them."""
    whole = jnp.moveaxis(x, 0, axis)
    old, size = whole.shape[axis : axis + 2]
    shape = (*whole.shape[:axis], num_parts, old * size // num_parts, *whole.shape[axis + 2 :])
    cut = whole.reshape(shape)
    return jnp.moveaxis(cut, axis, 0)


def non_finite_rows(tree: Any, front: int = 1) -> Array | None:
    """Where any number behind the first `front` axes is NaN or infinite; None: no floats."""
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(jnp.result_type(x), jnp.inexact)]
    found = [(~jnp.isfinite(x)).any(tuple(range(front, x.ndim))) for x in floats]
    return functools.reduce(jnp.logical_or, found) if found else None
