"""The actor-critic agent on every kind of space."""

import dataclasses
import itertools
import math
from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from gymnasium import spaces
from tiers import by_default

from rlkit.agents.actor_critic import actor_critic
from rlkit.agents.base import Agent
from rlkit.agents.configs import ActorCriticConfig
from rlkit.errors import ConfigError, SpaceError
from rlkit.spaces import example, leaves

SMALL = ActorCriticConfig(hidden_sizes=(8,))
BOX = spaces.Box(-1.0, 1.0, (3,))
ACTIONS = {
    "discrete": spaces.Discrete(3),
    "discrete_start": spaces.Discrete(3, start=5),
    "multi_discrete": spaces.MultiDiscrete([2, 4]),
    "box": spaces.Box(-2.0, 2.0, (2,)),
}
OBSERVATIONS = {
    "box": BOX,
    "scalar": spaces.Box(-1.0, 1.0, ()),
    "matrix": spaces.Box(-1.0, 1.0, (2, 3)),
    "image": spaces.Box(0, 255, (6, 6, 2), np.uint8),
    "discrete": spaces.Discrete(4, start=2),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "multi_binary": spaces.MultiBinary(5),
    "dict": spaces.Dict(
        {"z": BOX, "a": spaces.Discrete(2), "m": spaces.Box(0, 255, (4, 4, 1), np.uint8)}
    ),
    "tuple": spaces.Tuple(
        (spaces.Discrete(2), spaces.Dict({"x": BOX, "b": spaces.MultiBinary(2)}))
    ),
}
BATCH = 5


def observe(space, seed: int = 0):
    """A batch of random elements of `space`."""
    space.seed(seed)
    samples = [space.sample() for _ in range(BATCH)]
    return jax.tree.map(
        lambda like, *x: np.stack([np.asarray(v, like.dtype) for v in x]), example(space), *samples
    )


@pytest.fixture(scope="module")
def agent():
    return actor_critic(BOX, spaces.Discrete(2), SMALL)


@pytest.mark.parametrize("kind", ACTIONS)
def test_acts_in_every_action_space(key, kind):
    space = ACTIONS[kind]
    agent = actor_critic(BOX, space, SMALL)
    assert isinstance(agent, Agent)

    @jax.jit
    def program(key, obs):
        params = agent.init(key)
        explored = agent.explore(params, obs, agent.initial_carry(BATCH), key, jnp.float32(0.0))
        best, _ = agent.exploit(params, obs, (), key)
        policy, value = agent.policy_and_value(params, obs)
        log_prob, entropy = policy.log_prob(explored[0]), policy.entropy()
        return explored, best, log_prob, entropy, value, agent.value(params, obs)

    (action, carry, extras), best, log_prob, entropy, value, value_alone = program(
        key, observe(BOX)
    )
    assert (carry, extras) == ((), {})
    assert action.shape == best.shape == (BATCH, *space.shape)
    for one in np.asarray(best):
        assert space.contains(one.astype(space.dtype))
    assert log_prob.shape == entropy.shape == value.shape == (BATCH,)
    np.testing.assert_array_equal(value_alone, value)


@pytest.mark.parametrize(
    ("kind", "share"),
    by_default(
        [*((kind, False) for kind in OBSERVATIONS), ("image", True), ("dict", True)],
        itertools.product(OBSERVATIONS, [True, False]),
    ),
)
def test_reads_every_observation_space(key, kind, share):
    space = OBSERVATIONS[kind]
    agent = actor_critic(space, spaces.Discrete(2), dataclasses.replace(SMALL, share_torso=share))

    @jax.jit
    def program(key, obs):
        params = agent.init(key)
        return agent.policy(params, obs).entropy(), agent.value(params, obs)

    policy, value = map(np.asarray, program(key, observe(space)))
    assert policy.shape == value.shape == (BATCH,)
    assert np.isfinite(value).all()
    assert len({round(float(v), 6) for v in value}) > 1  # the observation matters


def test_discrete_observations_are_one_hot(key):
    """Every value of Discrete(start=2) moves the output by its own row of the first layer."""
    space = spaces.Discrete(4, start=2)
    agent = actor_critic(space, spaces.Discrete(2), SMALL)
    params = jax.device_get(jax.jit(agent.init)(key))
    kernel = params["network"]["critic"]["torso"]["mlp"]["layers"][0]["kernel"]
    head = params["network"]["critic"]["head"]["kernel"]
    value = jax.jit(agent.value)(params, np.arange(2, 6))
    np.testing.assert_allclose(value, (np.tanh(kernel) @ head)[:, 0], rtol=1e-5)


def test_frames_are_scaled_to_one(key):
    """uint8 images enter as x / 255; the same image as floats in [0, 1] gives the same."""
    agent = actor_critic(OBSERVATIONS["image"], spaces.Discrete(2), SMALL)
    floats = actor_critic(spaces.Box(0.0, 1.0, (6, 6, 2)), spaces.Discrete(2), SMALL)
    params, obs = jax.jit(agent.init)(key), observe(OBSERVATIONS["image"])
    np.testing.assert_allclose(
        jax.jit(agent.value)(params, obs), jax.jit(floats.value)(params, obs / 255.0), rtol=1e-5
    )


@pytest.mark.parametrize("space", [OBSERVATIONS["image"], BOX])
def test_actor_and_critic_share_the_torso_on_request(key, space):
    apart = actor_critic(space, spaces.Discrete(2), SMALL)
    assert set(jax.eval_shape(apart.init, key)["network"]) == {"actor", "critic"}
    shared = actor_critic(space, spaces.Discrete(2), dataclasses.replace(SMALL, share_torso=True))
    assert "torso" in jax.eval_shape(shared.init, key)["network"]


def test_relu_where_images_are_convolved_unless_another_is_chosen(key):
    """The critic's value, computed by hand from its parameters, with each activation."""
    image = spaces.Box(0.0, 1.0, (3, 3, 1))  # one patch of the convolution
    obs = np.linspace(0.0, 1.0, 2 * 9, dtype=np.float32).reshape(2, 3, 3, 1)
    relu = lambda x: np.maximum(x, 0.0)  # noqa: E731
    for space, settings, f in (
        (image, {}, relu),
        (image, {"activation": "tanh"}, np.tanh),
        (image, {"image_encoder": "flatten"}, np.tanh),
        (image, {"image_encoder": "flatten", "activation": "relu"}, relu),
        (spaces.Box(0.0, 1.0, (3, 3)), {}, np.tanh),
        (spaces.Dict({"a": image}), {}, relu),
    ):
        agent = actor_critic(
            space, spaces.Discrete(2), ActorCriticConfig(hidden_sizes=(8,), **settings)
        )
        params = jax.device_get(jax.jit(agent.init)(key))
        seen = {"a": obs} if isinstance(space, spaces.Dict) else obs.reshape(2, *space.shape)
        critic = params["network"]["critic"]
        x = obs.reshape(2, 9)
        if "cnns" in critic["torso"]:
            x = f(x @ critic["torso"]["cnns"][0]["layers"][0]["kernel"].reshape(9, 16))
        x = f(x @ critic["torso"]["mlp"]["layers"][0]["kernel"])
        wanted = (x @ critic["head"]["kernel"])[:, 0]
        np.testing.assert_allclose(jax.jit(agent.value)(params, seen), wanted, rtol=1e-4, atol=1e-6)


def test_large_images_use_the_dqn_network(key):
    agent = actor_critic(spaces.Box(0, 255, (84, 84, 4), np.uint8), spaces.Discrete(2), SMALL)
    torso = jax.eval_shape(agent.init, key)["network"]["critic"]["torso"]
    kernels = [
        x.shape
        for path, x in jax.tree.leaves_with_path(torso)
        if "kernel" in jax.tree_util.keystr(path)
    ]
    assert kernels == [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64), (7 * 7 * 64, 8)]


def test_initial_scales(key):
    """√2 in the torso, 0.01 on the policy's last layer, 1 on the value's; biases zero."""
    agent = actor_critic(BOX, spaces.Discrete(2), ActorCriticConfig(hidden_sizes=(16, 8)))
    network = jax.device_get(jax.jit(agent.init)(key)["network"])
    for name, scale in (("actor", 0.01), ("critic", 1.0)):
        layers = [*network[name]["torso"]["mlp"]["layers"].values(), network[name]["head"]]
        for layer, wanted in zip(layers, (math.sqrt(2), math.sqrt(2), scale), strict=True):
            np.testing.assert_allclose(
                np.linalg.svd(layer["kernel"], compute_uv=False), wanted, rtol=1e-4
            )
            np.testing.assert_array_equal(layer["bias"], 0.0)


def test_starts_almost_uniform(key, agent):
    params = jax.jit(agent.init)(key)
    entropy = jax.jit(lambda params, obs: agent.policy(params, obs).entropy())(params, observe(BOX))
    np.testing.assert_allclose(entropy, math.log(2), rtol=1e-3)


@pytest.mark.parametrize("std", [1.0, 0.3])
def test_initial_std(key, std):
    agent = actor_critic(BOX, ACTIONS["box"], dataclasses.replace(SMALL, initial_std=std))

    @jax.jit
    def program(key, obs):
        params = agent.init(key)
        return params["head"]["log_std"], agent.policy(params, obs).entropy()

    log_std, entropy = program(key, observe(BOX))
    np.testing.assert_allclose(np.exp(log_std), [std, std], rtol=1e-6)
    wanted = 2 * (0.5 * math.log(2 * math.pi * math.e) + math.log(std))
    np.testing.assert_allclose(entropy, wanted, rtol=1e-5)


def test_the_std_is_the_same_in_every_state(key):
    agent = actor_critic(BOX, ACTIONS["box"], SMALL)
    program = jax.jit(lambda key, obs: agent.policy(agent.init(key), obs).entropy())
    assert len(np.unique(np.asarray(program(key, observe(BOX))))) == 1


def test_dict_observations_do_not_depend_on_the_order_of_keys(key):
    """A space and observations whose keys come in different orders mean the same."""
    parts = {"z": spaces.Box(-1.0, 1.0, (2,)), "a": spaces.Discrete(3), "m": spaces.MultiBinary(4)}
    # Gymnasium sorts only the first.
    forward, backward = (
        spaces.Dict(parts),
        spaces.Dict(OrderedDict(parts)),
    )
    assert (list(forward.spaces), list(backward.spaces)) == (["a", "m", "z"], ["z", "a", "m"])
    assert [type(leaf) for leaf in leaves(forward)] == [
        spaces.Discrete,
        spaces.MultiBinary,
        spaces.Box,
    ]
    assert leaves(forward) == leaves(backward)
    obs = observe(forward)
    shuffled = {name: obs[name] for name in ("m", "z", "a")}
    one, other = (actor_critic(space, spaces.Discrete(2), SMALL) for space in (forward, backward))
    params = jax.jit(one.init)(key)
    jax.tree.map(np.testing.assert_array_equal, params, jax.jit(other.init)(key))
    wanted = jax.jit(one.value)(params, obs)
    for agent in (one, other):
        np.testing.assert_array_equal(jax.jit(agent.value)(params, shuffled), wanted)


def test_jit_equals_eager(key, agent):
    params, obs = agent.init(key), observe(BOX)
    for method in (
        agent.value,
        lambda p, o: agent.policy(p, o).log_prob(np.ones(BATCH, np.int32)),
    ):
        np.testing.assert_allclose(jax.jit(method)(params, obs), method(params, obs), rtol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, jax.jit(agent.init)(key), params)


def test_vmap_over_params_equals_a_loop(key, agent):
    keys, obs = jax.random.split(key, 3), observe(BOX)
    stacked, values = jax.device_get(
        jax.jit(jax.vmap(lambda key: (params := agent.init(key), agent.value(params, obs))))(keys)
    )
    init, value = jax.jit(agent.init), jax.jit(agent.value)
    for i, one in enumerate(keys):
        params = init(one)
        jax.tree.map(
            lambda a, b, i=i: np.testing.assert_allclose(a[i], b, rtol=1e-5, atol=1e-7),
            stacked,
            params,
        )
        np.testing.assert_allclose(values[i], value(params, obs), rtol=1e-5)


class UserTorso(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.layer = nnx.Linear(3, 7, rngs=rngs)
        self.norm = nnx.LayerNorm(7, rngs=rngs)

    def __call__(self, obs):
        return self.norm(self.layer(obs))


class WithBatchNorm(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.norm = nnx.BatchNorm(3, rngs=rngs)

    def __call__(self, obs):
        return self.norm(obs)


class WithDropout(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.layer = nnx.Linear(3, 7, rngs=rngs)

    def __call__(self, obs):
        return self.drop(self.layer(obs))


class Returning(nnx.Module):
    def __init__(self, function):
        self.function = function

    def __call__(self, obs):
        return self.function(obs)


def test_a_torso_of_your_own(key):
    agent = actor_critic(BOX, spaces.Discrete(2), torso=UserTorso)
    assert agent.custom == ("torso",)  # the config alone cannot rebuild it
    params = jax.jit(agent.init)(key)
    assert params["network"]["actor"]["head"]["kernel"].shape == (7, 2)
    assert jax.jit(agent.value)(params, observe(BOX)).shape == (BATCH,)
    shared = actor_critic(
        BOX, spaces.Discrete(2), ActorCriticConfig(share_torso=True), torso=UserTorso
    )
    assert set(jax.eval_shape(shared.init, key)["network"]) == {
        "torso",
        "actor_head",
        "critic_head",
    }


@pytest.mark.parametrize("torso", [WithBatchNorm, WithDropout])
@pytest.mark.parametrize("share", [True, False])
def test_torsos_with_hidden_state_are_refused(torso, share):
    with pytest.raises(
        ConfigError,
        match=(
            r"keeps .* besides its parameters; use layers .*LayerNorm rather than BatchNorm, no"
            r" Dropout"
        ),
    ):
        actor_critic(BOX, spaces.Discrete(2), ActorCriticConfig(share_torso=share), torso=torso)


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda obs: obs[:, 0], r"maps a batch of 2 observations to \(2,\)"),
        (lambda obs: obs[:, :, None], r"to \(2, 3, 1\)"),
        (lambda obs: obs[:1], r"to \(1, 3\)"),
        (lambda obs: (obs, obs), "return one array"),
        (lambda obs: obs["x"], "the torso fails on a batch of observations"),
    ],
)
def test_wrong_torso_outputs_are_refused(function, wanted):
    with pytest.raises(ConfigError, match=wanted):
        actor_critic(BOX, spaces.Discrete(2), torso=lambda rngs: Returning(function))


@pytest.mark.parametrize(
    ("observation", "action"),
    [
        (spaces.Text(3), spaces.Discrete(2)),
        (spaces.Dict({"a": spaces.Sequence(BOX)}), spaces.Discrete(2)),
        (BOX, spaces.MultiBinary(2)),
    ],
)
def test_unsupported_spaces(observation, action):
    with pytest.raises(SpaceError, match="not supported; use"):
        actor_critic(observation, action)


def test_binary_actions_have_a_cure():
    with pytest.raises(SpaceError, match=r"use MultiDiscrete\(\[2\] \* 6\)"):
        actor_critic(BOX, spaces.MultiBinary([2, 3]))


def test_bad_config():
    with pytest.raises(ConfigError, match=r"ActorCriticConfig\.hidden_sizes"):
        actor_critic(BOX, spaces.Discrete(2), ActorCriticConfig(hidden_sizes=(0,)))


def test_agents_are_hashable_values(agent):
    assert isinstance(hash(agent), int)
    assert agent.spec == ("actor_critic", SMALL)
