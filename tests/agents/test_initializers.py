"""Orthogonal initialisation without LAPACK."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rlkit.agents.initializers import draw_frames, orthogonal
from rlkit.agents.networks import MLP, Linear, make_network


def as_matrix(kernel) -> np.ndarray:
    return np.asarray(kernel, np.float64).reshape(-1, kernel.shape[-1])


@pytest.mark.parametrize("scale", [1.0, np.sqrt(2), 0.01])
@pytest.mark.parametrize(
    "shape", [(64, 64), (200, 7), (7, 200), (1, 5), (5, 1), (3, 3, 4, 16), (8, 8, 1, 100)]
)
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


def uniform_alone(key):
    return orthogonal()(key, (4, 4))


def uniform_in_a_group(key):
    return draw_frames(key, [(9, 6), (4, 4), (9, 1)])[1]


@pytest.mark.parametrize("draw", [uniform_alone, uniform_in_a_group])
def test_distributed_as_uniform_frames(draw):
    """Of uniform O(n): entries have mean 0, variance 1/n, fourth moment 3/(n(n+2)), and det is ±1
    in equal shares.
    """
    n, num = 4, 4000
    q = np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(3), num)), np.float64)
    bound = 5.0 / np.sqrt(num)  # five standard errors of means of values in [-1, 1]
    np.testing.assert_allclose(q.mean(0), 0.0, atol=bound * np.sqrt(1 / n))
    np.testing.assert_allclose(
        (q**2).mean(0), 1 / n, atol=bound * np.sqrt(3 / (n * (n + 2)) - 1 / n**2)
    )
    np.testing.assert_allclose((q**4).mean(0), 3 / (n * (n + 2)), atol=bound * 0.25)
    assert abs(np.sign(np.linalg.det(q)).mean()) < bound
    np.testing.assert_allclose(np.einsum("kij,kil->jl", q, q) / num, np.eye(n), atol=1e-5)


def test_frames_drawn_together(key):
    """Small ones that become as large as the largest of them, some that are too large for that, two
    of them equal.
    """
    shapes = [(64, 4), (300, 300), (64, 64), (1, 1), (64, 1), (300, 300), (200, 7), (500, 300)]
    frames = draw_frames(key, shapes)
    for shape, frame in zip(shapes, frames, strict=True):
        assert frame.shape == shape
        np.testing.assert_allclose(
            as_matrix(frame).T @ as_matrix(frame), np.eye(shape[1]), atol=1e-5
        )
    assert np.abs(np.asarray(frames[1] - frames[5])).max() > 0.1


def deep(layers: int):
    return make_network(lambda rngs: MLP(4, (16,) * layers, "tanh", rngs=rngs))


def test_a_deeper_network_has_no_more_loops(key):
    """Each loop takes a tenth of a second to compile."""
    shallow, deeper = (
        jax.jit(deep(layers).init).lower(key).as_text().count("stablehlo.while")
        for layers in (5, 9)
    )
    assert 0 < shallow == deeper


def test_layers_of_a_network_are_orthogonal_and_differ(key):
    layers = deep(4).init(key)["layers"]
    kernels = [as_matrix(layer["kernel"]) / np.sqrt(2) for layer in layers.values()]
    for kernel in kernels:
        np.testing.assert_allclose(kernel @ kernel.T, np.eye(len(kernel)), atol=1e-5)
    assert all(np.abs(kernels[1] - other).max() > 0.1 for other in kernels[2:])


def test_members_of_a_mapped_layer_differ(key):
    """Under `nnx.vmap` the layer asks once for what three need, so that none can be had from
    outside.
    """

    @nnx.split_rngs(splits=3)
    @nnx.vmap
    def build(rngs):
        return MLP(4, (8, 8), "tanh", rngs=rngs)

    kernels = np.asarray(make_network(build).init(key)["layers"][1]["kernel"])
    assert kernels.shape == (3, 8, 8)
    assert np.abs(kernels[0] - kernels[1]).max() > 0.1
    for kernel in kernels:
        np.testing.assert_allclose(kernel.T @ kernel, 2 * np.eye(8), atol=1e-5)


def test_a_module_that_asks_for_other_weights_later(key):
    """One that is not built alike each time gets frames of its own, of the shapes that it
    asks for.
    """
    sizes = [8, 5, 5]

    def build(rngs):
        size = sizes.pop(0) if sizes else 3
        return Linear(size, size, rngs=rngs)

    kernel = as_matrix(make_network(build).init(key)["kernel"])
    np.testing.assert_allclose(kernel.T @ kernel, np.eye(5), atol=1e-5)


def test_an_initializer_with_a_key_of_its_own_keeps_it():
    """Such as of a random projection that is the same for every seed."""

    def build(rngs):
        return nnx.Linear(
            6, 4, kernel_init=lambda key, *rest: orthogonal()(jax.random.key(7), *rest), rngs=rngs
        )

    one, other = (make_network(build).init(jax.random.key(seed))["kernel"] for seed in (0, 1))
    np.testing.assert_array_equal(one, other)


def test_seeds_are_as_alone():
    keys, init = jax.random.split(jax.random.key(0), 3), deep(3).init
    for i, alone in enumerate(map(init, keys)):
        jax.tree.map(
            lambda x, y, i=i: np.testing.assert_allclose(x[i], y, atol=1e-5),
            jax.vmap(init)(keys),
            alone,
        )


def test_dtype_is_kept(key):
    assert orthogonal()(key, (4, 4), jnp.bfloat16).dtype == jnp.bfloat16


def test_no_lapack_call(key):
    """Batched LAPACK calls may deadlock on the CPU's thread pool (see test_no_deadlock.py)."""
    program = (
        jax.jit(jax.vmap(lambda k: orthogonal()(k, (8, 4))))
        .lower(jax.random.split(key, 4))
        .as_text()
    )
    assert "lapack" not in program.lower()
    reference = jax.nn.initializers.orthogonal()
    program = (
        jax.jit(jax.vmap(lambda k: reference(k, (8, 4)))).lower(jax.random.split(key, 4)).as_text()
    )
    assert "lapack" in program.lower()  # so the check can fail
