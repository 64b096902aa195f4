"""The soft actor-critic agent, and its distribution against numerical integration and distrax."""

import math

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlkit.agents.base import Agent
from rlkit.agents.configs import SoftActorCriticConfig
from rlkit.agents.heads import TanhGaussian
from rlkit.agents.registry import make_agent
from rlkit.agents.soft_actor_critic import soft_actor_critic
from rlkit.errors import ConfigError, SpaceError
from rlkit.spaces import example

SMALL = SoftActorCriticConfig(hidden_sizes=(8,))
OBS = spaces.Box(-1.0, 1.0, (3,))
LOW, HIGH = np.array([-1.0, 0.0, -3.0], np.float32), np.array([1.0, 10.0, -2.5], np.float32)
ACTIONS = {
    "asymmetric": spaces.Box(LOW, HIGH),
    "scalar": spaces.Box(-2.0, 2.0, ()),
    "matrix": spaces.Box(-2.0, 1.0, (2, 3)),
    "doubles": spaces.Box(0.1, 0.7, (2,), np.float64),
    "wide": spaces.Box(-1e20, 3e20, (1,)),
}
OBSERVATIONS = {
    "box": OBS,
    "scalar": spaces.Box(-1.0, 1.0, ()),
    "image": spaces.Box(0, 255, (6, 6, 2), np.uint8),
    "discrete": spaces.Discrete(4, start=2),
    "dict": spaces.Dict(
        {"z": OBS, "a": spaces.Discrete(2), "m": spaces.Box(0, 255, (4, 4, 1), np.uint8)}
    ),
    "tuple": spaces.Tuple(
        (spaces.Discrete(2), spaces.Dict({"x": OBS, "b": spaces.MultiBinary(2)}))
    ),
}
BATCH = 5


def observe(space):
    """A batch of random elements of `space`."""
    space.seed(0)
    samples = [space.sample() for _ in range(BATCH)]
    return jax.tree.map(
        lambda like, *x: np.stack([np.asarray(v, like.dtype) for v in x]), example(space), *samples
    )


@jax.jit
def transform(mean, log_std, noise):
    return TanhGaussian(mean, log_std).transform(noise)


@jax.jit
def sampled_log_probs(mean, log_std, key):
    return TanhGaussian(mean, log_std).sample_and_log_prob(key)[1]


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.4, -1.0), (-1.2, 0.5), (0.0, -5.0)])
def test_the_density_integrates_to_one(mean, log_std):
    noise = np.linspace(-8.0, 8.0, 200_001, dtype=np.float32)[:, None]
    action, log_prob = map(
        np.asarray, transform(np.full_like(noise, mean), np.full_like(noise, log_std), noise)
    )
    action = action.astype(np.float64)[:, 0]
    assert np.trapezoid(np.exp(log_prob), action) == pytest.approx(1.0, rel=1e-3)
    # the entropy of this density over [-1, 1] is what the samples' log-probs estimate
    entropy = -np.trapezoid(np.exp(log_prob) * log_prob, action)
    sampled = np.asarray(
        sampled_log_probs(np.full(40_000, mean), np.full(40_000, log_std), jax.random.key(1))
    )
    assert -sampled.mean() == pytest.approx(entropy, abs=5 * float(sampled.std()) / 200)


def test_dimensions_are_independent():
    """The log-prob of a vector is the sum over its dimensions, each of which integrates to one."""
    mean, log_std = np.array([[0.3, -0.7]]), np.array([[-0.5, 0.2]])
    noise = np.array([[0.9, -1.1]])
    action, joint = jax.device_get(transform(mean, log_std, noise))
    parts = [jax.device_get(transform(mean[:, i], log_std[:, i], noise[:, i])) for i in range(2)]
    np.testing.assert_allclose(joint, parts[0][1] + parts[1][1], rtol=1e-6)
    np.testing.assert_array_equal(action[0], [parts[0][0][0], parts[1][0][0]])
    matrix = transform(mean[:, None], log_std[:, None], noise[:, None])
    assert matrix[0].shape == (1, 1, 2)
    np.testing.assert_allclose(matrix[1], joint, rtol=1e-6)


def test_equals_distrax_where_that_is_finite():
    rng = np.random.default_rng(0)
    mean, log_std = rng.normal(size=(64, 3)), rng.normal(scale=0.5, size=(64, 3))

    @jax.jit
    def program(mean, log_std, key):
        policy = TanhGaussian(mean, log_std)
        action, log_prob = policy.sample_and_log_prob(key)
        base = distrax.MultivariateNormalDiag(mean, jnp.exp(log_std))
        reference = distrax.Transformed(base, distrax.Block(distrax.Tanh(), 1))
        others = policy.mode(), jnp.tanh(mean), policy.sample(key)
        return action, log_prob, reference.log_prob(action), *others

    action, log_prob, wanted, mode, tanh, sample = jax.device_get(
        program(mean, log_std, jax.random.key(1))
    )
    inside = np.abs(action).max(-1) < 0.999  # atanh loses digits towards 1, and has none at 1
    assert inside.sum() > 30
    np.testing.assert_allclose(log_prob[inside], wanted[inside], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(mode, tanh)
    np.testing.assert_array_equal(sample, action)


@pytest.mark.parametrize("u", [20.0, -20.0, 60.0])
def test_far_from_zero_everything_is_finite(u):
    """tanh(20) is 1 in float32, where log(1 - tanh²) would be -inf; the true slope there is 4
    exp(-2|u|).
    """

    @jax.jit
    @jax.value_and_grad
    def log_prob(mean):
        return TanhGaussian(mean, jnp.zeros(1)).transform(jnp.zeros(1))[1][0]

    value, gradient = log_prob(np.array([u]))
    assert abs(float(jnp.tanh(u))) == 1.0
    np.testing.assert_allclose(
        value, -0.5 * math.log(2 * math.pi) - math.log(4) + 2 * abs(u), rtol=1e-6
    )
    np.testing.assert_allclose(gradient, [2 * np.sign(u)], rtol=1e-6)


@pytest.mark.parametrize("kind", ACTIONS)
def test_actions_are_the_environments_own(key, kind):
    space = ACTIONS[kind]
    agent = make_agent("soft_actor_critic", OBS, space, SMALL)
    assert isinstance(agent, Agent)
    unit = np.random.default_rng(0).uniform(-1.0, 1.0, (BATCH, *space.shape))

    @jax.jit
    def program(key, obs, unit):
        params = agent.init(key)
        # A last layer blown up to saturate tanh in both directions
        params["actor"]["head"]["kernel"] *= 1e5
        explored = agent.explore(params, obs, agent.initial_carry(BATCH), key, jnp.float32(0.0))
        best, _ = agent.exploit(params, obs, (), key)
        extremes = agent.from_unit(jnp.stack([jnp.full(space.shape, x) for x in (-1.0, 0.0, 1.0)]))
        back = agent.to_unit(extremes), agent.to_unit(agent.from_unit(unit))
        return explored, best, extremes, *back

    (action, carry, extras), best, extremes, unit_extremes, unit_again = jax.device_get(
        program(key, observe(OBS), unit)
    )
    assert (carry, extras) == ((), {})
    low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
    for found in (action, best):
        assert found.shape == (BATCH, *space.shape)
        assert found.dtype == jnp.float32
        assert ((found >= low) & (found <= high)).all()
    wanted = [low, (np.asarray(space.low, float) + space.high) / 2, high]
    np.testing.assert_allclose(extremes, np.stack(wanted), rtol=1e-6)
    np.testing.assert_allclose(unit_again, unit, atol=2e-5)
    np.testing.assert_allclose(
        unit_extremes[[0, 2]], np.stack([-np.ones(space.shape), np.ones(space.shape)]), rtol=1e-5
    )


def test_every_dimension_has_its_own_bounds():
    agent = soft_actor_critic(OBS, ACTIONS["asymmetric"], SMALL)
    from_unit, to_unit = jax.jit(agent.from_unit), jax.jit(agent.to_unit)
    np.testing.assert_allclose(
        from_unit(np.array([[0.5, -0.5, 0.0]])), [[0.5, 2.5, -2.75]], rtol=1e-6
    )
    np.testing.assert_allclose(
        to_unit(np.array([[0.5, 2.5, -2.75]])), [[0.5, -0.5, 0.0]], atol=1e-6
    )
    np.testing.assert_array_equal(to_unit(np.array([[9.0, -9.0, 0.0]])), [[1.0, -1.0, 1.0]])


@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_reads_every_observation_space(key, kind):
    space = OBSERVATIONS[kind]
    agent = soft_actor_critic(space, ACTIONS["matrix"], SMALL)
    params, obs = jax.jit(agent.init)(key), observe(space)
    unit = np.random.default_rng(1).uniform(-1.0, 1.0, (BATCH, 2, 3))

    @jax.jit
    def program(params, obs, unit):
        return agent.policy(params["actor"], obs).mode(), agent.q_values(
            params["critic"], obs, unit
        )

    mode, q_values = map(np.asarray, program(params, obs, unit))
    assert (mode.shape, q_values.shape) == ((BATCH, 2, 3), (2, BATCH))
    # The observation matters to the policy.
    assert len({round(float(v), 6) for v in mode[:, 0, 0]}) > 1
    same_action = np.asarray(program(params, obs, np.broadcast_to(unit[:1], unit.shape))[1])
    assert len({round(float(v), 6) for v in same_action[0]}) > 1  # and to the critics
    first = jax.tree.map(lambda x: np.broadcast_to(x[:1], x.shape), obs)
    same_obs = np.asarray(program(params, first, unit)[1])
    assert len({round(float(v), 6) for v in same_obs[0]}) == BATCH  # and so does the action


def test_parameters(key):
    """Two critics that share nothing; the temperature starts where the config says."""
    agent = soft_actor_critic(
        OBS,
        ACTIONS["asymmetric"],
        SoftActorCriticConfig(hidden_sizes=(16, 8), initial_temperature=0.2),
    )
    assert agent.spec[0] == "soft_actor_critic"
    params = jax.device_get(jax.jit(agent.init)(key))
    assert set(params) == {"actor", "critic", "log_temperature"}
    assert (params["log_temperature"].shape, params["log_temperature"].dtype) == ((), jnp.float32)
    np.testing.assert_allclose(params["log_temperature"], math.log(0.2), rtol=1e-6)
    networks = {"actor": params["actor"], **params["critic"]}
    assert set(networks) == {"actor", "first", "second"}
    for name, inputs, outputs, scale in (
        ("actor", 3, 6, 0.01),
        ("first", 6, 1, 1.0),
        ("second", 6, 1, 1.0),
    ):
        layers = [*networks[name]["torso"]["mlp"]["layers"].values(), networks[name]["head"]]
        assert [layer["kernel"].shape for layer in layers] == [(inputs, 16), (16, 8), (8, outputs)]
        for layer, wanted in zip(layers, (math.sqrt(2), math.sqrt(2), scale), strict=True):
            np.testing.assert_allclose(
                np.linalg.svd(layer["kernel"], compute_uv=False), wanted, rtol=1e-4
            )
    first, second = (
        params["critic"][name]["torso"]["mlp"]["layers"][0]["kernel"]
        for name in ("first", "second")
    )
    assert (first != second).all()
    first, second = np.asarray(
        jax.jit(agent.q_values)(params["critic"], observe(OBS), np.zeros((BATCH, 3)))
    )
    assert (np.abs(first - second) > 1e-4).all()


def test_the_std_depends_on_the_state_within_limits(key):
    agent = soft_actor_critic(OBS, ACTIONS["asymmetric"], SMALL)
    params, obs = jax.device_get(jax.jit(agent.init)(key)), observe(OBS)
    policy = jax.jit(lambda params: agent.policy(params["actor"], obs).log_std)
    log_std = np.asarray(policy(params))
    np.testing.assert_allclose(log_std, 0.0, atol=0.05)
    assert len(np.unique(log_std)) > 1
    params["actor"]["head"]["kernel"] = params["actor"]["head"]["kernel"] * 1e5
    log_std = np.asarray(policy(params))
    assert {log_std.min(), log_std.max()} == {-5.0, 2.0}


@pytest.mark.fast
@pytest.mark.parametrize(
    ("space", "wanted"),
    [
        (
            spaces.Discrete(2),
            r"needs a Box of continuous actions, got Discrete\(2\); use actor_critic",
        ),
        (spaces.MultiDiscrete([2, 2]), "use actor_critic"),
        (spaces.Box(0, 255, (2,), np.uint8), "a Box of floats"),
        (
            spaces.Box(-np.inf, np.inf, (2,)),
            r"needs finite bounds, got Box.*; declare finite bounds",
        ),
        (
            spaces.Box(np.finfo(np.float32).min, np.finfo(np.float32).max, (2,)),
            "needs finite bounds",
        ),
        (
            spaces.Box(np.array([0.0, -np.inf], np.float32), np.array([1.0, 1.0], np.float32)),
            "needs finite bounds",
        ),
        (
            spaces.Box(np.array([0.0, 1.0], np.float32), np.array([1.0, 1.0], np.float32)),
            "low < high",
        ),
    ],
)
def test_other_action_spaces_are_refused(space, wanted):
    with pytest.raises(SpaceError, match=wanted):
        soft_actor_critic(OBS, space)


@pytest.mark.fast
def test_bad_observations_and_configs():
    with pytest.raises(SpaceError, match="not supported; use"):
        soft_actor_critic(spaces.Text(3), ACTIONS["matrix"])
    with pytest.raises(ConfigError, match=r"SoftActorCriticConfig\.initial_temperature"):
        soft_actor_critic(OBS, ACTIONS["matrix"], SoftActorCriticConfig(initial_temperature=0.0))


def test_jit_equals_eager_and_agents_are_hashable(key):
    agent = soft_actor_critic(OBS, ACTIONS["asymmetric"], SMALL)
    assert isinstance(hash(agent), int)
    params, obs = agent.init(key), observe(OBS)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7),
        jax.jit(agent.init)(key),
        params,
    )
    explore = jax.jit(
        lambda params, obs, key: agent.explore(params, obs, (), key, jnp.float32(0.0))[0]
    )
    np.testing.assert_allclose(
        explore(params, obs, key),
        agent.explore(params, obs, (), key, jnp.float32(0.0))[0],
        rtol=1e-5,
    )
