"""Matrix products on a CPU: which are small, and a faster weight gradient for narrow layers."""

import math

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

from rlkit.xla_cpu.packing import PyTree
from rlkit.xla_cpu.switch import may_be_on

# Of layers, by the smaller and the larger of inputs and outputs; measured in benchmarks/notes.md.
NARROW = 32  # the smaller one
SMALL = 64  # the larger one; of the layers below, the smaller one
STRIDED = 64  # of which the larger one is a multiple
LONG = 1024  # the larger one
FEW_ROWS = 512  # of a batch
SMALL_PRODUCT = 2**22  # multiplications; measured in benchmarks/notes.md


def computes_little(params: PyTree, rows: int) -> bool:
    """Whether a batch of `rows` rows only takes small matrix products with these parameters.

    `params` is a pytree of arrays. False if one has more than two axes, as in a convolution. Mapped
    seeds are not counted.
    """
    shapes = [jnp.shape(x) for x in jax.tree.leaves(params)]
    return all(len(shape) <= 2 and math.prod(shape) * rows <= SMALL_PRODUCT for shape in shapes)


def matmul(x: Array, weights: Array) -> Array:
    """`x @ weights`: [..., I] and [I, O] -> [..., O].

    The gradient with respect to the weights sums over the batch, the first axis of both factors. On
    a CPU, XLA computes such a product more slowly than one without a transposition, and on its
    thread pool, so what follows waits for another thread. Where it pays (`_pays`), the factor with
    fewer columns (x, or the gradient with respect to the output) is therefore first transposed into
    a buffer of its own. Every derivative equals that of `x @ weights`, to rounding.
    """
    inputs, outputs = weights.shape
    batch = x.shape[:-1]
    rows = math.prod(batch)
    if not _pays(rows, inputs, outputs) or not may_be_on("matmul"):
        return x @ weights
    return _matmul(x.reshape(rows, x.shape[-1]), weights).reshape(*batch, outputs)


def _pays(rows: int, inputs: int, outputs: int) -> bool:
    """Whether transposing a factor first is faster for a batch of `rows` rows.

    It is for narrow and for small layers, for very long rows, and where rows lie a multiple of 256
    bytes apart: Eigen reads columns, whose numbers then share few sets of the cache.
    """
    smaller, larger = sorted((inputs, outputs))
    if smaller <= NARROW or larger <= SMALL:
        return True
    if smaller > SMALL or (larger % STRIDED and larger < LONG):
        return False
    return inputs > outputs or rows <= FEW_ROWS


@jax.custom_jvp
def _matmul(x: Array, weights: Array) -> Array:
    return x @ weights


def _matmul_jvp(
    primals: tuple[Array, Array], tangents: tuple[Array | SymbolicZero, Array | SymbolicZero]
) -> tuple[Array, Array]:
    """The JVP of `x @ weights`, written so that JAX transposes it to the product we want.

    That is the part by the weights. At least one tangent is not zero: JAX does not call it
    otherwise.
    """
    (x, weights), (dx, dweights) = primals, tangents
    if isinstance(dweights, SymbolicZero):
        assert not isinstance(dx, SymbolicZero)
        change = dx @ weights
    else:
        change = (
            _by_inputs(x, dweights)
            if weights.shape[0] < weights.shape[1]
            else _by_outputs(x, dweights)
        )
        if not isinstance(dx, SymbolicZero):
            change = dx @ weights + change
    return _matmul(x, weights), change


_matmul.defjvp(_matmul_jvp, symbolic_zeros=True)


def _by_inputs(x: Array, dweights: Array) -> Array:
    """x @ dweights, whose transpose multiplies [I, B] by [B, O]."""
    columns = jax.lax.optimization_barrier(
        x.T
    )  # otherwise XLA would transpose inside the product again
    return jax.lax.dot_general(columns, dweights, (((0,), (0,)), ((), ())))


def _by_outputs(x: Array, dweights: Array) -> Array:
    """x @ dweights, whose transpose multiplies [O, B] by [B, I] and transposes the small result."""
    rows = jax.lax.optimization_barrier(dweights.T)  # as above, for the transposition of the result
    out = jax.lax.dot_general(rows, x, (((1,), (1,)), ((), ())))  # [O, B]
    return jax.lax.optimization_barrier(out).T  # and for that of the output's gradient
