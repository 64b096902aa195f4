"""What is specific to Pgx: opponents, seats, legal actions and ends of games."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import rlkit
from rlkit.envs.suites.pgx_ids import IDS, LEFT_OUT, LIMITS
from rlkit.envs.suites.pgx_opponents import first_move, random_move
from rlkit.errors import ConfigError

pgx = pytest.importorskip("pgx")
adapter = pytest.importorskip("rlkit.envs.suites.pgx")

SLOW = ("chess", "gardner_chess", "shogi", "animal_shogi", "go_19x19")


def last_move(key, observation, legal):
    """An opponent that takes the last legal action."""
    return legal.shape[0] - 1 - legal[::-1].argmax()


def started(env, key):
    """(step, state, observation), compiled."""
    return (jax.jit(env.step), *jax.jit(env.reset)(key))


def test_the_ids_are_pgx_own():
    assert {*IDS, *LEFT_OUT} == {*pgx.available_envs()}
    assert set(LIMITS) <= set(IDS)


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in IDS if name not in SLOW])
def test_every_id_can_be_made(name):
    env = rlkit.make_env(f"pgx/{name}", 2)
    assert ("action_mask" in getattr(env.observation_space, "spaces", ())) == (
        not name.startswith("minatar-")
    )


@pytest.mark.full
@pytest.mark.parametrize("name", ["tic_tac_toe", "connect_four", "minatar-breakout"])
def test_check_env_finds_no_mistakes(name):
    rlkit.check_env(f"pgx/{name}")


@pytest.mark.parametrize("seat", [0, 1])
def test_games_are_pgx_own(key, seat):
    """Tic-tac-toe with both players' moves made by hand: the agent's first, the other's last."""
    env = adapter.make("tic_tac_toe", opponent=last_move, seat=seat)
    step, state, obs = started(env, key)
    game = pgx.make("tic_tac_toe")
    own_step = jax.jit(game.step)
    own = jax.jit(game.init)(jax.random.split(key, 3)[0])
    agent, mine = (int(own.current_player) + seat) % 2, []
    terminated, reward = False, 0.0
    while not terminated:
        if own.current_player != agent:
            own = own_step(own, last_move(None, None, own.legal_action_mask))
            mine.append(float(own.rewards[agent]))
            continue
        assert (obs == own.observation).all() and not own.terminated
        assert (env.action_mask(state) == own.legal_action_mask).all()
        action = own.legal_action_mask.argmax()
        state, obs, reward, terminated, truncated, info = step(key, state, action)
        own = own_step(own, action)
        mine = [float(own.rewards[agent])]
        while own.current_player != agent and not own.terminated:
            own = own_step(own, last_move(None, None, own.legal_action_mask))
            mine.append(float(own.rewards[agent]))
        assert reward == sum(mine) and terminated == own.terminated and not truncated
    # 0, 1, 2 and 8, 7, 6 are rows: who begins is first to fill one
    assert reward == (1 if seat == 0 else -1)
    assert (bool(info["won"]), bool(info["lost"])) == (seat == 0, seat == 1)


def test_seats_are_drawn_for_each_episode(key):
    """Whoever is second sees a stone of the other at the start."""
    env = rlkit.make_env("pgx/tic_tac_toe", 64)
    _, obs = jax.jit(env.reset)(key)
    stones = np.asarray(obs["observation"])[..., 1].sum((1, 2))
    assert set(stones) == {0, 1} and 16 < stones.sum() < 48
    assert not np.asarray(obs["observation"])[..., 0].any()


def test_the_random_opponent_makes_every_legal_move(key):
    legal = jnp.array([False, True, False, True, True])
    keys = jax.random.split(key, 64)
    moves = jax.vmap(random_move, (0, None, None))(keys, None, legal)
    assert set(moves.tolist()) == {1, 3, 4}
    assert first_move(key, None, legal) == 1


def test_opponents_see_their_own_side(key):
    """The board as the one to move sees it, in the type that agents observe."""
    seen = []

    def looks(key, observation, legal):
        seen.append(observation.dtype)
        own, other = observation[0, 0]  # a square's stones
        return jnp.where((other == 1) & (own == 0), 8, 1)

    env = adapter.make("tic_tac_toe", opponent=looks, seat=0)
    step, state, _ = started(env, key)
    _, obs, *_ = step(key, state, jnp.int32(0))
    assert obs.reshape(9, 2)[:, 1].tolist() == [0] * 8 + [1]
    assert set(seen) == {env.observation_space.dtype}


def test_an_opponent_that_cheats_loses(key):
    env = adapter.make("tic_tac_toe", opponent=lambda *_: jnp.int32(0), seat=0)
    step, state, _ = started(env, key)
    _, _, reward, terminated, _, _ = step(key, state, jnp.int32(0))
    assert terminated and reward == 1


def test_planes_are_images_where_boards_are_large():
    space = adapter.make("connect_four").observation_space
    assert space == spaces.Box(0, 1, (6, 7, 2), np.uint8)
    assert adapter.make("tic_tac_toe").observation_space == spaces.MultiBinary((3, 3, 2))
    assert adapter.make("minatar-breakout").observation_space.shape == (10, 10, 4)


def test_freeway_is_cut_before_pgx_ends_it(key):
    """Pgx calls its 2,501st step, the end of a timer that nobody sees, a termination."""
    env = adapter.make("minatar-freeway")
    state, _ = env.reset(key)

    def step(state, _):
        state, _, _, terminated, truncated, _ = env.step(key, state, jnp.int32(0))
        return state, (terminated, truncated)

    _, (terminated, truncated) = jax.lax.scan(step, state, length=2501)
    assert env.max_episode_steps == 2500
    assert jnp.flatnonzero(terminated).tolist() == [2500]
    assert jnp.flatnonzero(truncated).tolist() == [2499, 2500]


@pytest.mark.full
def test_gardner_chess_is_cut_before_pgx_ends_it(key):
    """Its moves are at most 256: 127 of the agent as many replies, and one if it is second."""
    env = adapter.make("gardner_chess", seat=1)
    step, state, _ = started(env, key)
    plies = int(state.env.game._step_count)
    state, *_ = step(key, state, env.action_mask(state).argmax())
    assert (plies, int(state.env.game._step_count)) == (1, 3)
    assert 1 + 2 * env.max_episode_steps < 256 <= 1 + 2 * (env.max_episode_steps + 1)


def test_limits_truncate(key):
    env = adapter.make("tic_tac_toe", opponent=last_move, seat=0, time_limit=3)
    step, state, _ = started(env, key)
    flags = []
    for action in (0, 4, 2):
        state, _, _, terminated, truncated, _ = step(key, state, jnp.int32(action))
        flags.append((bool(terminated), bool(truncated)))
    assert flags == [(False, False), (False, False), (True, True)]  # 8, 7, 6 is a row
    env = adapter.make("tic_tac_toe", opponent=last_move, seat=0, time_limit=2)
    step, state, _ = started(env, key)
    state, *_ = step(key, state, jnp.int32(0))
    _, obs, _, terminated, truncated, _ = step(key, state, jnp.int32(4))
    assert truncated and not terminated and obs.sum() == 4


def test_pictures(key):
    pytest.importorskip("resvg_py")
    env = adapter.make("tic_tac_toe", opponent=last_move, seat=0)
    step, state, _ = started(env, key)
    empty = env.env.render(jax.device_get(env.inner_state(state)))
    state, *_ = step(key, state, jnp.int32(0))
    played = env.env.render(jax.device_get(env.inner_state(state)))
    assert empty.shape == played.shape == (240, 240, 3) and played.dtype == np.uint8
    assert (empty != played).any()


def test_wrong_arguments_are_named():
    for arguments, message in (
        ({"opponent": "randon"}, "did you mean 'random'"),
        ({"seat": 2}, "seat=2 is none of pgx/tic_tac_toe, a game of 2; pass 0 to begin"),
        ({"time_limit": 0}, "time_limit must be a positive integer or None, got 0"),
        ({"oponent": "random"}, "it takes opponent, seat, time_limit"),
    ):
        with pytest.raises(ConfigError, match=message):
            rlkit.make_env("pgx/tic_tac_toe", 1, **arguments)
    with pytest.raises(ConfigError, match="time_limit=300 is more than pgx/chess lasts"):
        rlkit.make_env("pgx/chess", 1, time_limit=300)
    with pytest.raises(ConfigError, match="seat=0 is none of pgx/2048, a game of 1; leave it out"):
        rlkit.make_env("pgx/2048", 1, seat=0)
