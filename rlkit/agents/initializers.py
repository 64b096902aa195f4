"""Orthogonal initialisation without LAPACK.

`jax.nn.initializers.orthogonal` calls LAPACK's QR; batched over seeds (`jit(vmap(init))`) it can deadlock on the CPU's thread
pool.
"""

import math

import jax
import jax.numpy as jnp
from jax import Array


def orthogonal(scale: float = 1.0):
    """An initialiser for kernels [..., inputs, outputs] with orthonormal rows or columns times `scale` (Saxe et al. 2014).

    A Gaussian matrix is orthonormalised column by column; projecting twice keeps it orthogonal to rounding error (Giraud et
    al. 2005). The result is uniformly distributed over the orthonormal frames.
    """

    def init(key: Array, shape: tuple[int, ...], dtype=jnp.float32, out_sharding=None) -> Array:
        del out_sharding
        rows, columns = math.prod(shape[:-1]), shape[-1]
        tall = (max(rows, columns), min(rows, columns))
        frame = orthonormal_columns(jax.random.normal(key, tall, jnp.float32))
        return (scale * (frame if rows >= columns else frame.T)).reshape(shape).astype(dtype)

    return init


def orthonormal_columns(matrix: Array) -> Array:
    """Gram-Schmidt with one re-orthogonalisation: [n, m] with n >= m and independent columns to [n, m] with QᵀQ = 1."""

    def step(j: Array, frame: Array) -> Array:
        column = frame[:, j]
        done = jnp.where(jnp.arange(frame.shape[1]) < j, frame, 0.0)  # [n, m] columns finished so far
        for _ in range(2):
            column = column - done @ (column @ done)
        return frame.at[:, j].set(column / jnp.linalg.norm(column))

    return jax.lax.fori_loop(0, matrix.shape[1], step, matrix)
