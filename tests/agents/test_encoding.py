"""How leaves of observations are encoded: scaled by bounds, as one-hot vectors, from tables."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algorithm_rows import SMALL_AGENT, known
from gymnasium import spaces
from tiers import by_default, in_full

from rlkit.agents.actor_critic import actor_critic
from rlkit.agents.configs import ActorCriticConfig
from rlkit.agents.encoding import Encoder, Table, encoding_note
from rlkit.agents.q_network import q_network
from rlkit.agents.registry import agent_entry, list_agents, make_agent
from rlkit.agents.torso import image_notes
from rlkit.errors import ConfigError, SpaceError

USUAL = ActorCriticConfig()
TABLES = ActorCriticConfig(hidden_sizes=(8,), embedding_threshold=4, embedding_size=3)


def encoded(space, x, config=USUAL):
    return np.asarray(jax.jit(Encoder(space, config))(np.asarray(x, np.asarray(space.low).dtype)))


@pytest.mark.fast
def test_uint8_is_scaled_by_the_bounds_of_its_space():
    codes = spaces.Box(0, 10, (2, 2), np.uint8)
    np.testing.assert_allclose(encoded(codes, [[[0, 10], [5, 1]]]), [[0.0, 1.0, 0.5, 0.1]])
    shifted = spaces.Box(np.uint8([2, 0]), np.uint8([4, 255]), dtype=np.uint8)
    np.testing.assert_allclose(encoded(shifted, [[3, 51], [4, 0]]), [[0.5, 0.2], [1.0, 0.0]])
    constant = spaces.Box(np.uint8([7, 0]), np.uint8([7, 1]), dtype=np.uint8)
    np.testing.assert_array_equal(encoded(constant, [[7, 1]]), [[0.0, 1.0]])
    other = spaces.Box(0, 10, (2,), np.int32)  # counts stay
    np.testing.assert_array_equal(encoded(other, [[3, 7]]), [[3.0, 7.0]])


@pytest.mark.fast
def test_pictures_have_the_same_bits_as_ever():
    picture = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    before = np.asarray(jax.jit(lambda x: x.astype(jnp.float32) / 255.0)(picture))
    np.testing.assert_array_equal(
        encoded(spaces.Box(0, 255, (16, 16, 1), np.uint8), picture), before
    )


@pytest.mark.fast
def test_small_spaces_are_one_hot_vectors_and_have_no_tables():
    grid, mixed = spaces.MultiDiscrete([[3, 3], [3, 3]]), spaces.MultiDiscrete([2, 3])
    one = Encoder(spaces.Discrete(1024), USUAL)
    assert (one.out_features, list(one.tables)) == (1024, [None])
    assert Encoder(grid, USUAL).out_features == 12 and Encoder(mixed, USUAL).out_features == 5
    x = np.array([[[0, 1], [2, 0]]], np.int32)
    wanted = [[1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0]]
    np.testing.assert_array_equal(jax.jit(Encoder(grid, USUAL))(x), wanted)
    np.testing.assert_array_equal(
        jax.jit(Encoder(mixed, USUAL))(np.array([[1, 2]])), [[0, 1, 0, 0, 1]]
    )
    shifted = spaces.MultiDiscrete([2, 3], start=[5, -1])
    np.testing.assert_array_equal(
        jax.jit(Encoder(shifted, USUAL))(np.array([[6, 1], [4, -2]])), [[0, 1, 0, 0, 1], [0] * 5]
    )


@pytest.mark.fast
def test_a_table_is_read_by_rows_and_learns_in_those():
    encoder = Encoder(spaces.MultiDiscrete([2, 5], start=[0, 10]), TABLES)
    assert encoder.out_features == 2 + 3
    rows = np.arange(15, dtype=np.float32).reshape(5, 3)
    encoder.tables[1].rows.set_value(jnp.asarray(rows))
    x = np.array([[1, 12], [0, 14], [1, 15], [0, 9]])  # the last two are out of range
    found = np.asarray(encoder(x))
    np.testing.assert_array_equal(found[:, :2], [[0, 1], [1, 0], [0, 1], [1, 0]])
    np.testing.assert_array_equal(found[:, 2:], [[6, 7, 8], [12, 13, 14], [0, 0, 0], [0, 0, 0]])

    def loss(rows):
        table = Table(5, 3)
        table.rows.set_value(rows)
        return (table(jnp.array([2, 2, 4, 7])) * jnp.array([1.0, 2.0, 3.0])).sum()

    gradient = np.zeros((5, 3))
    gradient[2], gradient[4] = [2, 4, 6], [1, 2, 3]
    np.testing.assert_array_equal(jax.jit(jax.grad(loss))(jnp.asarray(rows)), gradient)


@pytest.mark.parametrize("weight_init", ["orthogonal", in_full("lecun_normal")])
def test_tables_begin_with_a_variance_of_one(key, weight_init):
    """However many values they have: the layer on top expects such inputs."""
    config = dataclasses.replace(TABLES, embedding_size=16, weight_init=weight_init)
    space = spaces.Tuple((spaces.Discrete(2000), spaces.Discrete(100)))
    agent = actor_critic(space, spaces.Discrete(2), config)
    params = jax.device_get(jax.jit(agent.init)(key))["network"]["actor"]["torso"]["encoders"]
    large, small = (params[i]["tables"][0]["rows"] for i in range(2))
    assert (large.shape, small.shape) == ((2000, 16), (100, 16))
    assert large.var() == pytest.approx(1.0, rel=0.05)
    assert small.var() == pytest.approx(1.0, rel=0.15)


def agent_reading(space, name, **settings):
    kind = agent_entry(name).config
    config = kind(**known(kind, SMALL_AGENT), embedding_threshold=4, **settings)
    for action in (spaces.Discrete(3), spaces.Box(-1.0, 1.0, (2,))):
        try:
            return make_agent(name, space, action, config)
        except SpaceError:
            continue
    raise AssertionError(name)


@pytest.mark.parametrize(
    "name", by_default(["actor_critic", "soft_actor_critic"], list(list_agents()))
)
def test_every_agent_reads_tables(key, name):
    """Each value counts; bfloat16 computes the same to its precision; seeds equal single ones."""
    space = spaces.Dict({"large": spaces.Discrete(6, start=2), "small": spaces.Discrete(3)})
    exact, rounded = (
        agent_reading(space, name, embedding_size=3, precision=each)
        for each in ("float32", "bfloat16")
    )
    obs = {"large": np.arange(2, 8, dtype=np.int32), "small": np.zeros(6, np.int32)}

    def values(agent, params):
        if hasattr(agent, "policy_and_value"):
            return agent.policy_and_value(params, obs)[1]
        if hasattr(agent, "policy"):
            return agent.policy(params["actor"], obs).mean[:, 0]
        if hasattr(agent, "log_probs"):
            return agent.log_probs(params["actor"], obs)[:, 0]
        if hasattr(agent, "actor"):
            return agent.actor.apply(params["actor"], obs)[:, 0]
        return agent.q_values(params, obs)[:, 0]

    @jax.jit
    def program(keys):
        params = jax.vmap(exact.init)(keys)
        one = exact.init(keys[0])
        first = jax.tree.map(lambda x: x[0], params)
        return (
            one,
            first,
            jax.vmap(lambda p: values(exact, p))(params),
            values(exact, one),
            values(rounded, one),
        )

    one, first, seeds, value, close = program(jax.random.split(key, 2))
    jax.tree.map(np.testing.assert_array_equal, one, first)
    shapes = [x.shape for p, x in jax.tree.leaves_with_path(one) if p[-1].key == "rows"]
    assert shapes and set(shapes) == {(6, 3)}
    np.testing.assert_allclose(seeds[0], value, rtol=1e-5, atol=1e-7)
    assert len(np.unique(np.asarray(value))) == 6
    np.testing.assert_allclose(close, value, atol=0.05 * np.abs(value).max())


@pytest.mark.fast
def test_a_note_names_what_is_read_from_tables():
    space = spaces.Dict({"item": spaces.Discrete(4000), "x": spaces.Box(0, 1, (2,))})
    assert encoding_note(space, USUAL) == (
        "observation['item'] (4,000 values): read from learned tables, 64 numbers for each value,"
        " instead of one-hot vectors (embedding_size; embedding_threshold 1,024)"
    )
    assert encoding_note(spaces.MultiDiscrete([3, 5000]), USUAL).startswith("observation (5,000")
    assert encoding_note(spaces.Discrete(1024), USUAL) is None


@pytest.mark.fast
def test_notes_name_images_that_may_be_meant_otherwise():
    frames = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert image_notes(spaces.Dict({"a": frames, "b": spaces.Discrete(2)}), USUAL) == [
        "observation['a'] (4, 84, 84): read as images [height, width, channels]; if their channels"
        " come first, move them to the end (np.moveaxis(obs, 0, -1)), in the space too"
    ]
    for shape in ((84, 84), (4, 96, 96, 3)):
        (note,) = image_notes(spaces.Box(0, 255, shape, np.uint8), USUAL)
        assert note.startswith(f"observation {shape}: read without convolutions")
    assert not image_notes(frames, dataclasses.replace(USUAL, image_encoder="flatten"))
    for shape in ((84, 84, 4), (10, 10, 4), (4, 4, 31), (4, 5, 7), (4, 84), (9, 9), (3,)):
        assert not image_notes(spaces.Box(0, 255, shape, np.uint8), USUAL)
    with pytest.raises(ConfigError, match="move the channels to the last axis if they come first"):
        q_network(spaces.Box(0, 255, (1, 84, 84), np.uint8), spaces.Discrete(2))
