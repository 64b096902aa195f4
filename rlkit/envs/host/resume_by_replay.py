"""A wrapper for environments that cannot say where they are. Must not import JAX."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlkit.envs.host.actions import map_parts
from rlkit.errors import EnvStateError


class ResumeByReplay(gymnasium.Wrapper):
    """Saves an environment as its random generator at the last reset, and the actions since.

    Loading plays these actions again, so it takes as long as they did. The environment, with the
    wrappers inside, must begin every episode afresh, draw random numbers from `self.np_random`
    only, and be at no other place than its actions brought it to. `check_env` finds most of those
    that are not so.
    """

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self._start: Any = None  # the seed of the episode, or the state of the generator before it
        self._actions: list[Any] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode. rlkit passes no `options`, and they are not saved."""
        self._start = self.np_random.bit_generator.state if seed is None else seed
        self._actions = []
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step."""
        self._actions.append(map_parts(np.array, action))
        return self.env.step(action)

    def get_state(self) -> dict[str, Any]:
        """How the episode began, and its actions."""
        return {"start": self._start, "actions": list(self._actions)}

    def set_state(self, state: Any) -> None:
        """Plays a saved episode up to where it was. Raises `EnvStateError` for what is none."""
        fits = (
            isinstance(state, dict)
            and state.keys() == {"start", "actions"}
            and isinstance(state["start"], (int, dict))
            and isinstance(state["actions"], list)
        )
        if not fits:
            raise EnvStateError("it needs the start of an episode and a list of actions")
        start, actions = state["start"], state["actions"]
        if not all(_fits(self.action_space, action) for action in actions):
            raise EnvStateError(f"it has actions that are none of {self.action_space}")
        if isinstance(start, dict):
            self.np_random.bit_generator.state = start
        self.reset(seed=None if isinstance(start, dict) else start)
        for action in actions:
            self.step(map_parts(lambda x: x[()], action))  # numbers, not arrays of no axes


def _fits(space: spaces.Space, action: Any) -> bool:
    """Whether this may be a saved action; rescaled ones overshoot bounds a little."""
    if isinstance(space, spaces.Dict):
        is_whole = isinstance(action, dict) and action.keys() == space.spaces.keys()
        return is_whole and all(_fits(own, action[name]) for name, own in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        is_whole = isinstance(action, tuple) and len(action) == len(space.spaces)
        return is_whole and all(map(_fits, space.spaces, action))
    if not isinstance(action, np.ndarray):
        return False
    if isinstance(space, spaces.Box):
        return action.shape == space.shape and action.dtype.kind == "f"
    return space.contains(action[()])
