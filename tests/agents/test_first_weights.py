"""How kernels and biases are drawn: `weight_init`."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from gymnasium import spaces
from tiers import by_default

from rlkit.agents.configs import NetworkConfig
from rlkit.agents.layers import CNN, MLP, Linear
from rlkit.agents.networks import make_network
from rlkit.agents.registry import AGENTS, make_agent

IMAGES = (12, 12, 3)


class Both(nnx.Module):
    """A convolution of 27 inputs, a linear layer of 1600, and one of 400 with a scale of 0.01."""

    def __init__(self, rngs):
        self.cnn = CNN(IMAGES, "relu")
        self.mlp = MLP(self.cnn.out_features, (400,), "relu", layer_norm=True)
        self.head = Linear(400, 300, scale=0.01)

    def __call__(self, x):
        return self.head(self.mlp(self.cnn(x)))


INPUTS = {"conv": 27, "hidden": 1600, "head": 400}
WAYS = ["orthogonal", "lecun_normal", "pytorch"]


def layers(weight_init, seed=0):
    network = make_network(Both, NetworkConfig(weight_init=weight_init))
    params = jax.device_get(jax.jit(network.init)(jax.random.key(seed)))
    return {
        "conv": params["cnn"]["layers"][0],
        "hidden": params["mlp"]["layers"][0],
        "head": params["head"],
        "norm": params["mlp"]["activations"][0]["norm"],
    }


@pytest.fixture(scope="module")
def drawn():
    return {name: layers(name) for name in ("orthogonal", "lecun_normal", "pytorch")}


def within(count):
    """Five standard errors of a standard deviation that is estimated from so many numbers."""
    return 5.0 / math.sqrt(2 * count)


@pytest.mark.parametrize("layer", INPUTS)
def test_lecun_normal_is_flaxs_default(drawn, layer):
    """Variance 1 / inputs, cut at two standard deviations before that is made up for; no bias."""
    kernel = drawn["lecun_normal"][layer]["kernel"]
    inputs = INPUTS[layer]
    assert abs(kernel.std() * math.sqrt(inputs) - 1) < within(kernel.size)
    bound = 2 / 0.87962566 / math.sqrt(inputs)
    assert 0.9 * bound < np.abs(kernel).max() <= bound * (1 + 1e-6)
    theirs = nnx.initializers.lecun_normal()(jax.random.key(1), kernel.shape)
    quantiles = [0.05, 0.25, 0.4, 0.6, 0.75, 0.95]
    np.testing.assert_allclose(
        np.quantile(kernel, quantiles),
        np.quantile(theirs, quantiles),
        atol=10 / math.sqrt(kernel.size * inputs),
    )
    np.testing.assert_array_equal(drawn["lecun_normal"][layer]["bias"], 0.0)


@pytest.mark.parametrize("layer", INPUTS)
def test_pytorch_draws_uniformly_and_biases_too(drawn, layer):
    """U(-1/√inputs, 1/√inputs), whose standard deviation is 1 / √(3 inputs)."""
    bound = 1 / math.sqrt(INPUTS[layer])
    kernel, bias = (drawn["pytorch"][layer][name] for name in ("kernel", "bias"))
    assert abs(kernel.std() * math.sqrt(3) / bound - 1) < within(kernel.size)
    for values in (kernel, bias):
        assert 0.7 * bound < np.abs(values).max() <= bound
    assert len(np.unique(bias)) == bias.size


@pytest.mark.parametrize("weight_init", WAYS)
def test_norms_start_as_the_identity(drawn, weight_init):
    norm = drawn[weight_init]["norm"]
    np.testing.assert_array_equal(norm["scale"], 1.0)
    np.testing.assert_array_equal(norm["bias"], 0.0)


def test_orthogonal_kernels_have_the_scales_of_their_layers(drawn):
    for layer, scale in (("hidden", math.sqrt(2)), ("head", 0.01)):
        kernel = drawn["orthogonal"][layer]["kernel"] / scale
        np.testing.assert_allclose(kernel.T @ kernel, np.eye(kernel.shape[1]), atol=1e-4)
        np.testing.assert_array_equal(drawn["orthogonal"][layer]["bias"], 0.0)


@pytest.mark.parametrize("weight_init", ["lecun_normal", "pytorch"])
def test_layers_and_seeds_differ_and_equal_seeds_agree(drawn, weight_init):
    one, again, other = (layers(weight_init, seed)["head"]["kernel"] for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 0.01
    first = drawn[weight_init]["hidden"]["kernel"].ravel()[: one.size]
    assert abs(np.corrcoef(first, one.ravel())[0, 1]) < 5 / math.sqrt(one.size)


def test_a_torso_of_ones_own_with_our_layers_is_drawn_alike(key):
    network = make_network(lambda rngs: Linear(100, 50), NetworkConfig(weight_init="lecun_normal"))
    assert abs(network.init(key)["kernel"].std() - 0.1) < 0.1 * within(5000)


def test_members_of_a_mapped_layer_differ(key):
    def build(rngs):
        @nnx.split_rngs(splits=3)
        @nnx.vmap
        def three(rngs):
            return Linear(16, 8)

        return three(rngs)

    params = make_network(build, NetworkConfig(weight_init="pytorch")).init(key)
    assert params["kernel"].shape == (3, 16, 8) and params["bias"].shape == (3, 8)
    assert np.abs(params["kernel"][0] - params["kernel"][1]).max() > 0.1
    assert np.abs(params["kernel"]).max() <= 0.25


# What the agents' references draw: the standard deviation of each layer's kernel on 4 observations,
# from the input to the output, and the largest bias.
REFERENCES = {
    "q_network": ("lecun_normal", [1 / 4, 1 / 120]),  # CleanRL's dqn_jax.py, PureJaxRL's dqn.py
}


@pytest.mark.parametrize("agent", REFERENCES)
def test_first_weights_are_those_of_the_reference(agent, key):
    weight_init, variances = REFERENCES[agent]
    config = AGENTS[agent].config()
    assert config.weight_init == weight_init
    made = make_agent(agent, spaces.Box(-1, 1, (4,)), spaces.Discrete(2), config)
    params = jax.device_get(jax.vmap(made.init)(jax.random.split(key, 64)))
    kernels = [layer["kernel"] for layer in params["torso"]["mlp"]["layers"].values()]
    for kernel, variance in zip(kernels, variances, strict=True):
        assert abs(kernel.std() / math.sqrt(variance) - 1) < within(kernel.size)


DEFAULTS = {"q_network": "lecun_normal"}


@pytest.mark.parametrize("agent", AGENTS)
def test_all_others_start_orthogonal(agent):
    """Among them PQN's, as in CleanRL's pqn.py, and QR-DQN's, which learns slower otherwise."""
    assert AGENTS[agent].config().weight_init == DEFAULTS.get(agent, "orthogonal")


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("weight_init", by_default(["lecun_normal"], WAYS))
def test_every_agent_takes_every_way(agent, weight_init, key):
    config = dataclasses.replace(AGENTS[agent].config(), hidden_sizes=(8,), weight_init=weight_init)
    discrete = "q" in agent or "discrete" in agent
    action_space = spaces.Discrete(3) if discrete else spaces.Box(-1.0, 1.0, (2,))
    made = make_agent(agent, spaces.Box(-1, 1, (4,)), action_space, config)
    params = jax.jit(made.init)(key)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(params))


def test_a_scale_may_be_a_number_of_jax():
    scale = jnp.sqrt(2.0)
    kernel = make_network(lambda rngs: Linear(3, 8, scale=scale), NetworkConfig()).init(
        jax.random.key(0)
    )["kernel"]
    np.testing.assert_allclose(kernel @ kernel.T, 2 * np.eye(3), atol=1e-5)
