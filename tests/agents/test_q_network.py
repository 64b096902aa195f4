"""Layer normalisation in Q-networks: where it stands, what it leaves alone, and who has it by
default.
"""

import jax
import numpy as np
import pytest
from gymnasium import spaces

from rlkit.agents.configs import NormalizedQNetworkConfig, QNetworkConfig
from rlkit.agents.q_network import normalized_q_network, q_network
from rlkit.agents.registry import make_agent
from rlkit.algorithms.registry import ALGORITHMS
from rlkit.errors import ConfigError, SpaceError

OBS = spaces.Box(-1.0, 1.0, (3,))
IMAGES = spaces.Box(0, 255, (6, 6, 2), np.uint8)
ACTIONS = spaces.Discrete(2)


def standardized(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)


def test_it_stands_between_layer_and_activation(key):
    agent = q_network(OBS, ACTIONS, QNetworkConfig(hidden_sizes=(8, 6), layer_norm=True))
    params = jax.device_get(jax.jit(agent.init)(key))
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    mlp, x = params["torso"]["mlp"], obs
    for i in range(2):
        layer, norm = mlp["layers"][i], mlp["activations"][i]["norm"]
        norm["scale"], norm["bias"] = (
            np.full_like(norm["scale"], 1.5),
            np.full_like(norm["bias"], 0.1),
        )
        x = np.maximum(1.5 * standardized(x @ layer["kernel"]) + 0.1, 0.0)
    wanted = x @ params["advantage_head"]["kernel"]
    q_values, value = jax.jit(agent.q_values)(params, obs), jax.jit(agent.value)(params, obs)
    np.testing.assert_allclose(q_values, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(value, wanted.max(-1), rtol=1e-4, atol=1e-5)


def test_convolutions_are_normalised_over_the_channels_of_a_pixel(key):
    agent = q_network(IMAGES, ACTIONS, QNetworkConfig(hidden_sizes=(8,), layer_norm=True))
    params = jax.jit(agent.init)(key)
    norm = params["torso"]["cnns"][0]["activations"][0]["norm"]
    assert norm["scale"].shape == norm["bias"].shape == (16,)
    obs = np.random.default_rng(0).integers(1, 120, (2, 6, 6, 2), np.uint8)
    q_values = jax.jit(agent.q_values)
    values = q_values(params, obs)
    assert np.isfinite(values).all() and values.shape == (2, 2)
    # Brightness is gone
    np.testing.assert_allclose(q_values(params, 2 * obs), values, rtol=1e-2, atol=1e-3)


def test_without_it_there_are_no_parameters_for_it(key):
    """So that networks of before keep their parameters."""
    for space in (OBS, IMAGES):
        agent = q_network(space, ACTIONS, QNetworkConfig(hidden_sizes=(8,)))
        plain = jax.eval_shape(agent.init, key)
        assert not any(
            "norm" in jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(plain)
        )
        assert not any(
            "activations" in jax.tree_util.keystr(path)
            for path, _ in jax.tree.leaves_with_path(plain)
        )


@pytest.mark.fast
def test_pqn_has_it_by_default_and_dqn_may():
    assert (NormalizedQNetworkConfig().layer_norm, QNetworkConfig().layer_norm) == (True, False)
    assert (ALGORITHMS["pqn"].agent, ALGORITHMS["dqn"].agent) == (
        "normalized_q_network",
        "q_network",
    )
    agent = normalized_q_network(OBS, ACTIONS)
    assert agent.spec == ("normalized_q_network", NormalizedQNetworkConfig())
    assert make_agent(
        "normalized_q_network", OBS, ACTIONS, NormalizedQNetworkConfig(dueling=True)
    ).config.dueling


@pytest.mark.fast
@pytest.mark.parametrize("config", [QNetworkConfig(), {"dueling": True}])
def test_it_has_settings_of_its_own(config):
    with pytest.raises(ConfigError, match=r"must be a NormalizedQNetworkConfig, .* pass Norm"):
        normalized_q_network(OBS, ACTIONS, config)


@pytest.mark.fast
@pytest.mark.parametrize("space", [spaces.Box(-1.0, 1.0, (2,)), spaces.MultiDiscrete([2, 2])])
def test_other_action_spaces_are_refused(space):
    with pytest.raises(
        SpaceError,
        match=r"needs Discrete actions, got .*; use actor_critic .*`rlkit list algorithms`",
    ):
        q_network(spaces.Box(-1.0, 1.0, (3,)), space)


@pytest.mark.fast
def test_exploration_never_grows():
    with pytest.raises(ConfigError, match=r"epsilon_end=0.9 is above epsilon_start=0.1"):
        QNetworkConfig(epsilon_start=0.1, epsilon_end=0.9)
    assert QNetworkConfig(epsilon_start=0.1, epsilon_end=0.1).epsilon_end == 0.1
