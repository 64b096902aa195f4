"""`JaxEnv` wrappers for time limits, actions and what you like. Wrap first, `vectorize` last.

All wrappers keep the parameters, the time limit and the `auto_reset` flag of the wrapped
environment. `TimeLimit` refuses environments that reset themselves, because it cannot trigger their
resets.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium import spaces
from jax import Array
from jax.core import Tracer

from rlkit.envs.base import EnvAdapter, JaxEnv, JaxStep, traced_params
from rlkit.errors import EnvContractError, SpaceError, require, require_positive_integer
from rlkit.protocols import follows
from rlkit.spaces import Space, check_action_space
from rlkit.types import Action, EnvState, Key, Obs, PyTree

W = TypeVar("W", bound="AroundEnv")


@dataclasses.dataclass(frozen=True)
class AroundEnv:
    """What every wrapper passes through from the wrapped environment."""

    env: JaxEnv

    @property
    def observation_space(self) -> Space:
        """That of the wrapped environment."""
        return self.env.observation_space

    @property
    def action_space(self) -> Space:
        """That of the wrapped environment."""
        return self.env.action_space

    @property
    def params(self) -> PyTree:
        """Traced parameters of the wrapped environment, `()` if it has none."""
        return traced_params(self.env)

    @property
    def auto_reset(self) -> bool | None:
        """Whether the wrapped environment resets itself; None if it does not say."""
        return getattr(self.env, "auto_reset", None)

    @property
    def non_finite(self) -> str:
        """What NaN and infinity do in the wrapped environment."""
        return getattr(self.env, "non_finite", "raise")

    @property
    def action_mask(self) -> Callable[[EnvState], Array]:
        """That of the wrapped environment; raises `AttributeError` if it has none."""
        env: Any = self.env
        inner: Callable[[EnvState], Array] | None = getattr(env, "action_mask", None)
        if not callable(inner):
            raise AttributeError(f"{type(self.env).__name__} has no method action_mask")
        return lambda state: inner(self.inner_state(state))

    def replace_params(self: W, params: PyTree) -> W:
        """The same environment with other parameters."""
        return dataclasses.replace(self, env=self.env.replace_params(params))  # pyright: ignore[reportAttributeAccessIssue]

    def inner_state(self, state: EnvState) -> EnvState:
        """The wrapped environment's state within `state`."""
        return state


@dataclasses.dataclass(frozen=True)
class Wrapper(AroundEnv):
    """A wrapper that changes nothing: derive your own from it, and override what it changes.

    If its state holds more than that of the wrapped environment, override `inner_state` too. Where
    the wrapped environment resets itself (`auto_reset`), its `step` returns the first observation
    of the next episode, and the last one in `info["final_observation"]`: change both. A field that
    takes the place of a property, such as `max_episode_steps`, needs a default. Raises
    `EnvContractError` unless it wraps a single `JaxEnv`.
    """

    def __post_init__(self) -> None:
        check_wrapped(self)

    @property
    def max_episode_steps(self) -> int | None:
        """That of the wrapped environment."""
        return getattr(self.env, "max_episode_steps", None)

    def reset(self, key: Key) -> tuple[EnvState, Obs]:
        """Starts an episode; returns (state, obs). Consumes the key."""
        return self.env.reset(key)

    def step(self, key: Key, state: EnvState, action: Action) -> JaxStep:
        """One step. Consumes the key."""
        return self.env.step(key, state, action)


class TimeLimitState(struct.PyTreeNode, kw_only=True):
    """The wrapped environment's state and its steps since the last reset."""

    env: PyTree
    time: Array  # [] int32


@dataclasses.dataclass(frozen=True)
class TimeLimit(AroundEnv):
    """Truncates episodes after `max_episode_steps` steps; a last step may also be `terminated`."""

    max_episode_steps: int

    def __post_init__(self) -> None:
        check_wrapped(self)
        limit, inner = self.max_episode_steps, getattr(self.env, "max_episode_steps", None)
        require_positive_integer("TimeLimit max_episode_steps", limit, example=500)
        object.__setattr__(self, "max_episode_steps", int(limit))  # not one of NumPy's
        # A limit among the parameters is traced when a run replaces them.
        is_known = not isinstance(inner, Tracer)
        require(
            inner is None or not is_known or limit <= inner,
            f"TimeLimit({limit}) is never reached: {type(self.env).__name__} stops after {inner}"
            " steps",
            "raise the inner limit (Gymnax: params={'max_steps_in_episode': ...}) or leave"
            " TimeLimit out",
        )
        if self.auto_reset:
            raise EnvContractError(
                f"TimeLimit cannot truncate {type(self.env).__name__}, which resets itself"
                " (auto_reset=True); set its own limit (Gymnax: params={'max_steps_in_episode':"
                " ...})"
            )

    def reset(self, key: Key) -> tuple[TimeLimitState, Obs]:
        """Starts an episode; returns (state, obs). Consumes the key."""
        state, obs = self.env.reset(key)
        return TimeLimitState(env=state, time=jnp.int32(0)), obs

    def step(self, key: Key, state: TimeLimitState, action: Action) -> JaxStep:
        """One step. Consumes the key."""
        inner, obs, reward, terminated, truncated, info = self.env.step(key, state.env, action)
        time = state.time + 1
        truncated = truncated | (time >= self.max_episode_steps)
        return TimeLimitState(env=inner, time=time), obs, reward, terminated, truncated, info

    def inner_state(self, state: TimeLimitState) -> EnvState:
        """The wrapped environment's state within `state`."""
        return state.env


@dataclasses.dataclass(frozen=True)
class RescaleAction(Wrapper):
    """Actions in [`low`, `high`], mapped linearly to the bounds of the environment's Box."""

    low: float = -1.0
    high: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        space = self.env.action_space
        require(
            isinstance(space, spaces.Box),
            f"RescaleAction needs a Box, not {space}",
            "leave RescaleAction out",
            SpaceError,
        )
        check_action_space(space)
        box = as_box(space)
        require(
            box.is_bounded(),
            f"RescaleAction needs finite bounds, not {space}",
            "declare bounds in the action space",
            SpaceError,
        )
        ordered = bool(np.isfinite([self.low, self.high]).all() and self.low < self.high)
        require(
            ordered,
            f"RescaleAction needs finite low < high, got {self.low!r} and {self.high!r}",
            "pass low=-1, high=1",
        )

    @property
    def action_space(self) -> Space:
        """Box(low, high) with the wrapped shape and dtype."""
        return self._action_space

    @functools.cached_property
    def _action_space(self) -> Space:
        box = as_box(self.env.action_space)
        return spaces.Box(self.low, self.high, box.shape, box.dtype.type)

    def step(self, key: Key, state: EnvState, action: Array) -> JaxStep:
        """One step with an action in [low, high]. Consumes the key."""
        box = as_box(self.env.action_space)
        share = (action - self.low) / (self.high - self.low)
        # The two products hit both bounds exactly; the clip removes rounding errors in between.
        inner = jnp.clip(box.low * (1 - share) + box.high * share, box.low, box.high)
        return self.env.step(key, state, inner.astype(action.dtype))


def check_wrapped(wrapper: AroundEnv) -> None:
    """Raises `EnvContractError` unless `wrapper` wraps a single environment with spaces."""
    name, env = type(wrapper).__name__, wrapper.env
    if follows(env, EnvAdapter):
        raise EnvContractError(
            f"{name} wraps a single environment, got a {type(env).__name__} of {env.num_envs};"
            " wrap first, then vectorize; its `env` is the single one, if it has one"
        )
    if isinstance(env, type) or not follows(env, JaxEnv):
        actual = env.__name__ + " (the class)" if isinstance(env, type) else type(env).__name__
        raise EnvContractError(
            f"{name} wraps a JaxEnv, got {actual}; pass an instance with reset, step,"
            " observation_space and action_space"
        )


def as_box(space: Space) -> spaces.Box:
    """Narrows the type of a space that is known to be a Box."""
    assert isinstance(space, spaces.Box)
    return space
