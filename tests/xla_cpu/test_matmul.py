import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import export
from tiers import by_default

from rlkit.agents.cells import make_cell
from rlkit.agents.layers import Linear
from rlkit.agents.networks import make_network
from rlkit.xla_cpu.matmul import FEW_ROWS, LONG, NARROW, SMALL, matmul

pytestmark = pytest.mark.fast
SHAPES = [
    (4, 64),
    (64, 2),
    (64, 1),
    (1, 3),
    (3, 3),
    (SMALL, SMALL),
    (NARROW, 200),
    (200, NARROW),
    (SMALL + 1, SMALL),
    (128, 40),
    (64, 192),
    (LONG + 1, 40),
]
DEFAULT_SHAPES = [
    (64, 1),
    (SMALL, SMALL),
    (NARROW, 200),
    (SMALL + 1, SMALL),
    (64, 192),
    (LONG + 1, 40),
]


def factors(inputs, outputs, batch=(16,)):
    rng = np.random.default_rng(inputs + 1000 * outputs)
    return (
        jnp.asarray(rng.normal(size=(*batch, inputs)), jnp.float32),
        jnp.asarray(rng.normal(size=(inputs, outputs)), jnp.float32),
    )


def scalar(multiply):
    """A function of both factors with curvature in each."""
    return lambda x, weights: jnp.sin(multiply(x, weights)).sum()


def assert_same(transform, *arguments):
    found, wanted = (
        jax.jit(transform(scalar(multiply)))(*arguments) for multiply in (matmul, jnp.matmul)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, wanted)


@pytest.mark.parametrize(("inputs", "outputs"), by_default(DEFAULT_SHAPES, SHAPES))
def test_value_and_gradients_are_those_of_the_plain_product(inputs, outputs):
    x, weights = factors(inputs, outputs)
    np.testing.assert_array_equal(matmul(x, weights), x @ weights)
    for arguments in ((0, 1), 1, 0):
        assert_same(lambda f, arguments=arguments: jax.grad(f, arguments), x, weights)


def test_by_hand():
    x, weights = jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([[1.0], [-1.0]])
    out, pullback = jax.vjp(matmul, x, weights)
    np.testing.assert_array_equal(out, [[-1], [-1]])
    by_x, by_weights = pullback(jnp.array([[1.0], [10.0]]))
    np.testing.assert_array_equal(by_x, [[1, -1], [10, -10]])
    np.testing.assert_array_equal(by_weights, [[31], [42]])


@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (2, 3, 4)])
def test_any_leading_axes(batch):
    x, weights = factors(5, 2, batch)
    assert matmul(x, weights).shape == (*batch, 2)
    assert_same(lambda f: jax.grad(f, (0, 1)), x, weights)


@pytest.mark.parametrize(("inputs", "outputs"), [(4, 64), (64, 2)])
def test_every_other_derivative(inputs, outputs):
    x, weights = factors(inputs, outputs, (4,))
    assert_same(lambda f: lambda x, w: jax.jvp(f, (x, w), (2 * x, 3 * w)), x, weights)
    assert_same(lambda f: lambda x, w: jax.jvp(lambda w: f(x, w), (w,), (w,)), x, weights)
    assert_same(lambda f: lambda x, w: jax.jvp(jax.grad(lambda w: f(x, w)), (w,), (w,)), x, weights)
    assert_same(lambda f: jax.hessian(f, 1), x, weights)
    assert_same(lambda f: jax.grad(lambda x, w: (jax.grad(f, 0)(x, w) ** 2).sum(), 1), x, weights)
    assert_same(lambda f: jax.grad(jax.checkpoint(f), 1), x, weights)


@pytest.mark.parametrize("axes", [(0, 0), (None, 0), (0, None)])
@pytest.mark.parametrize(("inputs", "outputs"), [(4, 64), (128, 40)])
def test_under_vmap(axes, inputs, outputs):
    x, weights = factors(inputs, outputs)
    stacked = [
        x if axis is None else np.stack([x, 2 * x])
        for x, axis in zip((x, weights), axes, strict=True)
    ]
    assert_same(lambda f: jax.vmap(jax.grad(f, (0, 1)), axes), *stacked)


@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_it_is_exported_for_any_batch_size(inputs, outputs):
    x, weights = factors(inputs, outputs)
    (batch,) = export.symbolic_shape("batch")
    any_batch = jax.ShapeDtypeStruct((batch, inputs), jnp.float32)
    exported = export.export(jax.jit(matmul))(any_batch, weights)
    np.testing.assert_array_equal(exported.call(x, weights), jax.jit(jnp.matmul)(x, weights))


@pytest.mark.parametrize("multiply", [matmul, jnp.matmul])
def test_no_inputs_and_an_empty_batch(multiply):
    np.testing.assert_array_equal(multiply(jnp.ones((3, 0)), jnp.ones((0, 2))), np.zeros((3, 2)))
    assert multiply(jnp.ones((0, 4)), jnp.ones((4, 2))).shape == (0, 2)


def test_factors_that_do_not_fit_have_the_error_of_jax():
    with pytest.raises(TypeError, match="contracting"):
        matmul(jnp.ones((6, 4)), jnp.ones((3, 2)))


def products_of_gradient(multiply, inputs, outputs, rows=128):
    """For each product in the compiled gradient by the weights: does it sum over the first axis of
    its first factor?
    """
    x, weights = factors(inputs, outputs, (rows,))
    program = jax.jit(jax.grad(scalar(multiply), 1)).lower(x, weights).compile().as_text()
    return [
        bool(re.search(r"lhs_contracting_dims=\{0\}", line))
        for line in program.splitlines()
        if " dot(" in line
    ]


@pytest.mark.parametrize(
    ("inputs", "outputs", "rows"),
    [
        (4, 64, 128),
        (64, 2, 128),
        (SMALL, SMALL, 128),
        (128, SMALL, FEW_ROWS + 1),
        (LONG, 40, 128),
        (1225, 64, 128),
        (64, 192, FEW_ROWS),
        (64, 256, 128),
    ],
)
def test_compiles_to_products_that_sum_over_the_last_axis_of_the_first_factor(
    inputs, outputs, rows
):
    """The other kind is the slow one; the plain product has it."""
    assert products_of_gradient(jnp.matmul, inputs, outputs, rows) == [False, True]
    assert products_of_gradient(matmul, inputs, outputs, rows) == [False, False]


def test_layers_of_networks_are_such_products():
    network = make_network(lambda rngs: Linear(64, 2, scale=1.0))
    params = jax.jit(network.init)(jax.random.key(0))
    # The bias is 0
    np.testing.assert_allclose(jax.jit(network.apply)(params, np.eye(64)), params["kernel"])

    def multiply(x, weights):
        return network.apply({**params, "kernel": weights}, x)

    assert products_of_gradient(multiply, 64, 2) == [False, False]


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_so_are_the_gates_of_a_memory(kind):
    cell = make_cell(kind, 64, 64)
    graph, weights = nnx.split(cell)
    x, start = jnp.ones((2, 8, 64)), cell.initial_carry(8)

    def loss(weights):
        return nnx.merge(graph, weights).over(start, x, jnp.zeros((2, 8), bool))[1].sum()

    weights = jax.tree.map(jnp.zeros_like, weights)
    with jax.numpy_rank_promotion("raise"):
        program = str(jax.make_jaxpr(jax.grad(loss))(weights))
    assert program.count("optimization_barrier") == 1


@pytest.mark.parametrize(
    ("inputs", "outputs", "rows", "backend"),
    [
        (SMALL + 1, SMALL, 128, "cpu"),
        (200, NARROW + 1, 128, "cpu"),
        (128, 128, 128, "cpu"),
        (LONG - 1, SMALL, 128, "cpu"),
        (64, 128, 128, "cpu"),
        (48, 256, 128, "cpu"),
        (64, 192, FEW_ROWS + 1, "cpu"),
        (4, 2, 128, "gpu"),
    ],
)
def test_other_sizes_and_backends_are_left_alone(inputs, outputs, rows, backend, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    x, weights = factors(inputs, outputs, (rows,))
    assert str(jax.make_jaxpr(matmul)(x, weights)) == str(jax.make_jaxpr(jnp.matmul)(x, weights))
