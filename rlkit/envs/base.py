"""Environment protocols: algorithms train on an `EnvAdapter`, users write a `JaxEnv`."""

from typing import Any, Protocol, runtime_checkable

from jax import Array

from rlkit.spaces import Space
from rlkit.types import Action, EnvState, Key, Obs, PyTree, TimeStep

EnvSpec = tuple[str, dict[str, Any]]  # (registry id, keyword arguments)
# (state, observation, reward, terminated, truncated, info), of one environment
JaxStep = tuple[EnvState, Obs, Array, Array, Array, dict[str, Array]]


@runtime_checkable
class EnvAdapter(Protocol):
    """A batch of `num_envs` environments that reset themselves when an episode ends.

    Jittable adapters are pure: all state is in `EnvState`, `reset` and `step` may be traced. Host
    adapters (`is_jittable = False`) are called from Python. Actions in a Box are clipped to its
    bounds by the adapter, so agents may pass unbounded samples.
    """

    @property
    def num_envs(self) -> int:
        """Number of environments that step together."""
        ...

    @property
    def is_jittable(self) -> bool:
        """Whether `reset` and `step` are pure and may be traced."""
        ...

    @property
    def observation_space(self) -> Space:
        """Of a single environment."""
        ...

    @property
    def action_space(self) -> Space:
        """Of a single environment."""
        ...

    @property
    def max_episode_steps(self) -> int | None:
        """Time limit that the environment enforces; `None` if there is none."""
        ...

    @property
    def spec(self) -> EnvSpec | None:
        """What `make_env` needs to rebuild it; `None` without an id."""
        ...

    def reset(self, key: Key) -> tuple[EnvState, Obs]:
        """Starts episodes in all environments: (state, observations [N, ...]). Consumes the key."""
        ...

    def step(self, key: Key, state: EnvState, action: Action) -> tuple[EnvState, TimeStep]:
        """Steps every environment, resets included; `action` is [N, ...]. Consumes the key."""
        ...

    def close(self) -> None:
        """Frees the resources that the adapter holds outside its state."""
        ...


@runtime_checkable
class JaxEnv(Protocol):
    """A single jittable environment, without batching or resets; `vectorize` adds both.

    Optional attributes:

    - `max_episode_steps: int`: the time limit that `step` enforces through `truncated` (`TimeLimit`
      adds one).
    - `params` and `replace_params(params) -> JaxEnv`: a pytree of numbers that become traced leaves
      of the environment state, so that changing them does not recompile. `params` without
      `replace_params` is ignored.
    - `render(state) -> [H, W, 3] uint8`: a picture of a state, for videos; called from Python with
      NumPy arrays. `render_fps: int`: how many make a second.
    - `action_mask(state) -> [A]`: which actions the state allows, 1 or True, for Discrete and
      MultiDiscrete actions; `vectorize` adds it to the observation (`rlkit.action_masks`).
    - `auto_reset = True`: `step` resets by itself, and `info["final_observation"]` holds the true
      successor. False says to `check_env` that it does not, even if an end looks like a start.
    - `non_finite`: what NaN or infinity in an observation or reward does. "raise" (the default)
      ends the run with an error; "reset" ends the episode there, `terminated` and with reward 0,
      and is counted.
    """

    @property
    def observation_space(self) -> Space:
        """A gymnasium space; observations of a Dict are dicts, those of a Tuple are tuples."""
        ...

    @property
    def action_space(self) -> Space:
        """Discrete, MultiDiscrete, a floating-point Box, or a Dict or Tuple of them: actions are
        then dicts or tuples.
        """
        ...

    def reset(self, key: Key, /) -> tuple[EnvState, Obs]:
        """Starts an episode: (state, observation). Consumes the key."""
        ...

    def step(self, key: Key, state: EnvState, action: Action, /) -> JaxStep:
        """One step: (state, observation, reward, terminated, truncated, info). Consumes the key."""
        ...


def env_name(env: object) -> str:
    """What a user calls an environment: its id, else its `name`, else the class inside wrappers."""
    spec: Any = getattr(env, "spec", None)
    found = spec[0] if isinstance(spec, tuple) and spec else getattr(spec, "id", None)
    if isinstance(found, str):
        return found
    name = getattr(env, "name", None)
    if isinstance(name, str) and name:
        return name
    inner = getattr(env, "env", None)
    return type(env).__name__ if inner is None else env_name(inner)


def without_resets(env: EnvAdapter) -> EnvAdapter:
    """The same environments for their first episodes alone, if that is less to compile.

    What they return after the end of an episode means nothing.
    """
    first_episodes = getattr(env, "first_episodes", None)
    return env if first_episodes is None else first_episodes


def traced_params(env: object) -> PyTree:
    """The `params` of an environment that has `replace_params`, otherwise `()`."""
    return getattr(env, "params", ()) if callable(getattr(env, "replace_params", None)) else ()
