"""Matrix products on a CPU: which are small, and faster gradients of weights."""

import math

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

from rlkit.xla_cpu.packing import PyTree
from rlkit.xla_cpu.switch import may_be_on

# Where transposing pays, measured in benchmarks/notes.md: the smaller of inputs and outputs is at
# most NARROW, or the larger at most SMALL, or outputs are at most SMALL and inputs a multiple of
# STRIDED or at least LONG, or it makes 3 or 4 times SMALL outputs, as the gates of a GRU or LSTM,
# from SMALL inputs and at most FEW_ROWS rows.
NARROW = 32
SMALL = 64
STRIDED = 64
LONG = 1024
FEW_ROWS = 512
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
    a CPU, XLA often computes such a product more slowly than one without a transposition, and on
    its thread pool, so what follows waits for another thread. Where it pays (`_pays`), the factor
    with fewer columns (x, or the gradient with respect to the output) is therefore first transposed
    into a buffer of its own. Every derivative equals that of `x @ weights`, to rounding.
    """
    inputs, outputs = weights.shape
    batch = x.shape[:-1]
    rows = math.prod(batch)
    if not _pays(rows, inputs, outputs) or not may_be_on("matmul"):
        return x @ weights
    return _matmul(x.reshape(rows, x.shape[-1]), weights).reshape(*batch, outputs)


def _pays(rows: int, inputs: int, outputs: int) -> bool:
    """Whether transposing a factor first is faster for a batch of `rows`.

    It pays for narrow and small layers, for large inputs, above all for a multiple of 64 numbers
    (Eigen probably reads columns, whose numbers then fall into few cache sets), and for the gates
    of a small memory. Measured for one seed, not for seeds under `vmap`.
    """
    if min(inputs, outputs) <= NARROW or max(inputs, outputs) <= SMALL:
        return True
    if inputs > outputs:
        return outputs <= SMALL and (inputs % STRIDED == 0 or inputs >= LONG)
    # What is exported has a symbolic number of rows, and no gradient.
    few_rows = isinstance(rows, int) and rows <= FEW_ROWS
    return inputs == SMALL and outputs in (3 * SMALL, 4 * SMALL) and few_rows


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
    # Otherwise XLA would transpose inside the product again.
    columns = jax.lax.optimization_barrier(x.T)
    return jax.lax.dot_general(columns, dweights, (((0,), (0,)), ((), ())))


def _by_outputs(x: Array, dweights: Array) -> Array:
    """x @ dweights, whose transpose multiplies [O, B] by [B, I] and transposes the small result."""
    rows = jax.lax.optimization_barrier(dweights.T)  # as above, for the transposition of the result
    out = jax.lax.dot_general(rows, x, (((1,), (1,)), ((), ())))  # [O, B]
    return jax.lax.optimization_barrier(out).T  # and for that of the output's gradient
