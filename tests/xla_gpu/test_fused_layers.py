"""Fused layers: as layer by layer, in value and gradient; where they apply. Pallas emulates."""

import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rlkit.agents.layers import MLP, Linear
from rlkit.xla_gpu import fused_layers as room
from rlkit.xla_gpu.fused_layers import FEWEST_ROWS, are_fused, fused_layers

FUNCTIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu, None: lambda z: z}


@pytest.fixture
def on(monkeypatch):
    monkeypatch.setattr(room, "is_on", lambda _: True)


def one_by_one(x, weights, biases, activations):
    for weight, bias, name in zip(weights, biases, activations, strict=True):
        x = FUNCTIONS[name](x @ weight + bias)
    return x


def problem(key, rows, sizes):
    """x [B, I], weights and biases of layers of these sizes, and a gradient [B, O]."""
    keys = iter(jax.random.split(key, 2 * len(sizes)))
    x, gradient = (jax.random.normal(next(keys), (rows, size)) for size in (sizes[0], sizes[-1]))
    pairs = list(itertools.pairwise(sizes))
    weights = [jax.random.normal(next(keys), pair) / np.sqrt(pair[0]) for pair in pairs]
    biases = [jax.random.normal(next(keys), pair[1:]) for pair in pairs]
    return x, weights, biases, gradient


@pytest.mark.parametrize(
    ("rows", "sizes", "activations"),
    [
        (64, (4, 64, 64, 2), ("tanh", "tanh", None)),
        (1, (3, 16), ("relu",)),  # less than a block
        (100, (17, 32, 48, 1), ("relu", "relu", None)),  # sizes and rows that must be padded
        (64 * 264 + 65, (2, 16, 3), ("tanh", "tanh")),  # several blocks for each program
    ],
)
def test_values_and_gradients_equal_layer_by_layer(key, rows, sizes, activations):
    x, weights, biases, gradient = problem(key, rows, sizes)

    def results(layers):
        y, pull = jax.vjp(lambda *args: layers(*args, activations), x, weights, biases)
        return y, pull(gradient)

    fused, plain = results(fused_layers), results(one_by_one)
    for a, b in zip(jax.tree.leaves(fused), jax.tree.leaves(plain), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5 * np.abs(b).max())


def test_mapped_over_seeds_equals_a_loop(key):
    problems = [problem(k, 80, (4, 16, 2)) for k in jax.random.split(key, 3)]

    def gradients(x, weights, biases, gradient):
        return jax.vjp(lambda *args: fused_layers(*args, ("tanh", None)), x, weights, biases)[1](
            gradient
        )

    mapped = jax.vmap(gradients)(*jax.tree.map(lambda *xs: jnp.stack(xs), *problems))
    for i, each in enumerate(problems):
        for a, b in zip(jax.tree.leaves(mapped), jax.tree.leaves(gradients(*each)), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-5, atol=1e-5)


def test_divided_between_devices_equals_one(key):
    x, weights, biases, _ = problem(key, 128, (4, 16, 2))
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("data",))
    rows, whole = jax.sharding.PartitionSpec("data"), jax.sharding.PartitionSpec()

    def summed(x, weights, biases):
        def loss(weights, biases):
            return fused_layers(x, weights, biases, ("tanh", None)).sum()

        return jax.lax.psum(jax.grad(loss, (0, 1))(weights, biases), "data")

    divided = jax.jit(
        jax.shard_map(
            summed, mesh=mesh, in_specs=(rows, whole, whole), out_specs=whole, check_vma=False
        )
    )(x, weights, biases)

    def loss(weights, biases):
        return one_by_one(x, weights, biases, ("tanh", None)).sum()

    wanted = jax.grad(loss, (0, 1))(weights, biases)
    for a, b in zip(jax.tree.leaves(divided), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("change", "fused"),
    [
        ({}, True),
        ({"rows": FEWEST_ROWS - 1}, False),
        ({"sizes": (4, 65, 2)}, False),
        ({"sizes": (65, 64, 2)}, False),
        ({"activations": ("gelu", None)}, False),
        ({"dtype": jnp.bfloat16}, False),
        ({"leading": (2,)}, False),
    ],
    ids=str,
)
def test_where_they_apply(on, change, fused):
    given = {
        "rows": FEWEST_ROWS,
        "sizes": (4, 64, 2),
        "activations": ("tanh", None),
        "dtype": jnp.float32,
        "leading": (),
    } | change
    sizes, dtype = given["sizes"], given["dtype"]
    x = jax.ShapeDtypeStruct((*given["leading"], given["rows"], sizes[0]), dtype)
    weights = [jax.ShapeDtypeStruct(pair, dtype) for pair in itertools.pairwise(sizes)]
    assert are_fused(x, weights, given["activations"]) == fused


@pytest.mark.fast
def test_off_without_the_kernels(on, monkeypatch):
    x, weights = jax.ShapeDtypeStruct((FEWEST_ROWS, 4), jnp.float32), []
    assert are_fused(x, weights, ())
    monkeypatch.setitem(sys.modules, "rlkit.xla_gpu.fused_kernels", None)
    monkeypatch.delattr("rlkit.xla_gpu.fused_kernels", raising=False)
    assert not are_fused(x, weights, ())


@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_network_computes_the_same(on, monkeypatch, key, layer_norm):
    monkeypatch.setattr(room, "FEWEST_ROWS", 8)
    mlp, head = MLP(3, (16, 16), "tanh", layer_norm=layer_norm), Linear(16, 2)
    graphdef, state = nnx.split((mlp, head))
    leaves, structure = jax.tree.flatten(state)
    keys = jax.random.split(key, len(leaves))
    leaves = [jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
    mlp, head = nnx.merge(graphdef, jax.tree.unflatten(structure, leaves))
    x = jax.random.normal(key, (9, 3))
    calls = []
    whole = room.fused_layers
    monkeypatch.setattr(
        "rlkit.agents.layers.fused_layers", lambda *args: calls.append(1) or whole(*args)
    )
    got = mlp(x), mlp.with_head(head, x)
    assert len(calls) == (0 if layer_norm else 2)
    monkeypatch.setattr(room, "is_on", lambda _: False)
    wanted = mlp(x), head(mlp(x))
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
