"""Rows of batches: selected, and joined over two axes."""

from typing import TypeVar

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
