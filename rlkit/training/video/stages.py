"""Stages: a single environment that can be seen while it is played."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import jax
from gymnasium import spaces

from rlkit.envs.base import EnvAdapter, JaxEnv
from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.envs.jittable.casts import cast_obs
from rlkit.envs.jittable.drawings import gymnax_drawing
from rlkit.envs.jittable.gymnax import GymnaxEnv
from rlkit.envs.jittable.mixture import JaxMixture
from rlkit.envs.jittable.vectorized import VectorizedEnv
from rlkit.envs.jittable.wrappers import AroundEnv
from rlkit.envs.pictures import Picture, checked_picture, frames_per_second
from rlkit.errors import ConfigError, EnvFailedError
from rlkit.spaces import Space
from rlkit.training.video.frames import picture_of
from rlkit.types import Action, Key, Obs, PyTree

_SLOW, _SMOOTH = 10, 30  # frames per second: of grids and images, and of everything else


@dataclasses.dataclass(frozen=True)
class Moment:
    """Where an episode is: what the policy sees next, and what people see."""

    obs: Obs  # [1, ...]
    picture: Picture | None  # None: after the last step of an environment that resets itself
    reward: float = 0.0  # of the step that led here
    is_last: bool = False


class Stage(Protocol):
    """One environment, played an episode at a time."""

    fps: int
    """Frames per second at which it looks natural."""

    def begin(self, key: Key, /) -> Moment:
        """Starts an episode. Consumes the key."""
        ...

    def step(self, key: Key, action: Action, /) -> Moment:
        """One step with an action [1, ...] within the action space. Consumes the key."""
        ...


@contextlib.contextmanager
def open_stage(env: EnvAdapter) -> Iterator[Stage]:
    """The stage for an environment such as `env`.

    Raises `ConfigError` for environments that show no pictures.
    """
    if isinstance(env, VectorizedEnv):
        with _offscreen():
            yield JaxStage(env)
    elif isinstance(env, GymnasiumAdapter):
        with _offscreen(), contextlib.closing(env.filmed()) as own:
            try:
                yield HostStage(own)
            except EnvFailedError as error:
                if "OpenGL" not in str(error):
                    raise
                raise ConfigError(
                    f"{own.name} cannot be rendered without a display ({error.__cause__}); set"
                    " MUJOCO_GL=egl, or osmesa, before Python starts"
                ) from error
    else:
        raise ConfigError(
            f"{type(env).__name__} cannot be filmed; use environments of Gymnax or Gymnasium, or"
            " JAX environments in vectorize()"
        )


@contextlib.contextmanager
def _offscreen() -> Iterator[None]:
    """pygame opens neither a window nor a sound device, if it starts in here."""
    drivers = ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER")
    absent = [driver for driver in drivers if driver not in os.environ]
    os.environ.update(dict.fromkeys(absent, "dummy"))
    try:
        yield
    finally:
        for driver in absent:
            os.environ.pop(driver, None)


class JaxStage:
    """A single environment in JAX; its drawing, its own `render(state)`, or its observations."""

    def __init__(self, env: VectorizedEnv):
        self._env = env
        self._resets_itself = getattr(env.env, "auto_reset", False)
        self._draw, self.fps = _drawing(env.env, env.observation_space)
        self._reset, self._step = jax.jit(self._first), jax.jit(self._next)
        self._state: PyTree = None

    def _first(self, key: Key) -> tuple[PyTree, Obs]:
        state, obs = self._env.env.reset(key)
        return state, cast_obs(obs, self._env.observation_space)

    def _next(self, key: Key, state: PyTree, action: Any) -> tuple[PyTree, ...]:
        state, obs, reward, terminated, truncated, info = self._env.env.step(key, state, action)
        obs = info["final_observation"] if self._resets_itself else obs
        return state, cast_obs(obs, self._env.observation_space), reward, terminated | truncated

    def begin(self, key: Key) -> Moment:
        """See `Stage`."""
        self._state, obs = self._reset(key)
        return Moment(_batch(obs), self._picture(obs))

    def step(self, key: Key, action: Action) -> Moment:
        """See `Stage`."""
        own = jax.tree.map(lambda x: x[0], action)
        self._state, obs, reward, is_last = self._step(key, self._state, own)
        has_reset = bool(is_last) and self._resets_itself
        picture = None if has_reset else self._picture(obs)
        return Moment(_batch(obs), picture, float(reward), bool(is_last))

    def _picture(self, obs: Obs) -> Picture:
        return self._draw(*jax.device_get((self._state, obs)))


class HostStage:
    """A Gymnasium environment that renders arrays."""

    def __init__(self, env: GymnasiumAdapter):
        self._env = env
        self.fps = frames_per_second(env.render_fps or _SMOOTH, env.name)
        self._state: PyTree = None

    def begin(self, key: Key) -> Moment:
        """See `Stage`."""
        self._state, obs = self._env.reset(key)
        return Moment(obs, self._env.render()[0])

    def step(self, key: Key, action: Action) -> Moment:
        """See `Stage`."""
        self._state, step = self._env.step(key, self._state, action)
        is_last = bool(step.terminated[0] | step.truncated[0])
        picture = None if is_last else self._env.render()[0]
        return Moment(step.obs, picture, float(step.reward[0]), is_last)


def _drawing(env: JaxEnv, space: Space) -> tuple[Callable[[PyTree, Obs], Picture], int]:
    """How (state, observation) are drawn, and the frames per second."""
    if isinstance(env, JaxMixture):
        return _drawing_of_mixture(env, space)
    inner, inside, fps = env, lambda state: state, _own_fps(env)
    while isinstance(inner, AroundEnv) and not callable(getattr(inner, "render", None)):
        inside = _inside(inner, inside)
        inner = inner.env
        fps = fps or _own_fps(inner)  # the outermost knows best
    render = getattr(inner, "render", None)
    if callable(render):
        call = f"{type(inner).__name__}.render(state)"
        return lambda state, obs: checked_picture(render(inside(state)), call), fps or _SMOOTH
    if isinstance(inner, GymnaxEnv) and (found := gymnax_drawing(inner.env, inner.params)):
        draw, usual = found
        return lambda state, obs: draw(inside(state)), fps or usual
    is_flat = isinstance(space, spaces.Box) and len(space.shape) < 2
    return lambda state, obs: picture_of(space, obs), fps or (_SMOOTH if is_flat else _SLOW)


def _own_fps(env: JaxEnv) -> int | None:
    fps = getattr(env, "render_fps", None)
    return None if fps is None else frames_per_second(fps, type(env).__name__)


def _drawing_of_mixture(
    env: JaxMixture, space: Space
) -> tuple[Callable[[PyTree, Obs], Picture], int]:
    """The drawings of the members."""
    draws, fps = zip(*[_drawing(member, space) for member in env.members], strict=True)

    def draw(state: PyTree, obs: Obs) -> Picture:
        which, own = env.member_state(state)
        return draws[which](own, obs)

    return draw, min(fps)


def _inside(wrapper: AroundEnv, outer: Callable[[PyTree], PyTree]) -> Callable[[PyTree], PyTree]:
    return lambda state: wrapper.inner_state(outer(state))


def _batch(obs: Obs) -> Obs:
    return jax.tree.map(lambda x: x[None], obs)
