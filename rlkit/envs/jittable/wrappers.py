"""Wrappers: a `JaxEnv` around a `JaxEnv`; here those of time and actions. Wrap first, `vectorize`
last.

All keep the parameters, the time limit and the `auto_reset` promise of what they wrap; `TimeLimit`
alone refuses environments that reset themselves, because it could not make them.
"""

import dataclasses
import functools
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium import spaces
from jax import Array

from rlkit.envs.base import EnvAdapter, JaxEnv, traced_params
from rlkit.errors import EnvContractError, SpaceError, require
from rlkit.spaces import Space, check_action_space
from rlkit.types import Key, Obs, PyTree

Step = tuple[Any, Obs, Array, Array, Array, dict[str, Array]]
W = TypeVar("W", bound="Wrapper")


@dataclasses.dataclass(frozen=True)
class Wrapper:
    """What every wrapper hands through unchanged; holds no behaviour of its own."""

    env: JaxEnv

    @property
    def params(self) -> PyTree:
        """Traced numbers of the wrapped environment, `()` where it has none."""
        return traced_params(self.env)

    @property
    def auto_reset(self) -> bool:
        """Whether the wrapped environment resets itself."""
        return getattr(self.env, "auto_reset", False)

    def replace_params(self: W, params: PyTree) -> W:
        """The same environment with other numbers."""
        return dataclasses.replace(self, env=self.env.replace_params(params))  # pyright: ignore[reportAttributeAccessIssue]


class TimeLimitState(struct.PyTreeNode, kw_only=True):
    """The wrapped environment's state, and the steps since its reset."""

    env: PyTree
    time: Array  # [] int32


@dataclasses.dataclass(frozen=True)
class TimeLimit(Wrapper):
    """Truncates episodes after `max_episode_steps` steps; a step that also terminates says both."""

    max_episode_steps: int

    def __post_init__(self) -> None:
        check_wrapped(self)
        limit, inner = self.max_episode_steps, getattr(self.env, "max_episode_steps", None)
        require(
            isinstance(limit, int) and not isinstance(limit, bool) and limit >= 1,
            f"TimeLimit max_episode_steps must be a positive integer, got {limit!r}",
            "pass max_episode_steps=500, for instance",
        )
        require(
            inner is None or limit <= inner,
            f"TimeLimit({limit}) is never reached: {type(self.env).__name__} stops after {inner}"
            " steps itself",
            "raise the inner limit (Gymnax: params={'max_steps_in_episode': ...}) or leave"
            " TimeLimit out",
        )
        if self.auto_reset:
            raise EnvContractError(
                f"TimeLimit cannot cut {type(self.env).__name__}: it resets itself"
                " (auto_reset=True) and would not know; set its own limit (Gymnax:"
                " params={'max_steps_in_episode': ...})"
            )

    @property
    def observation_space(self) -> Space:
        """That of the wrapped environment."""
        return self.env.observation_space

    @property
    def action_space(self) -> Space:
        """That of the wrapped environment."""
        return self.env.action_space

    def reset(self, key: Key) -> tuple[TimeLimitState, Obs]:
        """(state, obs) of a new episode; the key is consumed."""
        state, obs = self.env.reset(key)
        return TimeLimitState(env=state, time=jnp.int32(0)), obs

    def step(self, key: Key, state: TimeLimitState, action: Array) -> Step:
        """One step; the key is consumed."""
        inner, obs, reward, terminated, truncated, info = self.env.step(key, state.env, action)
        time = state.time + 1
        truncated = truncated | (time >= self.max_episode_steps)
        return TimeLimitState(env=inner, time=time), obs, reward, terminated, truncated, info


@dataclasses.dataclass(frozen=True)
class RescaleAction(Wrapper):
    """Actions in [`low`, `high`], mapped affinely to the bounds of each dimension of the
    environment's Box.
    """

    low: float = -1.0
    high: float = 1.0

    def __post_init__(self) -> None:
        check_wrapped(self)
        space = self.env.action_space
        require(
            isinstance(space, spaces.Box),
            f"RescaleAction needs a Box, not {space}",
            "leave it out",
            SpaceError,
        )
        check_action_space(space)
        box = as_box(space)
        require(
            box.is_bounded(),
            f"RescaleAction needs finite bounds, not {space}",
            "give the Box bounds",
            SpaceError,
        )
        ordered = bool(np.isfinite([self.low, self.high]).all() and self.low < self.high)
        require(
            ordered,
            f"RescaleAction needs finite low < high, got {self.low!r} and {self.high!r}",
            "pass low=-1, high=1",
        )

    @property
    def observation_space(self) -> Space:
        """That of the wrapped environment."""
        return self.env.observation_space

    @property
    def max_episode_steps(self) -> int | None:
        """That of the wrapped environment."""
        return getattr(self.env, "max_episode_steps", None)

    @functools.cached_property
    def action_space(self) -> Space:
        """Box(low, high) in the wrapped shape and dtype."""
        box = as_box(self.env.action_space)
        return spaces.Box(self.low, self.high, box.shape, box.dtype.type)

    def reset(self, key: Key) -> tuple[Any, Obs]:
        """(state, obs) of a new episode; the key is consumed."""
        return self.env.reset(key)

    def step(self, key: Key, state: Any, action: Array) -> Step:
        """One step with an action in [low, high]; the key is consumed."""
        box = as_box(self.env.action_space)
        share = (action - self.low) / (self.high - self.low)
        # The two products meet both bounds exactly; the clip takes what rounding adds between them.
        inner = jnp.clip(box.low * (1 - share) + box.high * share, box.low, box.high)
        return self.env.step(key, state, inner.astype(action.dtype))


def check_wrapped(wrapper: Wrapper) -> None:
    """Raises `EnvContractError` unless `wrapper` is around a single environment with spaces."""
    name, env = type(wrapper).__name__, wrapper.env
    if isinstance(env, EnvAdapter):
        raise EnvContractError(
            f"{name} wraps one environment, not {type(env).__name__} of {env.num_envs}; wrap first,"
            " then vectorize"
        )
    if isinstance(env, type) or not isinstance(env, JaxEnv):
        found = env.__name__ + " (the class)" if isinstance(env, type) else type(env).__name__
        raise EnvContractError(
            f"{name} wraps a JaxEnv, not {found}; pass an object with reset, step,"
            " observation_space and action_space"
        )


def as_box(space: Space) -> spaces.Box:
    """`space`, known to be a Box."""
    assert isinstance(space, spaces.Box)
    return space
