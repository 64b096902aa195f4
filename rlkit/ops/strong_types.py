"""Strongly typed arrays."""

from typing import TypeVar

import jax
import jax.numpy as jnp

Tree = TypeVar("Tree")


def strong_types(tree: Tree) -> Tree:
    """Every leaf as a strongly typed array, so that fresh and stepped states have equal types.

    With weak types among them a jitted step would compile twice.
    """
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.result_type(x)), tree)
