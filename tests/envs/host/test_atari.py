"""The Atari preprocessing of Machado et al. (2018), checked against the emulator itself."""

import subprocess
import sys

import ale_py
import cv2
import gymnasium
import numpy as np
import pytest

from rlkit.envs.host.atari import make_atari
from rlkit.errors import ConfigError

pytestmark = pytest.mark.fast
BREAKOUT = "ALE/Breakout-v5"
EXACT = {"repeat_action_probability": 0.0, "noop_max": 0}  # nothing random


def test_observations_are_stacked_grey_frames():
    env = make_atari(BREAKOUT)
    assert env.observation_space == gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    assert env.action_space == gymnasium.spaces.Discrete(4)
    obs, _ = env.reset(seed=1)
    assert (obs.shape, obs.dtype) == ((84, 84, 4), np.uint8) and obs in env.observation_space
    # Padded with the first one.
    assert all(np.array_equal(obs[..., 0], obs[..., frame]) for frame in (1, 2, 3))
    before = obs
    obs, *_ = env.step(1)
    assert np.array_equal(obs[..., :3], before[..., 1:])  # the newest is the last


def test_a_step_is_four_frames_and_shows_the_maximum_of_the_last_two():
    env = make_atari(BREAKOUT, **EXACT)
    env.reset(seed=3)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", env.unwrapped.ale.getInt("random_seed"))
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(ale_py.roms.get_rom_path("breakout"))
    ale.reset_game()
    for action in (1, 2, 2, 0, 3, 3, 2, 1):
        obs, reward, *_ = env.step(action)
        rewards, frames = 0.0, []
        for _ in range(4):
            rewards += ale.act(ale.getMinimalActionSet()[action])
            frames.append(ale.getScreenGrayscale())
        expected = cv2.resize(np.maximum(*frames[-2:]), (84, 84), interpolation=cv2.INTER_AREA)
        np.testing.assert_array_equal(obs[..., -1], expected)
        assert reward == rewards
    assert env.unwrapped.ale.getEpisodeFrameNumber() == 32


def test_sticky_actions_are_those_of_ale():
    assert make_atari(BREAKOUT).unwrapped.ale.getFloat("repeat_action_probability") == 0.25
    assert (
        make_atari(BREAKOUT, repeat_action_probability=0.0).unwrapped.ale.getFloat(
            "repeat_action_probability"
        )
        == 0.0
    )


def test_the_time_limit_is_declared_and_truncates():
    assert make_atari(BREAKOUT).spec.max_episode_steps == 27_000
    assert make_atari(BREAKOUT, frame_skip=3).spec.max_episode_steps == 36_000
    env = make_atari(BREAKOUT, max_episode_steps=3)
    assert env.spec.max_episode_steps == 3
    env.reset(seed=0)
    ends = [env.step(0)[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]


def test_ale_itself_sets_no_limit():
    """Frames before the first step would count, so an episode would end before its limit."""
    assert make_atari(BREAKOUT).unwrapped.ale.getInt("max_num_frames_per_episode") == 0
    assert gymnasium.make(BREAKOUT).unwrapped.ale.getInt("max_num_frames_per_episode") == 108_000


def test_an_episode_starts_with_a_random_number_of_no_ops():
    env = make_atari(BREAKOUT)
    frames = [env.reset(seed=seed)[1]["episode_frame_number"] for seed in range(8)]
    assert min(frames) >= 1 and max(frames) <= 30 and len(set(frames)) > 4
    assert make_atari(BREAKOUT, noop_max=0).reset(seed=0)[1]["episode_frame_number"] == 0


def test_equal_seeds_play_equal_games():
    def play(seed):
        env = make_atari("ALE/Pong-v5")
        obs = [env.reset(seed=seed)[0]]
        return np.stack([*obs, *(env.step(action)[0] for action in [2, 3, 0, 5, 4] * 6)])

    first = play(7)
    np.testing.assert_array_equal(first, play(7))
    assert not np.array_equal(first, play(8))


def lives_lost_until_the_end(**arguments):
    env = make_atari(BREAKOUT, **EXACT, **arguments)
    env.reset(seed=0)
    lives = env.unwrapped.ale.lives()
    for step in range(2000):
        _, _, terminated, truncated, info = env.step(step % 2)  # fire, and let the ball fall
        if terminated or truncated:
            return lives - info["lives"]
    raise AssertionError("the game went on")


def test_a_lost_life_ends_the_episode_only_on_request():
    assert lives_lost_until_the_end() == 5
    assert lives_lost_until_the_end(terminal_on_life_loss=True) == 1


def test_other_sizes():
    env = make_atari("ALE/Pong-v5", screen_size=42, frame_stack=1, frame_skip=1)
    assert env.observation_space.shape == env.reset(seed=0)[0].shape == (42, 42, 1)
    assert make_atari("ALE/Pong-v5", full_action_space=True).action_space.n == 18
    frame = make_atari("ALE/Pong-v5", render_mode="rgb_array")
    frame.reset(seed=0)
    assert frame.render().shape == (210, 160, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"frameskip": 2}, "does not take frameskip; use frame_skip"),
        (
            {"max_num_frames_per_episode": 9},
            "does not take max_num_frames_per_episode; use max_episode_steps",
        ),
        ({"obs_type": "ram"}, "does not take obs_type; use screen_size"),
        ({"frame_stak": 2}, "does not take 'frame_stak'; did you mean 'frame_stack'"),
        ({"dificulty": 2}, "does not take 'dificulty'; did you mean 'difficulty'"),
        ({"frame_skip": 0}, "frame_skip must be an integer >= 1, got 0; leave it out"),
        ({"frame_stack": 1.5}, "frame_stack must be an integer >= 1, got 1.5"),
        ({"screen_size": -1}, "screen_size must be an integer >= 1, got -1"),
        ({"noop_max": -1}, "noop_max must be an integer >= 0, got -1; leave it out"),
        ({"max_episode_steps": 0}, "max_episode_steps must be an integer >= 1, got 0"),
    ],
)
def test_wrong_arguments_get_a_hint(arguments, message):
    with pytest.raises(ConfigError, match=message):
        make_atari(BREAKOUT, **arguments)


def test_unknown_games_get_a_hint():
    with pytest.raises(
        ConfigError, match="no Atari game 'ALE/Brakeout-v5'; did you mean 'ALE/Breakout-v5'"
    ):
        make_atari("ALE/Brakeout-v5")


@pytest.mark.parametrize("package", ["ale_py", "cv2"])
def test_a_missing_package_is_named(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ConfigError, match=rf"{package}.*; pip install ale-py opencv-python-headless"
    ):
        make_atari(BREAKOUT)


@pytest.mark.process
def test_it_imports_no_jax_and_prints_nothing():
    program = (
        "import sys; from rlkit.envs.host.atari import make_atari;"
        " make_atari('ALE/Pong-v5').reset(seed=0);assert not {'jax', 'flax'} & sys.modules.keys()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
