"""Orthogonal initialisation without LAPACK."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlkit.agents.initializers import orthogonal


def as_matrix(kernel) -> np.ndarray:
    return np.asarray(kernel, np.float64).reshape(-1, kernel.shape[-1])


@pytest.mark.parametrize("scale", [1.0, np.sqrt(2), 0.01])
@pytest.mark.parametrize("shape", [(64, 64), (200, 7), (7, 200), (1, 5), (5, 1), (3, 3, 4, 16), (8, 8, 1, 100)])
def test_orthonormal_rows_or_columns(key, shape, scale):
    kernel = orthogonal(scale)(key, shape)
    assert kernel.shape == shape
    assert kernel.dtype == jnp.float32
    q = as_matrix(kernel) / scale
    gram = q.T @ q if q.shape[0] >= q.shape[1] else q @ q.T
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-5)


def test_different_keys_differ_and_equal_keys_agree():
    init = orthogonal()
    one, again, other = (init(jax.random.key(seed), (5, 3)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert np.abs(np.asarray(one - other)).max() > 0.1


def test_distributed_as_uniform_frames():
    """Of uniform O(n): entries have mean 0, variance 1/n, fourth moment 3/(n(n+2)), and det is ±1 in equal shares."""
    n, num = 4, 4000
    q = np.asarray(jax.jit(jax.vmap(lambda k: orthogonal()(k, (n, n))))(jax.random.split(jax.random.key(3), num)), np.float64)
    bound = 5.0 / np.sqrt(num)  # five standard errors of means of values in [-1, 1]
    np.testing.assert_allclose(q.mean(0), 0.0, atol=bound * np.sqrt(1 / n))
    np.testing.assert_allclose((q**2).mean(0), 1 / n, atol=bound * np.sqrt(3 / (n * (n + 2)) - 1 / n**2))
    np.testing.assert_allclose((q**4).mean(0), 3 / (n * (n + 2)), atol=bound * 0.25)
    assert abs(np.sign(np.linalg.det(q)).mean()) < bound
    np.testing.assert_allclose(np.einsum("kij,kil->jl", q, q) / num, np.eye(n), atol=1e-5)


def test_dtype_is_kept(key):
    assert orthogonal()(key, (4, 4), jnp.bfloat16).dtype == jnp.bfloat16


def test_no_lapack_call(key):
    """Batched LAPACK calls may deadlock on the CPU's thread pool (see test_no_deadlock.py)."""
    program = jax.jit(jax.vmap(lambda k: orthogonal()(k, (8, 4)))).lower(jax.random.split(key, 4)).as_text()
    assert "lapack" not in program.lower()
    reference = jax.nn.initializers.orthogonal()
    program = jax.jit(jax.vmap(lambda k: reference(k, (8, 4)))).lower(jax.random.split(key, 4)).as_text()
    assert "lapack" in program.lower()  # so the check can fail
