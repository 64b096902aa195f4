"""Navix: MiniGrid's grids in JAX; `make` returns one as a `JaxEnv`."""

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from navix import observations  # pyright: ignore[reportAttributeAccessIssue]
from navix.entities import EntityIds  # pyright: ignore[reportMissingImports]
from navix.environments.registry import (  # pyright: ignore[reportMissingImports]
    make as registered,
)
from navix.rendering.cache import RenderingCache  # pyright: ignore[reportMissingImports]
from navix.rendering.registry import PALETTE  # pyright: ignore[reportMissingImports]

from rlkit.envs.base import JaxStep
from rlkit.envs.jittable.drawings import enlarged
from rlkit.errors import UnknownNameError, did_you_mean, require_positive_integer
from rlkit.ops.strong_types import strong_types
from rlkit.spaces import Space
from rlkit.types import Action, EnvState, Key, Obs

_SYMBOLS = ("symbolic", "symbolic_first_person")
_IMAGES = ("rgb", "rgb_first_person")
# Of each square: what it holds, its colour, and where the player heads or whether a door is open,
# closed or locked.
_CODES = (int(EntityIds.PLAYER) + 1, len(PALETTE.as_string()), 4)
_NO_CACHE = RenderingCache(patches=jnp.zeros((0,), jnp.uint8))


@dataclasses.dataclass(frozen=True, eq=False)  # hashed by identity: it holds arrays
class NavixEnv:
    """One of Navix's environments; its `Timestep` is the state."""

    env: Any
    observation_space: Space
    action_space: Space
    max_episode_steps: int
    render_fps: ClassVar[int] = 10

    def reset(self, key: Key) -> tuple[EnvState, Obs]:
        """Starts an episode. Consumes the key."""
        # Only images need the pictures that Navix would draw and keep in each state.
        cache = None if self._is_image else _NO_CACHE
        timestep = strong_types(self.env.reset(key, cache))
        return timestep, self._observed(timestep)

    def step(self, key: Key, state: EnvState, action: Action) -> JaxStep:
        """One step; its randomness comes from the key that Navix keeps in the state."""
        # Navix resets what has ended, in every step if it cannot rule that out.
        running = state.replace(step_type=jnp.zeros_like(state.step_type))
        timestep = strong_types(self.env.step(running, action))
        return (
            timestep,
            self._observed(timestep),
            jnp.float32(timestep.reward),
            timestep.is_termination(),
            timestep.t >= self.max_episode_steps,
            {},
        )

    def render(self, state: EnvState) -> np.ndarray:
        """The whole grid, also if the agent sees less."""
        return enlarged(np.asarray(self._draw(state.state)), 400)

    @property
    def _is_image(self) -> bool:
        return isinstance(self.observation_space, spaces.Box)

    def _observed(self, timestep: Any) -> Obs:
        """KeyCorridor's locked door has the code 254, which no other door has: it becomes 3."""
        obs = timestep.observation
        return obs if self._is_image else jnp.minimum(obs, jnp.array(_CODES, jnp.uint8) - 1)

    @functools.cached_property
    def _draw(self) -> Any:
        image = observations.rgb  # pyright: ignore[reportAttributeAccessIssue]
        return jax.jit(lambda state: image(state.replace(cache=RenderingCache.init(state.grid))))


def make(name: str, *, observation: str = "symbolic", max_steps: int = 100) -> NavixEnv:
    """The environment `name`, such as `Navix-Empty-5x5-v0`.

    `observation` names one of Navix's functions: `symbolic` (the whole grid, for each square three
    codes), `symbolic_first_person` (what is near the agent), `rgb` or `rgb_first_person` (images).
    `max_steps` is the time limit, by default Navix's. Raises `ConfigError` for arguments that do
    not fit.
    """
    known = (*_SYMBOLS, *_IMAGES)
    if observation not in known:
        raise UnknownNameError(
            f"navix/{name} has no observation {observation!r}; {did_you_mean(observation, known)}"
        )
    require_positive_integer(f"navix/{name} max_steps", max_steps, example=100)
    function = getattr(observations, observation)
    env = registered(name, max_steps=max_steps, observation_fn=function)
    shape = env.observation_space.shape
    space = (
        spaces.Box(0, 255, shape, np.uint8)
        if observation in _IMAGES
        else spaces.MultiDiscrete(np.broadcast_to(_CODES, shape).copy(), dtype=np.uint8)
    )
    return NavixEnv(env, space, spaces.Discrete(len(env.action_set)), max_steps)
