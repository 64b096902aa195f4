"""Jumanji: puzzles, packing, routing and games, most of them with action masks."""

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import jumanji  # Jumanji's own: absolute imports do not find this file
import matplotlib.pyplot as plt
import numpy as np

from rlkit.action_masks import ACTION_MASK, num_choices
from rlkit.envs.base import JaxStep
from rlkit.envs.jittable.wrappers import TimeLimit
from rlkit.envs.suites.jumanji_spaces import action_space_of, observation_space_of, observed
from rlkit.errors import ConfigError, require_positive_integer
from rlkit.ops.strong_types import strong_types
from rlkit.spaces import Space
from rlkit.types import Action, EnvState, Key, Obs

DEFAULT_LIMIT = 10_000  # steps, where Jumanji has no limit: evaluations need one


@dataclasses.dataclass(frozen=True)
class JumanjiEnv:
    """An environment of Jumanji as a `JaxEnv`, several agents steered as one.

    What it ends is `terminated`, so its own time limit has to be out of reach.
    """

    env: Any
    observation_space: Space
    action_space: Space
    choices: tuple[int, ...]
    """How many each of the choices has that one Discrete action makes; () if it makes one."""
    render_fps: int = 5
    auto_reset: bool | None = None  # False: says that no end is a start

    def reset(self, key: Key) -> tuple[EnvState, Obs]:
        """Starts an episode; returns (state, obs). Consumes the key."""
        state, timestep = self.env.reset(jax.random.key_data(key))
        return strong_types(state), self._observed(timestep.observation)

    def step(self, key: Key, state: EnvState, action: Action) -> JaxStep:
        """One step. What is random comes from the state, not from the key."""
        if self.choices:
            action = jnp.stack(jnp.unravel_index(action, self.choices))
        state, timestep = self.env.step(state, action.astype(self.env.action_spec.dtype))
        return (
            strong_types(state),
            self._observed(timestep.observation),
            timestep.reward.sum().astype(jnp.float32),
            timestep.last(),
            jnp.bool_(False),
            timestep.extras,
        )

    def render(self, state: EnvState) -> np.ndarray:
        """Jumanji's own picture of a state, without a window."""
        backend = plt.get_backend()
        plt.switch_backend("agg")
        try:
            with plt.rc_context({"figure.dpi": 50}), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")
                self.env.render(jax.tree.map(jnp.asarray, state))
            canvas: Any = plt.gcf().canvas
            canvas.draw()
            return np.array(canvas.buffer_rgba())[..., :3]
        finally:
            plt.switch_backend(backend)

    def _observed(self, observation: Any) -> Obs:
        obs: Any = observed(self.env.observation_spec, self.observation_space, observation)
        if ACTION_MASK in obs:
            mask = obs[ACTION_MASK].reshape(-1, num_choices(self.action_space)[0])
            # who has nothing left to do, such as an agent of MMST that is done, may do anything
            obs[ACTION_MASK] = jnp.where(mask.any(axis=-1, keepdims=True), mask, 1).reshape(-1)
        return obs


def make(name: str, *, time_limit: int | None = None, **arguments: Any) -> TimeLimit:
    """The environment `name`; `arguments` go to Jumanji's constructor of it.

    `time_limit` takes the place of its own, or of 10,000 steps if it has none.
    """
    require_positive_integer("time_limit", time_limit, example=100, none="its own")
    env = _made(name, arguments)
    own = getattr(env, "time_limit", None)
    limit = time_limit or own or DEFAULT_LIMIT
    if own is not None:  # out of reach, so that where it ends, the task does
        env = _made(name, {**arguments, "time_limit": limit + 1})
    action_space, choices = action_space_of(env)
    space = observation_space_of(env.observation_spec)
    # GraphColoring counts nodes, and its last state looks like a first one.
    auto_reset = False if name.startswith("GraphColoring") else None
    return TimeLimit(JumanjiEnv(env, space, action_space, choices, auto_reset=auto_reset), limit)


def _made(name: str, arguments: dict[str, Any]) -> Any:
    before = np.random.get_state()  # which MMST's viewer sets
    try:
        return jumanji.make(name, **arguments)
    except Exception as error:  # constructors fail in their own ways
        raise ConfigError(
            f"jumanji/{name} cannot be made with {arguments}: {error}; pass what Jumanji's"
            " constructor takes, or leave it out"
        ) from error
    finally:
        np.random.set_state(before)
