"""The product of a layer, with a gradient by the weights that is fast on a CPU where the layer is narrow."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

NARROW, SMALL = 32, 64  # inputs or outputs; measured in docs/design.md


def product(x: Array, weights: Array) -> Array:
    """`x @ weights`: [..., I] and [I, O] -> [..., O].

    The gradient by the weights sums over the batch, the first axis of both factors. On a CPU XLA computes such a product more
    slowly than one without a transposition, and hands it from thread to thread. Where a layer has few inputs or few outputs (up
    to `NARROW`), or not many of either (`SMALL`), its shorter factor is therefore transposed first, in a place of its own.
    Every derivative is that of `x @ weights`, to rounding.
    """
    inputs, outputs = weights.shape
    pays = min(inputs, outputs) <= NARROW or max(inputs, outputs) <= SMALL
    if not pays or jax.default_backend() != "cpu":
        return x @ weights
    return _product(x.reshape(-1, inputs), weights).reshape(*x.shape[:-1], outputs)


@jax.custom_jvp
def _product(x: Array, weights: Array) -> Array:
    return x @ weights


def _product_jvp(primals: tuple[Array, Array], tangents: tuple[Any, Any]) -> tuple[Array, Any]:
    """As of `x @ weights`; the part by the weights is written such that JAX transposes it to the product that is wanted."""
    (x, weights), (dx, dweights) = primals, tangents
    parts = []
    if not isinstance(dx, SymbolicZero):
        parts.append(dx @ weights)
    if not isinstance(dweights, SymbolicZero):
        parts.append(_by_inputs(x, dweights) if weights.shape[0] < weights.shape[1] else _by_outputs(x, dweights))
    out = _product(x, weights)
    return out, sum(parts[1:], parts[0]) if parts else jnp.zeros_like(out)


_product.defjvp(_product_jvp, symbolic_zeros=True)


def _by_inputs(x: Array, dweights: Array) -> Array:
    """x @ dweights, whose transpose multiplies [I, B] by [B, O]."""
    columns = jax.lax.optimization_barrier(x.T)  # else XLA would transpose inside of the product again
    return jax.lax.dot_general(columns, dweights, (((0,), (0,)), ((), ())))


def _by_outputs(x: Array, dweights: Array) -> Array:
    """x @ dweights, whose transpose multiplies [O, B] by [B, I] and transposes the small result."""
    rows = jax.lax.optimization_barrier(dweights.T)
    out = jax.lax.dot_general(rows, x, (((1,), (1,)), ((), ())))  # [O, B]
    return jax.lax.optimization_barrier(out).T
