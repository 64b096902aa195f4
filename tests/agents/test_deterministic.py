"""The deterministic actor-critic agent: bounds, exploration, and that what it shares with SAC's is
shared.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlkit.agents.base import Agent
from rlkit.agents.configs import DeterministicActorCriticConfig, SoftActorCriticConfig
from rlkit.agents.deterministic import deterministic_actor_critic
from rlkit.agents.registry import make_agent
from rlkit.agents.soft_actor_critic import soft_actor_critic
from rlkit.errors import ConfigError, SpaceError
from rlkit.spaces import example

SMALL = DeterministicActorCriticConfig(hidden_sizes=(8,))
OBS = spaces.Box(-1.0, 1.0, (3,))
ACTIONS = {
    "asymmetric": spaces.Box(np.float32([-1.0, 0.0, -3.0]), np.float32([1.0, 10.0, -2.5])),
    "scalar": spaces.Box(-2.0, 2.0, ()),
    "matrix": spaces.Box(-2.0, 1.0, (2, 3)),
    "doubles": spaces.Box(0.1, 0.7, (2,), np.float64),
    "wide": spaces.Box(-1e20, 3e20, (1,)),
}
BATCH = 5


def observations():
    return np.random.default_rng(0).uniform(-1.0, 1.0, (BATCH, 3)).astype(np.float32)


def explore(agent, params, obs, key):
    return agent.explore(params, obs, (), key, jnp.float32(0.0))[0]


@pytest.mark.parametrize("kind", ACTIONS)
def test_actions_are_the_environments_own(key, kind):
    space = ACTIONS[kind]
    agent = make_agent(
        "deterministic_actor_critic", OBS, space, dataclasses.replace(SMALL, exploration_noise=2.0)
    )
    assert isinstance(agent, Agent)

    @jax.jit
    def program(key, obs):
        params = agent.init(key)
        # A last layer blown up to saturate tanh in both directions
        params["actor"]["head"]["kernel"] *= 1e5
        explored = agent.explore(params, obs, agent.initial_carry(BATCH), key, jnp.float32(0.0))
        best, _ = agent.exploit(params, obs, (), key)
        unit = agent.act(params["actor"], obs)
        q_values = agent.q_values(params["critic"], obs, unit)
        return explored, best, unit, agent.from_unit(unit), agent.to_unit(best), q_values

    (action, carry, extras), best, unit, from_unit, to_unit, q_values = jax.device_get(
        program(key, observations())
    )
    assert (carry, extras) == ((), {})
    low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
    for found in (action, best):
        assert (found.shape, found.dtype) == ((BATCH, *space.shape), jnp.float32)
        assert ((found >= low) & (found <= high)).all()
    assert (action != best).any()
    assert {float(unit.min()), float(unit.max())} == {-1.0, 1.0}
    np.testing.assert_array_equal(best, from_unit)
    np.testing.assert_allclose(to_unit, unit, atol=2e-5)
    assert q_values.shape == (2, BATCH)


def test_exploration_is_the_action_with_noise_of_unit_actions(key):
    """Its spread is `exploration_noise` half-widths of each dimension's bounds, and what leaves
    them is clipped.
    """
    agent = deterministic_actor_critic(OBS, ACTIONS["asymmetric"], SMALL)
    params, obs = jax.device_get(jax.jit(agent.init)(key)), np.zeros((20_000, 3), np.float32)
    # There are no biases yet.
    np.testing.assert_array_equal(jax.jit(agent.act)(params["actor"], obs[:1]), [[0.0, 0.0, 0.0]])
    noisy = jax.jit(lambda params: explore(agent, params, obs, key))
    action = np.asarray(noisy(params))
    half_width = np.array([1.0, 5.0, 0.25])
    np.testing.assert_allclose(
        action.mean(0), [0.0, 5.0, -2.75], atol=4 * 0.1 * 5 / np.sqrt(20_000)
    )
    np.testing.assert_allclose(action.std(0), 0.1 * half_width, rtol=0.03)
    noise = (action - [0.0, 5.0, -2.75]) / half_width
    assert abs(np.corrcoef(noise.T) - np.eye(3)).max() < 0.03
    # tanh 1 = 0.76: 2.4 deviations from the bound
    params["actor"]["head"]["bias"] = params["actor"]["head"]["bias"] + 1.0
    at_bound = np.asarray(noisy(params)) == ACTIONS["asymmetric"].high
    np.testing.assert_allclose(at_bound.mean(0), 0.0085, atol=0.003)
    quiet = deterministic_actor_critic(
        OBS, ACTIONS["asymmetric"], dataclasses.replace(SMALL, exploration_noise=0.0)
    )

    @jax.jit
    def both(params, obs, key):
        return explore(quiet, params, obs, key), quiet.exploit(params, obs, (), key)[0]

    np.testing.assert_array_equal(*both(params, obs[:2], key))


def test_parameters(key):
    """Actor and critics of the sizes that the config says; the critics are those of SAC's agent,
    weight for weight.
    """
    config = DeterministicActorCriticConfig(hidden_sizes=(16, 8))
    agent = deterministic_actor_critic(OBS, ACTIONS["asymmetric"], config)
    assert agent.spec == ("deterministic_actor_critic", config)
    params = jax.jit(agent.init)(key)
    assert set(params) == {"actor", "critic"}
    actor = params["actor"]
    layers = [*actor["torso"]["mlp"]["layers"].values(), actor["head"]]
    assert [layer["kernel"].shape for layer in layers] == [(3, 16), (16, 8), (8, 3)]
    np.testing.assert_allclose(
        np.linalg.svd(actor["head"]["kernel"], compute_uv=False), 0.01, rtol=1e-4
    )
    soft = soft_actor_critic(
        OBS, ACTIONS["asymmetric"], SoftActorCriticConfig(hidden_sizes=(16, 8))
    )
    jax.tree.map(
        np.testing.assert_array_equal,
        jax.jit(agent.critics.init)(key),
        jax.jit(soft.critics.init)(key),
    )
    first, second = np.asarray(
        jax.jit(agent.q_values)(params["critic"], observations(), np.zeros((BATCH, 3)))
    )
    assert (np.abs(first - second) > 1e-4).all()


def test_reads_images_and_dicts(key):
    space = spaces.Dict(
        {"z": OBS, "a": spaces.Discrete(2), "m": spaces.Box(0, 255, (4, 4, 1), np.uint8)}
    )
    for encoder in ("cnn", "flatten"):
        agent = deterministic_actor_critic(
            space, ACTIONS["matrix"], dataclasses.replace(SMALL, image_encoder=encoder)
        )

        @jax.jit
        def program(key, obs, agent=agent):
            params = agent.init(key)
            unit = agent.act(params["actor"], obs)
            return unit, agent.q_values(params["critic"], obs, unit)

        unit, q_values = jax.device_get(
            program(key, example(space, (BATCH,)) | {"z": observations()})
        )
        assert (
            unit.shape == (BATCH, 2, 3)
            and len({round(float(x), 6) for x in unit[:, 0, 0]}) == BATCH
        )
        assert q_values.shape == (2, BATCH)


@pytest.mark.fast
def test_what_does_not_fit_is_refused():
    for space, wanted in (
        (
            spaces.Discrete(2),
            (
                r"deterministic_actor_critic needs a Box of continuous actions, got Discrete\(2\);"
                r" use actor_critic"
            ),
        ),
        (
            spaces.Box(-np.inf, np.inf, (2,)),
            "deterministic_actor_critic squashes its actions and needs finite bounds",
        ),
    ):
        with pytest.raises(SpaceError, match=wanted):
            deterministic_actor_critic(OBS, space)
    with pytest.raises(SpaceError, match="not supported; use"):
        deterministic_actor_critic(spaces.Text(3), ACTIONS["matrix"])
    for wrong in ({"exploration_noise": -0.1}, {"hidden_sizes": ()}):
        with pytest.raises(
            ConfigError, match=rf"DeterministicActorCriticConfig\.{next(iter(wrong))}"
        ):
            deterministic_actor_critic(
                OBS, ACTIONS["matrix"], DeterministicActorCriticConfig(**wrong)
            )


def test_jit_equals_eager_and_agents_are_hashable(key):
    agent = deterministic_actor_critic(OBS, ACTIONS["asymmetric"], SMALL)
    assert isinstance(hash(agent), int)
    params, obs = jax.jit(agent.init)(key), observations()
    jitted = jax.jit(lambda params, obs, key: explore(agent, params, obs, key))
    np.testing.assert_allclose(
        jitted(params, obs, key), explore(agent, params, obs, key), rtol=1e-5, atol=1e-6
    )
