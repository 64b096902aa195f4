"""Atari games with the preprocessing of Machado et al. (2018). Must not import JAX."""

import inspect
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import (
    AtariPreprocessing,
    FrameStackObservation,
    TimeLimit,
    TransformObservation,
)

from rlkit.envs.ids import INSTALL
from rlkit.errors import ConfigError, did_you_mean, require

MAX_EPISODE_FRAMES = 108_000  # half an hour at 60 frames per second
ALTERNATIVES = {  # ALE arguments that the preprocessing sets itself
    "frameskip": "frame_skip",
    "max_num_frames_per_episode": "max_episode_steps",
    "obs_type": "screen_size and frame_stack: observations are stacked grayscale frames",
    "sound_obs": "another environment: observations are stacked grayscale frames",
}


def make_atari(
    env_id: str,
    *,
    render_mode: str | None = None,
    max_episode_steps: int | None = None,
    frame_skip: int = 4,
    screen_size: int = 84,
    frame_stack: int = 4,
    noop_max: int = 30,
    terminal_on_life_loss: bool = False,
    **kwargs: Any,
) -> gymnasium.Env:
    """One Atari game, `ALE/<Game>-v5`: uint8 [screen_size, screen_size, frame_stack], newest last.

    Frames are grayscale. A step repeats its action for `frame_skip` frames and returns the
    pixel-wise maximum of the last two. An episode starts with 1 to `noop_max` no-op frames (0:
    none), and is truncated after `max_episode_steps` steps (`None`: 108,000 frames, 27,000 steps
    with the default frame skip). `terminal_on_life_loss` ends it with the first life, and the next
    episode is a new game. `kwargs` go to ALE (mode, difficulty, full_action_space,
    repeat_action_probability, ...). Sticky actions (Machado et al. 2018, section 5) are on: the
    previous action is repeated with probability 0.25, unless `repeat_action_probability` changes
    that. Older papers report results without them.

    Raises `ConfigError` if a package is missing, for unknown games or arguments, and for values out
    of range.
    """
    ale = _import_ale()
    _check_names(ale, env_id, kwargs)
    for name, value in {
        "frame_skip": frame_skip,
        "screen_size": screen_size,
        "frame_stack": frame_stack,
    }.items():
        _check_count(name, value, least=1)
    limit = MAX_EPISODE_FRAMES // frame_skip if max_episode_steps is None else max_episode_steps
    _check_count("max_episode_steps", limit, least=1)
    _check_count("noop_max", noop_max, least=0)
    # v5 would skip 4 frames itself, and count its limit in frames, including those before the first
    # step.
    env = gymnasium.make(
        env_id, render_mode=render_mode, frameskip=1, max_num_frames_per_episode=None, **kwargs
    )
    env = AtariPreprocessing(
        env,
        noop_max=noop_max,
        frame_skip=frame_skip,
        screen_size=screen_size,
        terminal_on_life_loss=terminal_on_life_loss,
    )
    env = FrameStackObservation(env, frame_stack)
    shape = (screen_size, screen_size, frame_stack)
    env = TransformObservation(env, _frames_last, gymnasium.spaces.Box(0, 255, shape, np.uint8))
    return TimeLimit(env, limit)


def _import_ale() -> Any:
    try:
        import ale_py
        import cv2  # noqa: F401  # the preprocessing resizes with it
    except ImportError as error:
        raise ConfigError(
            f"Atari games need a missing package ({error}); {INSTALL['atari']}"
        ) from None
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner from each worker
    gymnasium.register_envs(ale_py)
    return ale_py


def _check_names(ale: Any, env_id: str, kwargs: dict[str, Any]) -> None:
    games = [name for name in gymnasium.registry if name.startswith("ALE/")]
    require(env_id in games, f"there is no Atari game {env_id!r}", did_you_mean(env_id, games))
    own = [
        name
        for name in inspect.signature(make_atari).parameters
        if name not in ("env_id", "kwargs")
    ]
    taken = [
        name
        for name in inspect.signature(ale.AtariEnv).parameters
        if name not in ("game", *ALTERNATIVES)
    ]
    for name in kwargs:
        require(
            name not in ALTERNATIVES,
            f"{env_id} does not take {name}",
            f"use {ALTERNATIVES.get(name)}",
        )
        require(
            name in taken, f"{env_id} does not take {name!r}", did_you_mean(name, {*own, *taken})
        )


def _check_count(name: str, value: object, *, least: int) -> None:
    require(
        isinstance(value, int) and value >= least,
        f"{name} must be an integer >= {least}, got {value!r}",
        "leave it out for the default",
    )


def _frames_last(frames: np.ndarray) -> np.ndarray:
    return np.moveaxis(frames, 0, -1)
