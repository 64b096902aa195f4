"""Fused layers: as layer by layer, in value and gradient; where they apply.

Pallas emulates the kernels, except in the test marked `gpu`.
"""

import itertools
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from gymnasium import spaces
from jax import export
from tiers import by_default

import rlkit
from rlkit.agents import layers as agent_layers
from rlkit.agents.configs import ActorCriticConfig
from rlkit.agents.layers import MLP, Linear
from rlkit.agents.torso import Torso, WithHead
from rlkit.xla_gpu import fused_layers as room
from rlkit.xla_gpu.fused_kernels import ACTIVATIONS, Static, gradients, one_by_one, outputs
from rlkit.xla_gpu.fused_layers import FEWEST_ROWS, MOST_LAYERS, are_fused, fused_layers


@pytest.fixture
def on(monkeypatch):
    """As on an H100; programs are for this CPU all the same."""
    monkeypatch.setattr(room, "is_on", lambda _: True)
    monkeypatch.setattr(room, "_is_able", lambda: True)


@pytest.fixture
def few_rows(on, monkeypatch):
    monkeypatch.setattr(room, "FEWEST_ROWS", 1)


@pytest.fixture
def fusions(monkeypatch):
    """A list that gets an item for each network that is fused."""
    seen = []

    def counted(x, parameters, activations):
        seen.append(tuple(activations))
        return fused_layers(x, parameters, activations)

    monkeypatch.setattr(agent_layers, "fused_layers", counted)
    return seen


def problem(key, rows, sizes):
    """x [B, I], the parameters of layers of these sizes, and a gradient [B, O]."""
    keys = iter(jax.random.split(key, 2 * len(sizes)))
    x, gradient = (jax.random.normal(next(keys), (rows, size)) for size in (sizes[0], sizes[-1]))
    parameters = tuple(
        (
            jax.random.normal(next(keys), (i, o)) / np.sqrt(i),
            jax.random.normal(next(keys), (o,)),
        )
        for i, o in itertools.pairwise(sizes)
    )
    return x, parameters, gradient


def whole_problem(key, rows, sizes):
    """The same of small whole numbers. TF32 and float32 hold them, their products and sums."""
    return jax.tree.map(lambda a: jnp.clip(jnp.round(a * 2), -1, 1), problem(key, rows, sizes))


def plain_results(x, parameters, gradient, activations):
    y, pull = jax.vjp(lambda x, p: one_by_one(x, p, activations), x, parameters)
    return y, pull(gradient)


def assert_close(found, wanted):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5 * np.abs(b).max())


CASES = [
    (64, (4, 64, 64, 2), ("tanh", "tanh", None)),
    (1, (3, 16), ("relu",)),  # less than a block
    (100, (17, 32, 48, 1), ("relu", "relu", None)),  # sizes and rows that must be padded
    (64 * 264 + 65, (2, 16, 3), ("tanh", "tanh")),  # several blocks for each program
]


@pytest.mark.parametrize(("rows", "sizes", "activations"), by_default(CASES[2:], CASES))
def test_kernels_compute_what_the_layers_do(key, rows, sizes, activations):
    x, parameters, gradient = problem(key, rows, sizes)
    how = {"static": Static(activations), "emulated": True}
    found = outputs(x, parameters, **how), gradients(x, parameters, gradient, **how)
    assert_close(found, plain_results(x, parameters, gradient, activations))


@pytest.mark.gpu
@pytest.mark.skipif(jax.default_backend() != "gpu", reason="compiles the kernels")
@pytest.mark.parametrize(("rows", "sizes", "activations"), CASES)
def test_on_a_gpu_too(key, rows, sizes, activations):
    # Products are rounded to TF32, which would switch a unit of ReLU near zero on or off.
    make, tolerance = (whole_problem, 0) if "relu" in activations else (problem, 3e-3)
    x, parameters, gradient = make(key, rows, sizes)
    y, pull = jax.vjp(jax.jit(lambda x, p: fused_layers(x, p, activations)), x, parameters)
    with jax.default_matmul_precision("highest"):
        wanted = plain_results(x, parameters, gradient, activations)
    for a, b in zip(jax.tree.leaves((y, pull(gradient))), jax.tree.leaves(wanted), strict=True):
        assert np.abs(b).max() > 0
        assert np.linalg.norm(a - b) <= tolerance * np.linalg.norm(b)
    broken = fused_layers(x.at[0, 0].set(np.nan), parameters, activations)
    assert np.isnan(broken[0]).all() and np.isfinite(broken[1:]).all()


def test_a_unit_of_relu_at_zero_has_no_gradient():
    """As of `jax.nn.relu`, in the kernels and in the layers that stand in for them."""
    activate, gradient = ACTIVATIONS["relu"]
    z = jnp.array([-1.0, 0.0, 2.0])
    pulled = jax.vmap(jax.grad(activate))(z)
    np.testing.assert_array_equal(pulled, [0.0, 0.0, 1.0])
    np.testing.assert_array_equal(gradient(jnp.ones(3), activate(z)), pulled)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_what_is_not_finite_stays_so(key, activation):
    x, parameters, _ = problem(key, 20, (4, 16, 2))
    y = outputs(
        x.at[3, 0].set(np.nan), parameters, static=Static((activation, None)), emulated=True
    )
    assert np.isnan(y[3]).all() and np.isfinite(np.delete(y, 3, 0)).all()


@pytest.mark.full
def test_mapped_over_seeds_equals_a_loop(key):
    problems = [problem(k, 80, (4, 16, 2)) for k in jax.random.split(key, 3)]
    pulled = partial(gradients, static=Static(("tanh", None)), emulated=True)
    mapped = jax.vmap(pulled)(*jax.tree.map(lambda *xs: jnp.stack(xs), *problems))
    for i, each in enumerate(problems):
        assert_close(jax.tree.map(lambda x, i=i: x[i], mapped), pulled(*each))


@pytest.mark.full
@pytest.mark.parametrize("device", ["this CPU", "two devices", "seeds"])
def test_programs_for_other_devices_go_layer_by_layer(key, device):
    x, parameters, gradient = problem(key, 64, (4, 16, 2))
    activations = ("relu", None)

    def results(x, parameters, gradient):
        y, pull = jax.vjp(lambda x, p: fused_layers(x, p, activations), x, parameters)
        return y, pull(gradient)

    wanted = plain_results(x, parameters, gradient, activations)
    if device == "this CPU":
        found = jax.jit(results)(x, parameters, gradient)
    elif device == "seeds":
        twice = jax.tree.map(lambda x: jnp.stack([x, x]), (x, parameters, gradient))
        found = jax.tree.map(lambda x: x[1], jax.vmap(results)(*twice))
    else:
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("data",))
        rows, whole = jax.sharding.PartitionSpec("data"), jax.sharding.PartitionSpec()

        def reduced(*args):
            y, (dx, gradients) = results(*args)
            return y, (dx, jax.lax.psum(gradients, "data"))

        specs = {"in_specs": (rows, whole, rows), "out_specs": (rows, (rows, whole))}
        found = jax.jit(jax.shard_map(reduced, mesh=mesh, check_vma=False, **specs))(
            x, parameters, gradient
        )
    assert_close(found, wanted)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("change", "fused"),
    [
        ({}, True),
        ({"rows": FEWEST_ROWS - 1}, False),
        ({"sizes": (4, 65, 2)}, False),
        ({"sizes": (65, 64, 2)}, False),
        ({"sizes": (4,) * (MOST_LAYERS + 1), "activations": ("relu",) * MOST_LAYERS}, True),
        ({"sizes": (4,) * (MOST_LAYERS + 2), "activations": ("relu",) * 5}, False),
        ({"sizes": (4,), "activations": ()}, False),
        ({"activations": ("gelu", None)}, False),
        ({"dtype": jnp.bfloat16}, False),
        ({"leading": (2,)}, False),
        ({"rows": export.symbolic_shape("batch")[0]}, False),
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
    dtype = given["dtype"]
    x = jax.ShapeDtypeStruct((*given["leading"], given["rows"], given["sizes"][0]), dtype)
    parameters = [
        (jax.ShapeDtypeStruct((i, o), dtype), jax.ShapeDtypeStruct((o,), dtype))
        for i, o in itertools.pairwise(given["sizes"])
    ]
    assert are_fused(x, parameters, given["activations"]) == fused


@pytest.mark.fast
def test_off_on_other_gpus_and_without_pallas(on, monkeypatch):
    assert room.may_fuse()
    with monkeypatch.context() as without:
        without.setattr(room, "_is_able", lambda: False)
        assert not room.may_fuse()
    monkeypatch.delattr("rlkit.xla_gpu.fused_kernels", raising=False)
    monkeypatch.setitem(sys.modules, "rlkit.xla_gpu.fused_kernels", None)
    assert not room.may_fuse()


VECTOR = spaces.Box(-1.0, 1.0, (3,))
SPACES = {
    "vector": VECTOR,
    "integer": spaces.Discrete(5),
    "image": spaces.Box(0, 255, (12, 12, 1), np.uint8),
    "dict": spaces.Dict({"a": VECTOR, "b": spaces.Discrete(4)}),
}


@pytest.mark.full
@pytest.mark.parametrize("share_torso", [False, True])
@pytest.mark.parametrize("observation", SPACES)
def test_networks_compute_the_same(few_rows, fusions, monkeypatch, key, observation, share_torso):
    space = SPACES[observation]
    config = ActorCriticConfig(hidden_sizes=(16, 16), share_torso=share_torso)
    agent = rlkit.actor_critic(space, spaces.Discrete(3), config)
    params = agent.network.init(key)
    obs = rlkit.spaces.sample(space, key, 9)

    def results():
        return jax.value_and_grad(
            lambda p: sum(x.sum() for x in jax.tree.leaves(agent.network.apply(p, obs)))
        )(params)

    fusions.clear()  # of shapes alone, when the agent was made
    found = results()
    one = [("tanh", "tanh")] if share_torso else [("tanh", "tanh", None)] * 2
    assert fusions == ([] if observation == "image" else one)  # its features are too many
    monkeypatch.setattr(room, "is_on", lambda _: False)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(results()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    by_default(
        [{"activation": "gelu"}],
        [{"precision": "bfloat16"}, {"activation": "gelu"}, {"memory": "gru"}],
    ),
    ids=str,
)
def test_other_networks_are_left_alone(few_rows, fusions, key, settings):
    env = rlkit.make_env("gymnax/CartPole-v1", 4)
    config = ActorCriticConfig(hidden_sizes=(16,), **settings)
    agent = rlkit.actor_critic(env.observation_space, env.action_space, config)
    module = rlkit.RLModule(
        env=env,
        agent=agent,
        algorithm=rlkit.ppo(rlkit.PPOConfig(num_steps=4, num_minibatches=1, num_epochs=1)),
        total_steps=64,
    )
    fusions.clear()
    jax.eval_shape(lambda key: rlkit.fit(module, key, num_outer_iterations=1), key)
    assert all(None not in names for names in fusions) if "memory" in settings else not fusions


def test_what_users_replace_is_used(few_rows, fusions, key):
    class Zero(Torso):
        def __call__(self, obs):
            return super().__call__(obs) * 0.0

    config = ActorCriticConfig(hidden_sizes=(16,))
    drawn = rlkit.agents.networks.make_network(
        lambda _: WithHead(Zero(VECTOR, config), 16, 2, 1.0), config
    )
    params = drawn.init(key)
    np.testing.assert_array_equal(drawn.apply(params, jnp.ones((4, 3))), 0.0)

    mlp = MLP(3, (16,), "tanh")
    mlp.activations = nnx.List([lambda x: x * 0.0])
    head = Linear(16, 2)
    for layer in (*mlp.layers, head):
        layer.kernel[...] = jnp.ones_like(layer.kernel[...])
        layer.bias[...] = jnp.ones_like(layer.bias[...])
    np.testing.assert_array_equal(mlp.with_head(head, jnp.ones((4, 3))), 1.0)
    assert fusions == [("tanh",)]  # inside of `Zero`


def test_policies_can_be_exported(few_rows, fusions, key):
    agent = rlkit.actor_critic(VECTOR, spaces.Discrete(2))
    params = agent.network.init(key)
    (batch,) = export.symbolic_shape("batch")
    like = jax.ShapeDtypeStruct((batch, 3), jnp.float32)
    fusions.clear()
    exported = export.export(jax.jit(lambda obs: agent.network.apply(params, obs)))(like)
    assert exported.serialize() and not fusions


@pytest.mark.full
def test_an_update_is_the_same(few_rows, fusions, monkeypatch, key):
    def trained():
        env = rlkit.make_env("gymnax/CartPole-v1", 4)
        agent = rlkit.actor_critic(
            env.observation_space, env.action_space, ActorCriticConfig(hidden_sizes=(16, 16))
        )
        module = rlkit.RLModule(
            env=env,
            agent=agent,
            algorithm=rlkit.ppo(rlkit.PPOConfig(num_steps=16, num_minibatches=2, num_epochs=2)),
            total_steps=128,
        )
        return jax.jit(lambda key: rlkit.fit(module, key, num_outer_iterations=2)[0])(key)

    found = trained().learner.params
    assert fusions
    monkeypatch.setattr(room, "is_on", lambda _: False)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(trained().learner.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
