"""The two contracts of environments: `EnvAdapter`, what algorithms train on, and `JaxEnv`, what
users write.
"""

from typing import Any, Protocol, runtime_checkable

from jax import Array

from rlkit.spaces import Space
from rlkit.types import EnvState, Key, Obs, PyTree, TimeStep


@runtime_checkable
class EnvAdapter(Protocol):
    """A batch of `num_envs` environments that reset themselves when an episode ends.

    Jittable adapters are pure: all state is in `EnvState`, `reset` and `step` may be traced. Host
    adapters (`is_jittable = False`) are called from Python. Actions in a Box are clipped to its
    bounds by the adapter, so agents may hand over unbounded samples.
    """

    @property
    def num_envs(self) -> int:
        """How many environments step together."""
        ...

    @property
    def is_jittable(self) -> bool:
        """Whether `reset` and `step` are pure and may be traced."""
        ...

    @property
    def observation_space(self) -> Space:
        """Of ONE environment."""
        ...

    @property
    def action_space(self) -> Space:
        """Of ONE environment."""
        ...

    @property
    def max_episode_steps(self) -> int | None:
        """Time limit that the environment enforces; `None`: there is none."""
        ...

    @property
    def spec(self) -> tuple[str, dict[str, Any]] | None:
        """(registry id, keyword arguments) that rebuild it with `make_env`; `None`: built from
        Python objects.
        """
        ...

    def reset(self, key: Key) -> tuple[EnvState, Obs]:
        """New episodes everywhere: (state, observations [N, ...]); the key is consumed."""
        ...

    def step(self, key: Key, state: EnvState, action: Array) -> tuple[EnvState, TimeStep]:
        """One step of every environment, resets included; the key is consumed. `action` is [N,
        ...].
        """
        ...

    def close(self) -> None:
        """Frees what the adapter holds outside its state."""
        ...


@runtime_checkable
class JaxEnv(Protocol):
    """ONE jittable environment without batching and without resetting itself; `vectorize` makes an
    `EnvAdapter` of it.

    Optional attributes:

    - `max_episode_steps: int`: the time limit that `step` enforces through `truncated` (to add one,
      wrap in `TimeLimit`).
    - `params` and `replace_params(params) -> JaxEnv`: a pytree of numbers that become traced leaves
      of the environment state, so that changing them recompiles nothing. `params` without
      `replace_params` is the environment's own affair.
    - `auto_reset = True`: `step` resets by itself; then `info["final_observation"]` must hold the
      true successor.
    """

    @property
    def observation_space(self) -> Space:
        """A gymnasium space; the values of a Dict are a dict, those of a Tuple a tuple."""
        ...

    @property
    def action_space(self) -> Space:
        """Discrete, MultiDiscrete or a Box of floats."""
        ...

    def reset(self, key: Key) -> tuple[Any, Obs]:
        """(state, observation) of a new episode; the key is consumed."""
        ...

    def step(
        self, key: Key, state: Any, action: Array
    ) -> tuple[Any, Obs, Array, Array, Array, dict[str, Array]]:
        """(state, observation, reward, terminated, truncated, info) after `action`; the key is
        consumed.
        """
        ...


def traced_params(env: Any) -> PyTree:
    """The `params` of an environment that also has `replace_params`, `()` of any other."""
    return getattr(env, "params", ()) if callable(getattr(env, "replace_params", None)) else ()
