"""What is specific to Navix: ends against limits, its own resets, codes, images."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("navix")

import navix

from rlkit.envs import check_env, make_env
from rlkit.envs.suites import navix_ids
from rlkit.envs.suites.navix import make
from rlkit.errors import ConfigError

EMPTY, OBSTACLES = "Navix-Empty-5x5-v0", "Navix-Dynamic-Obstacles-5x5-v0"
RIGHT, FORWARD = 1, 2
TO_THE_GOAL = (FORWARD, FORWARD, RIGHT, FORWARD, FORWARD)


def test_the_ids_are_those_that_navix_registers():
    assert {*navix_ids.IDS, *navix_ids.LEFT_OUT} == {*navix.registry()}


@pytest.mark.full
@pytest.mark.parametrize(
    ("limit", "ends"), [(6, (True, False)), (5, (True, True)), (4, (False, True))]
)
def test_goals_terminate_also_at_the_limit_and_the_limit_truncates(limit, ends, key):
    env = make(EMPTY, max_steps=limit)
    assert env.max_episode_steps == limit
    state, _ = env.reset(key)
    step = jax.jit(env.step)
    for action in TO_THE_GOAL[:limit]:
        state, _, reward, terminated, truncated, info = step(key, state, jnp.int32(action))
    assert (bool(terminated), bool(truncated)) == ends
    assert reward == terminated and info == {}


@pytest.mark.full
@pytest.mark.parametrize("observation", ["symbolic", "rgb_first_person"])
def test_transitions_are_those_of_navix_until_an_episode_ends(observation, key):
    name = "Navix-Dynamic-Obstacles-8x8-v0"
    env = make(name, observation=observation)
    own = navix.make(name, observation_fn=getattr(navix.observations, observation))
    theirs, (state, obs) = jax.jit(own.reset)(key), jax.jit(env.reset)(key)
    step, own_step = jax.jit(env.step), jax.jit(own.step)
    for number in range(100):
        np.testing.assert_array_equal(obs, theirs.observation)
        action = jnp.int32((FORWARD, RIGHT)[number % 2])
        state, obs, reward, terminated, truncated, _ = step(key, state, action)
        theirs = own_step(theirs, action)
        assert (reward, terminated) == (theirs.reward, theirs.is_termination())
        if terminated | truncated:
            break
    assert theirs.is_done() and number > 5
    np.testing.assert_array_equal(obs, theirs.observation)


@pytest.mark.full
def test_no_episode_starts_within_a_step(key):
    """Navix resets what ended before; what rlkit passes on is always taken to be running."""
    env = make(EMPTY, max_steps=2)
    state, _ = env.reset(key)
    for _ in range(3):
        state, *_ = env.step(key, state, jnp.int32(FORWARD))
    assert state.t == 3
    many = jax.tree.map(lambda x: jnp.stack([x, x]), state)
    batch = jax.vmap(env.step, (None, 0, 0))
    program = jax.make_jaxpr(batch)(key, many, jnp.zeros(2, jnp.int32))
    names = [equation.primitive.name for equation in program.jaxpr.eqns]
    assert "cond" in names  # else Navix would reset all at every step, and throw it away


def test_symbols_are_codes_and_states_hold_no_pictures(key):
    env = make(EMPTY)
    state, obs = jax.eval_shape(env.reset, key)
    assert env.observation_space.nvec[0, 0].tolist() == [11, 6, 4]
    assert obs.shape == env.observation_space.shape == (5, 5, 3) and obs.dtype == np.uint8
    assert state.state.cache.patches.size == 0
    near = make("Navix-Empty-16x16-v0", observation="symbolic_first_person")
    assert near.observation_space.shape == (7, 7, 3)
    image = make(EMPTY, observation="rgb")
    assert image.observation_space.shape == (40, 40, 3)
    assert image.observation_space.dtype == np.uint8


@pytest.mark.full
def test_the_locked_door_of_a_corridor_has_a_code_within_the_space(key):
    name = "Navix-KeyCorridorS3R1-v0"
    assert navix.make(name).reset(key).observation.max() == 254
    _, obs = make(name).reset(key)
    door = np.asarray(obs)[(np.asarray(obs) == [4, 0, 3])[..., [0, 2]].all(-1)]
    assert len(door) == 1 and make(name).observation_space.contains(np.asarray(obs))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_steps": 0}, r"max_steps must be a positive integer, got 0"),
        ({"observation": "symbols"}, r"no observation 'symbols'; did you mean 'symbolic'"),
        ({"observation": "set_radius"}, r"choose one of rgb, .*, symbolic_first_person"),
    ],
)
def test_errors_name_the_fix(arguments, message):
    with pytest.raises(ConfigError, match=message):
        make(EMPTY, **arguments)


@pytest.mark.full
def test_pictures_show_the_whole_grid(key):
    env = make(EMPTY, observation="symbolic_first_person")
    state, _ = env.reset(key)
    picture = env.render(jax.device_get(state))
    own = navix.make(EMPTY, observation_fn=navix.observations.rgb).reset(key).observation
    np.testing.assert_array_equal(picture[::10, ::10], own)


@pytest.mark.full
@pytest.mark.parametrize("name", ["Navix-DoorKey-Random-5x5-v0", OBSTACLES])
def test_they_pass_the_checks(name):
    assert not check_env(make_env(f"navix/{name}", 2, max_steps=40)).findings
