"""Rows of batches."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array


def where_rows(condition: Array, yes: Any, no: Any) -> Any:
    """Of two trees of batches, leaves [N, ...], the rows of `yes` where `condition` [N] holds and
    those of `no` elsewhere.
    """

    def chosen(yes: Array, no: Array) -> Array:
        return jnp.where(
            condition.reshape(condition.shape + (1,) * (no.ndim - condition.ndim)), yes, no
        )

    return jax.tree.map(chosen, yes, no)
