"""Craftax and Craftax-Classic, as symbols or pixels: `make` returns one as a `JaxEnv`."""

import contextlib
import dataclasses
import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from craftax.craftax_env import (  # pyright: ignore[reportMissingImports]
    make_craftax_env_from_name,
)
from gymnasium import spaces
from jax import Array

from rlkit.envs.base import JaxStep
from rlkit.envs.jittable.drawings import magnified
from rlkit.envs.jittable.params import with_numbers
from rlkit.errors import require_positive_integer
from rlkit.ops.strong_types import strong_types
from rlkit.spaces import Space
from rlkit.types import Action, EnvState, Key, Obs, PyTree

_TILE = 16  # pixels of a square, as drawn by Craftax's artists
_NEVER = np.iinfo(np.int32).max


@dataclasses.dataclass(frozen=True)
class CraftaxEnv:
    """One of Craftax's environments; the numbers in `params` are traced."""

    env: Any
    params: Any
    observation_space: Space
    action_space: Space
    max_episode_steps: int
    render_fps: ClassVar[int] = 10

    def replace_params(self, params: PyTree) -> "CraftaxEnv":
        """The same environment with other parameters."""
        return dataclasses.replace(self, params=params)

    def reset(self, key: Key) -> tuple[EnvState, Obs]:
        """Starts an episode in a new world. Consumes the key."""
        obs, state = self.env.reset_env(key, self.params)
        return strong_types(state), self._observed(obs)

    def step(self, key: Key, state: EnvState, action: Action) -> JaxStep:
        """One step. Consumes the key.

        `info` has for each achievement, at the end of an episode, 100 if it was reached.
        """
        obs, state, reward, _, info = self.env.step_env(key, state, action, self.params)
        # Craftax's `done` is also true at the limit; without one, only death and victory are left.
        endless = self.params.replace(max_timesteps=_NEVER)
        terminated = self.env.is_terminal(state, endless)
        truncated = state.timestep >= self.params.max_timesteps
        info = {name: value for name, value in info.items() if name != "discount"}
        return (
            strong_types(state),
            self._observed(obs),
            jnp.float32(reward),
            jnp.bool_(terminated),
            jnp.bool_(truncated),
            strong_types(info),
        )

    def render(self, state: EnvState) -> np.ndarray:
        """The part of the world that the agent sees, and what it carries."""
        picture = np.asarray(self._draw(state)).round().astype(np.uint8)
        return magnified(picture, 3)

    @functools.cached_property
    def _draw(self) -> Callable[[EnvState], Array]:
        package = type(self.env).__module__.rpartition(".envs.")[0]
        renderer = importlib.import_module(f"{package}.renderer")
        with _to_stderr():
            return jax.jit(renderer.make_craftax_pixel_renderer(_TILE))

    def _observed(self, obs: Array) -> Array:
        """Pixels as uint8: Craftax divides them by 255, four times the memory."""
        is_image = self.observation_space.dtype == np.uint8
        return jnp.round(obs * 255).astype(jnp.uint8) if is_image else obs.astype(jnp.float32)


def make(name: str, *, params: dict[str, Any] | None = None) -> CraftaxEnv:
    """The environment `name`, such as `Craftax-Classic-Symbolic-v1`.

    `params` overrides numbers in its default parameters: `{"max_timesteps": 1000}`. Raises
    `ConfigError` for unknown parameters and values that do not fit.
    """
    with _to_stderr():
        env = make_craftax_env_from_name(name, auto_reset=False)
    merged = with_numbers(f"craftax/{name}", env.default_params, params)
    require_positive_integer(
        f"craftax/{name} parameter max_timesteps", merged.max_timesteps, example=10_000
    )
    box = env.observation_space(merged)
    pixels = len(box.shape) == 3
    return CraftaxEnv(
        env,
        merged,
        spaces.Box(0, 255, box.shape, np.uint8) if pixels else spaces.Box(0, 1, box.shape),
        spaces.Discrete(env.num_actions),
        merged.max_timesteps,
    )


def _to_stderr() -> contextlib.AbstractContextManager[Any]:
    """Craftax prints while it loads pictures, and stdout may be read by a program."""
    return contextlib.redirect_stdout(sys.stderr)
