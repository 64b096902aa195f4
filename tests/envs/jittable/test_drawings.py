"""Drawings of Gymnax's states."""

import gymnasium
import gymnax
import jax
import numpy as np
import pytest
from tiers import by_default

from rlkit.envs.jittable.drawings import gymnax_drawing
from rlkit.envs.jittable.gymnax import gymnax_env
from rlkit.errors import ConfigError

CLASSIC = ["CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0"]
OURS = [
    *("FourRooms-misc", "MetaMaze-misc", "FrozenLake-misc"),
    *("PointRobot-misc", "Reacher-misc", "Swimmer-misc"),
]


def drawn(name, seed, steps=0):
    """The state after some steps of a random episode, and its picture."""
    env = gymnax_env(name)
    found = gymnax_drawing(env.env, env.params)
    assert found is not None
    env.action_space.seed(seed)
    with jax.disable_jit():
        state, _ = env.reset(jax.random.key(seed))
        for step in range(steps):
            state = env.step(jax.random.key(step), state, env.action_space.sample())[0]
    return state, found[0](jax.device_get(state))


@pytest.mark.parametrize("name", by_default([CLASSIC[2], OURS[0], OURS[3]], CLASSIC + OURS))
def test_a_drawing_is_a_picture_that_follows_the_state(name):
    _, first = drawn(name, 0)
    _, later = drawn(name, 0, steps=6)
    assert first.shape[-1] == 3 and first.ndim == 3 and first.dtype == np.uint8
    assert min(first.shape[:2]) >= 200
    assert first.shape == later.shape and (first != later).any()


@pytest.mark.parametrize("name", by_default(CLASSIC[:1], CLASSIC))
def test_classic_control_looks_like_gymnasiums(name):
    state, picture = drawn(name, 3, steps=4)
    env = gymnasium.make(name, render_mode="rgb_array").unwrapped
    env.reset(seed=0)
    if name == "CartPole-v1":
        env.state = np.array([state.x, state.x_dot, state.theta, state.theta_dot])
    elif name == "Acrobot-v1":
        angles = [state.joint_angle1, state.joint_angle2]
        env.state = np.array([*angles, state.velocity_1, state.velocity_2])
    elif name == "Pendulum-v1":
        env.state = np.array([float(state.theta), float(state.theta_dot)])
        env.last_u = float(np.ravel(state.last_u)[0])
    else:
        env.state = np.array([state.position, state.velocity])
    np.testing.assert_array_equal(picture, env.render())


def test_the_agent_of_a_maze_stands_where_it_is():
    state, picture = drawn("FourRooms-misc", 1)
    factor = len(picture) // 13
    cells = picture[factor // 2 :: factor, factor // 2 :: factor]
    row, column = np.asarray(state.pos)
    np.testing.assert_array_equal(cells[row, column], (0, 114, 178))
    walls = (cells == (60, 60, 60)).all(-1)
    np.testing.assert_array_equal(walls, np.asarray(gymnax.make("FourRooms-misc")[0].occupied_map))


@pytest.mark.fast
def test_others_have_none():
    for name in ("Breakout-MinAtar", "Catch-bsuite", "BernoulliBandit-misc"):
        assert gymnax_drawing(*gymnax.make(name)) is None


@pytest.mark.fast
def test_without_pygame_the_cure_is_said(monkeypatch):
    from rlkit.envs.jittable import drawings

    monkeypatch.setattr(drawings.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r'pip install "gymnasium\[classic-control\]"'):
        gymnax_drawing(*gymnax.make("CartPole-v1"))
