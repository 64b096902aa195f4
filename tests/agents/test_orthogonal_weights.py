"""Orthogonal initialisation without LAPACK."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rlkit.agents.layers import MLP, Linear
from rlkit.agents.networks import make_network
from rlkit.agents.orthogonal_weights import draw_frames, orthogonal
from rlkit.errors import ConfigError


def as_matrix(kernel) -> np.ndarray:
    return np.asarray(kernel, np.float64).reshape(-1, kernel.shape[-1])


@functools.partial(jax.jit, static_argnames="shape")
def draw(key, shape, scale=1.0):
    return orthogonal(scale)(key, shape)


@pytest.mark.parametrize("scale", [1.0, np.sqrt(2), 0.01])
@pytest.mark.parametrize(
    "shape", [(64, 64), (200, 7), (7, 200), (1, 5), (5, 1), (3, 3, 4, 16), (8, 8, 1, 100)]
)
def test_orthonormal_rows_or_columns(key, shape, scale):
    kernel = draw(key, shape, scale)
    assert kernel.shape == shape
    assert kernel.dtype == jnp.float32
    q = as_matrix(kernel) / scale
    gram = q.T @ q if q.shape[0] >= q.shape[1] else q @ q.T
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-5)


def test_different_keys_differ_and_equal_keys_agree():
    one, again, other = (np.asarray(draw(jax.random.key(seed), (5, 3))) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 0.1


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
    frames = jax.device_get(jax.jit(lambda key: draw_frames(key, shapes))(key))
    for shape, frame in zip(shapes, frames, strict=True):
        assert frame.shape == shape
        np.testing.assert_allclose(
            as_matrix(frame).T @ as_matrix(frame), np.eye(shape[1]), atol=1e-5
        )
    assert np.abs(frames[1] - frames[5]).max() > 0.1


def deep(layers: int):
    return make_network(lambda rngs: MLP(4, (16,) * layers, "tanh"))


def test_a_deeper_network_has_no_more_loops(key):
    """Each loop takes a tenth of a second to compile."""
    shallow, deeper = (
        jax.jit(deep(layers).init).lower(key).as_text().count("stablehlo.while")
        for layers in (5, 9)
    )
    assert 0 < shallow == deeper


def test_layers_of_a_network_are_orthogonal_and_differ(key):
    layers = jax.jit(deep(4).init)(key)["layers"]
    kernels = [as_matrix(layer["kernel"]) / np.sqrt(2) for layer in layers.values()]
    for kernel in kernels:
        np.testing.assert_allclose(kernel @ kernel.T, np.eye(len(kernel)), atol=1e-5)
    assert all(np.abs(kernels[1] - other).max() > 0.1 for other in kernels[2:])


def mapped(out_axes=0):
    """Three networks as one, whose layers are mapped by `vmap`."""

    def build(rngs):
        @nnx.split_rngs(splits=3)
        @nnx.vmap(out_axes=out_axes)
        def three(rngs):
            return MLP(4, (8, 8), "tanh", layer_norm=True)

        return three(rngs)

    return make_network(build)


def test_members_of_a_mapped_layer_differ(key):
    params = jax.jit(mapped().init)(key)
    assert {x.shape for x in jax.tree.leaves(params)} == {(3, 8), (3, 4, 8), (3, 8, 8)}
    kernels = np.asarray(params["layers"][1]["kernel"])
    assert np.abs(kernels[0] - kernels[1]).max() > 0.1
    for kernel in kernels:
        np.testing.assert_allclose(kernel.T @ kernel, 2 * np.eye(8), atol=1e-5)
    np.testing.assert_array_equal(params["layers"][1]["bias"], 0.0)


def test_a_layer_that_is_mapped_along_another_axis_is_refused():
    with pytest.raises(ConfigError, match=r"\[8\] of a layer were mapped to \[8, 3\]; .*out_axes"):
        mapped(out_axes=1)


class Loop(nnx.Module):
    """Ours and Flax's layers, built within a loop over keys."""

    def __init__(self, rngs):
        def member(key):
            rngs = nnx.Rngs(key)
            return nnx.state([MLP(4, (8, 8), "tanh"), nnx.Linear(8, 2, rngs=rngs)])

        self.members = nnx.data(jax.lax.map(member, jax.random.split(rngs.params(), 3)))


def test_layers_that_are_built_in_a_loop(key):
    params = jax.device_get(jax.jit(make_network(Loop).init)(key)["members"])
    for kernels in (params[0]["layers"][1]["kernel"], params[1]["kernel"]):
        assert np.isfinite(kernels).all()
        assert np.abs(kernels[0] - kernels[1]).max() > 0.1
    for kernel in params[0]["layers"][1]["kernel"]:
        np.testing.assert_allclose(kernel.T @ kernel, 2 * np.eye(8), atol=1e-5)


def test_a_module_of_described_layers_is_built_once(key):
    built = []

    def build(rngs):
        built.append(rngs)
        return MLP(4, (8, 8), "tanh", layer_norm=True)

    network = make_network(build)
    jax.eval_shape(network.init, key)
    assert len(built) == 1


class Mixed(nnx.Module):
    """A layer of ours, one of Flax's, and one of ours whose weights the module sets itself."""

    def __init__(self, rngs):
        self.ours = Linear(4, 8)
        self.theirs = nnx.Linear(8, 8, rngs=rngs)
        self.set = Linear(8, 2)
        self.set.bias[...] = jnp.full(2, 3.0)
        self.set.kernel[...] = jnp.ones((8, 2))

    def __call__(self, x):
        return self.set(self.theirs(self.ours(x)))


@pytest.mark.parametrize("how", [lambda init: init, jax.jit], ids=["eager", "jit"])
def test_other_layers_are_initialised_by_themselves(how):
    network = make_network(Mixed)
    init = how(network.init)
    one, again, other = (jax.device_get(init(jax.random.key(seed))) for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, one, again)
    for name in ("ours", "theirs"):
        assert np.abs(one[name]["kernel"] - other[name]["kernel"]).max() > 0.1
    # as Flax draws it from the second half of the key
    rngs = nnx.Rngs(jax.random.split(jax.random.key(0))[1])
    wanted = nnx.Linear(8, 8, rngs=rngs).kernel[...]
    np.testing.assert_allclose(one["theirs"]["kernel"], wanted, rtol=1e-6)
    kernel = as_matrix(one["ours"]["kernel"])
    np.testing.assert_allclose(kernel @ kernel.T, np.eye(4), atol=1e-5)
    assert how(network.apply)(one, np.ones((5, 4), np.float32)).shape == (5, 2)


def test_weights_that_a_module_sets_itself_stay(key):
    params = jax.jit(make_network(Mixed).init)(key)["set"]
    np.testing.assert_array_equal(params["bias"], 3.0)
    np.testing.assert_array_equal(params["kernel"], 1.0)


class Scaled(nnx.Module):
    def __init__(self, change, rngs):
        self.layer = Linear(4, 3)
        change(self.layer)

    def __call__(self, x):
        return self.layer(x)


def scale_kernel(layer):
    layer.kernel[...] = layer.kernel[...] * 0.1


def set_one_bias(layer):
    layer.bias[0] = 1.0


@pytest.mark.parametrize(("change", "name"), [(scale_kernel, "kernel"), (set_one_bias, "bias")])
def test_initial_weights_that_a_module_changes_are_refused(change, name):
    with pytest.raises(ConfigError, match=rf"layer\.{name} .*drawn only after.*assign the whole"):
        make_network(functools.partial(Scaled, change))


def test_a_layer_that_no_network_holds_is_not_a_number():
    """Rather than zeros, with which something would be learned."""
    assert np.isnan(jax.jit(lambda x: Linear(4, 2)(x))(np.ones((1, 4)))).all()


def test_an_initializer_with_a_key_of_its_own_keeps_it():
    """Such as of a random projection that is the same for every seed."""

    def build(rngs):
        return nnx.Linear(
            6, 4, kernel_init=lambda key, *rest: orthogonal()(jax.random.key(7), *rest), rngs=rngs
        )

    init = jax.jit(make_network(build).init)
    one, other = (init(jax.random.key(seed))["kernel"] for seed in (0, 1))
    np.testing.assert_array_equal(one, other)


def test_seeds_are_as_alone():
    keys, init = jax.random.split(jax.random.key(0), 3), deep(3).init
    together = jax.device_get(jax.jit(jax.vmap(init))(keys))
    for i, alone in enumerate(map(jax.jit(init), keys)):
        jax.tree.map(
            lambda x, y, i=i: np.testing.assert_allclose(x[i], y, atol=1e-5), together, alone
        )


def test_dtype_is_kept(key):
    kernel = jax.eval_shape(lambda key: orthogonal()(key, (4, 4), jnp.bfloat16), key)
    assert kernel.dtype == jnp.bfloat16


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
