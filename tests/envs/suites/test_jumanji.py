"""What is specific to Jumanji: its specs, masks and time limits, in rlkit's terms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import rlkit
from rlkit.envs.suites.jumanji_ids import IDS, LEFT_OUT
from rlkit.errors import ConfigError

jumanji = pytest.importorskip("jumanji")
adapter = pytest.importorskip("rlkit.envs.suites.jumanji")

UP = jnp.int32(0)


def played(env, key, action, num_steps):
    """(terminated, truncated) after each step of an episode that repeats an action."""
    step = jax.jit(env.step)
    state, _ = jax.jit(env.reset)(key)
    flags = []
    for _ in range(num_steps):
        state, _, _, terminated, truncated, _ = step(key, state, action)
        flags.append((bool(terminated), bool(truncated)))
    return flags


def test_the_ids_are_jumanji_s_own_registry():
    assert {*IDS, *LEFT_OUT} == jumanji.registered_environments()
    assert not set(IDS) & set(LEFT_OUT)


@pytest.mark.full
@pytest.mark.filterwarnings(
    "ignore:scatter inputs have incompatible types:FutureWarning"
)  # BinPack
@pytest.mark.parametrize("name", IDS)
def test_every_id_can_be_made(name):
    env = rlkit.make_env(f"jumanji/{name}", 2)
    assert env.max_episode_steps


@pytest.mark.full
@pytest.mark.parametrize("name", ["Game2048-v1", "Maze-v0", "TSP-v1"])
def test_check_env_finds_no_mistakes(name):
    rlkit.check_env(f"jumanji/{name}")


def test_limits_truncate_and_ends_of_the_task_terminate(key):
    """The snake runs into the wall; the limit comes after that, with it, or before."""
    size = {"num_rows": 4, "num_cols": 4}
    flags = played(adapter.make("Snake-v1", **size, time_limit=9), key, UP, 4)
    crash = flags.index((True, False))
    assert crash > 0 and flags[:crash] == [(False, False)] * crash
    together = played(adapter.make("Snake-v1", **size, time_limit=crash + 1), key, UP, crash + 1)
    assert together == [(False, False)] * crash + [(True, True)]
    before = played(adapter.make("Snake-v1", **size, time_limit=crash), key, UP, crash)
    assert before[-1] == (False, True)


def test_limits_are_jumanji_s_own_unless_given():
    assert adapter.make("Maze-v0").max_episode_steps == 100
    assert adapter.make("Maze-v0", time_limit=7).max_episode_steps == 7
    assert adapter.make("Game2048-v1").max_episode_steps == 10_000


def test_transitions_are_jumanji_s(key):
    """Tetris until it ends, with a Discrete action for each pair of a rotation and a column."""
    own = jumanji.make("Tetris-v0", num_rows=6, num_cols=6)
    env = adapter.make("Tetris-v0", num_rows=6, num_cols=6)
    assert env.action_space == spaces.Discrete(24)
    step, own_step = jax.jit(env.step), jax.jit(own.step)
    state, obs = jax.jit(env.reset)(key)
    own_state, timestep = jax.jit(own.reset)(jax.random.key_data(key))
    terminated = False
    while not terminated:
        assert (obs["action_mask"].reshape(4, 6) == timestep.observation.action_mask).all()
        assert (obs["grid"] == timestep.observation.grid).all() and "step_count" not in obs
        action = int(obs["action_mask"].argmax())
        state, obs, reward, terminated, truncated, _ = step(key, state, jnp.int32(action))
        own_state, timestep = own_step(own_state, jnp.asarray(divmod(action, 6)))
        assert reward == timestep.reward and reward.dtype == jnp.float32
        assert terminated == timestep.last() and not truncated
    assert int(state.time) > 3


def test_actions_of_several_agents_are_masked_one_by_one():
    env = rlkit.make_env("jumanji/Cleaner-v0", 1)
    assert env.action_space == spaces.MultiDiscrete([4, 4, 4])
    assert env.observation_space["action_mask"] == spaces.MultiBinary(12)


def test_an_agent_that_has_nothing_to_do_may_do_anything(key):
    """An agent of MMST that is done has an empty mask, which rlkit refuses."""
    env = adapter.make("Cleaner-v0").env
    _, timestep = env.env.reset(jax.random.key_data(key))
    mask = jnp.zeros((3, 4), bool).at[0, 2].set(True).at[2, 1].set(True)
    obs = env._observed(timestep.observation._replace(action_mask=mask))
    assert obs["action_mask"].tolist() == [0, 0, 1, 0, 1, 1, 1, 1, 0, 1, 0, 0]


@pytest.mark.full
def test_rewards_of_several_agents_are_added(key):
    """Each agent of Connector that has not arrived pays 0.03 for a step."""
    env = adapter.make("Connector-v3").env
    state, _ = env.reset(key)
    _, _, reward, _, _, _ = jax.jit(env.step)(key, state, jnp.zeros(10, jnp.int32))
    assert reward == pytest.approx(-0.3)


def test_counts_are_shares_and_codes_are_discrete(key):
    mines = adapter.make("Minesweeper-v0")
    _, obs = mines.reset(key)
    assert obs["num_mines"] == pytest.approx(10 / 99)
    assert isinstance(mines.observation_space["board"], spaces.MultiDiscrete)
    assert adapter.make("TSP-v1").observation_space["position"] == spaces.Discrete(21, start=-1)
    assert adapter.make("Snake-v1").observation_space["grid"].shape == (12, 12, 5)
    views = adapter.make("SearchAndRescue-v0").observation_space["searcher_views"]
    assert views.shape == (2 * 3 * 128,)  # three axes, and no image


@pytest.mark.full
def test_numpy_s_generator_stays_as_it_was():
    np.random.seed(3)
    expected = np.random.random()
    np.random.seed(3)
    adapter.make("MMST-v0")
    assert np.random.random() == expected


@pytest.mark.full
def test_pictures(key):
    env = adapter.make("Maze-v0")
    state, _ = env.reset(key)
    picture = env.env.render(jax.device_get(env.inner_state(state)))
    assert picture.shape == (500, 500, 3) and picture.dtype == np.uint8
    assert picture.min() == 0 and picture.max() == 255


def test_wrong_arguments_are_named():
    with pytest.raises(ConfigError, match=r"jumanji/Snake-v1 cannot be made with.*'num_rowz'"):
        rlkit.make_env("jumanji/Snake-v1", 1, num_rowz=3)
    with pytest.raises(ConfigError, match="time_limit must be a positive integer or None, got 0"):
        rlkit.make_env("jumanji/Snake-v1", 1, time_limit=0)
    with pytest.raises(ConfigError, match="did you mean 'jumanji/Snake-v1'"):
        rlkit.make_env("jumanji/Snake-v0", 1)
