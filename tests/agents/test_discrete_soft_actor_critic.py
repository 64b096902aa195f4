"""The discrete soft actor-critic: log-probs and values of every action, on every
observation space.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlkit.agents.base import Agent
from rlkit.agents.configs import DiscreteSoftActorCriticConfig
from rlkit.agents.discrete_soft_actor_critic import discrete_soft_actor_critic
from rlkit.agents.registry import make_agent
from rlkit.errors import ConfigError, SpaceError
from rlkit.spaces import example

SMALL = DiscreteSoftActorCriticConfig(hidden_sizes=(8,), initial_temperature=0.2)
OBS = spaces.Box(-1.0, 1.0, (3,))
ACTIONS = spaces.Discrete(3, start=-1)
BATCH = 5


@pytest.fixture
def agent():
    return discrete_soft_actor_critic(OBS, ACTIONS, SMALL)


@pytest.fixture
def obs():
    return np.random.default_rng(0).uniform(-1.0, 1.0, (BATCH, 3)).astype(np.float32)


def test_actions_follow_the_policy(key, agent, obs):
    """Samples come in the frequencies that `log_probs` says, in the environment's own numbers."""
    assert isinstance(agent, Agent) and isinstance(hash(agent), int)

    @jax.jit
    def program(key, obs):
        params = agent.init(key)
        params["actor"]["head"]["bias"] = jnp.log(jnp.array([0.1, 0.7, 0.2]))
        log_probs = agent.log_probs(params["actor"], obs)
        one = jnp.broadcast_to(obs[:1], (20_000, 3))
        explored = agent.explore(params, one, agent.initial_carry(20_000), key, jnp.float32(0.0))
        best, _ = agent.exploit(params, obs, (), key)
        return log_probs, explored, best, agent.index(best)

    log_probs, (action, carry, extras), best, index = jax.device_get(program(key, obs))
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1.0, rtol=1e-6)
    assert (carry, extras, action.dtype) == ((), {}, jnp.int32)
    shares = [float((action == a).mean()) for a in (-1, 0, 1)]
    np.testing.assert_allclose(shares, np.exp(log_probs[0]), atol=5 * 0.5 / math.sqrt(20_000))
    np.testing.assert_array_equal(best, np.zeros(BATCH))
    np.testing.assert_array_equal(index, log_probs.argmax(-1))


def test_parameters(key, agent, obs):
    """Two critics that share nothing, a policy that starts nearly uniform, the temperature where
    the config says.
    """
    params = jax.jit(agent.init)(key)
    assert set(params) == {"actor", "critic", "log_temperature"} and set(params["critic"]) == {
        "first",
        "second",
    }
    np.testing.assert_allclose(params["log_temperature"], math.log(0.2), rtol=1e-6)
    log_probs = jax.jit(agent.log_probs)(params["actor"], obs)
    np.testing.assert_allclose(log_probs, -math.log(3), atol=0.1)
    first, second = np.asarray(jax.jit(agent.q_values)(params["critic"], obs))
    assert first.shape == (BATCH, 3) and (np.abs(first - second) > 1e-4).all()
    assert agent.spec == ("discrete_soft_actor_critic", SMALL)
    assert make_agent(*agent.spec[:1], OBS, ACTIONS, SMALL).spec == agent.spec


def test_reads_images_and_dicts(key):
    space = spaces.Dict(
        {"image": spaces.Box(0, 255, (6, 6, 2), np.uint8), "number": spaces.Discrete(2)}
    )
    agent = discrete_soft_actor_critic(space, ACTIONS, SMALL)

    @jax.jit
    def program(key, obs):
        params = agent.init(key)
        return agent.log_probs(params["actor"], obs), agent.q_values(params["critic"], obs)

    log_probs, q_values = program(key, example(space, (BATCH,)))
    assert log_probs.shape == (BATCH, 3)
    assert q_values.shape == (2, BATCH, 3)


@pytest.mark.fast
@pytest.mark.parametrize("space", [spaces.Box(-1.0, 1.0, (2,)), spaces.MultiDiscrete([2, 2])])
def test_other_action_spaces_are_refused(space):
    with pytest.raises(
        SpaceError,
        match=r"needs Discrete actions, got .*; use actor_critic .*`rlkit list algorithms`",
    ):
        discrete_soft_actor_critic(OBS, space)


@pytest.mark.fast
def test_bad_observations_and_configs():
    with pytest.raises(SpaceError, match="not supported; use"):
        discrete_soft_actor_critic(spaces.Text(3), ACTIONS)
    with pytest.raises(ConfigError, match=r"DiscreteSoftActorCriticConfig\.initial_temperature"):
        discrete_soft_actor_critic(
            OBS, ACTIONS, DiscreteSoftActorCriticConfig(initial_temperature=0.0)
        )
