"""Wrappers that change observations, including `info["final_observation"]` with `auto_reset`."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium import spaces
from jax import Array

from rlkit.action_masks import ACTION_MASK, has_mask
from rlkit.envs.base import JaxStep
from rlkit.envs.jittable.casts import cast_obs
from rlkit.envs.jittable.wrappers import Wrapper, as_box
from rlkit.errors import SpaceError, require, require_positive_integer
from rlkit.ops.one_hots import one_hots
from rlkit.spaces import Space, check_observation_space, leaves
from rlkit.types import Action, EnvState, Key, Obs, PyTree

MASK_BY_METHOD = "give the mask by a method action_mask(state), not in the observation"


@dataclasses.dataclass(frozen=True)
class MappedObservation(Wrapper):
    """Every observation mapped by `_map`; the state is that of the wrapped environment."""

    def reset(self, key: Key) -> tuple[EnvState, Obs]:
        """Starts an episode; returns (state, obs). Consumes the key."""
        state, obs = self.env.reset(key)
        return state, self._map(obs)

    def step(self, key: Key, state: EnvState, action: Action) -> JaxStep:
        """One step. Consumes the key."""
        state, obs, reward, terminated, truncated, info = self.env.step(key, state, action)
        if "final_observation" in info:
            info = {**info, "final_observation": self._map(info["final_observation"])}
        return state, self._map(obs), reward, terminated, truncated, info

    def _map(self, obs: Obs) -> Obs:
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class FlattenObservation(MappedObservation):
    """Observations as one flat float32 vector: Boxes are ravelled, discrete values one-hot.

    The parts of a Dict are ordered by key (as JAX does), the parts of a Tuple keep their order.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check_observation_space(self.env.observation_space)
        require(
            not has_mask(self.env.observation_space),
            "FlattenObservation would hide the action mask among the rest",
            f"leave it out: networks read a Dict as it is; or {MASK_BY_METHOD}",
            SpaceError,
        )

    @property
    def observation_space(self) -> Space:
        """A Box with one axis; one-hot entries lie in [0, 1]."""
        return self._observation_space

    @functools.cached_property
    def _observation_space(self) -> Space:
        bounds = [_flat_bounds(leaf) for leaf in leaves(self.env.observation_space)]
        low, high = (np.concatenate(parts) for parts in zip(*bounds, strict=True))
        return spaces.Box(low, high, dtype=np.float32)

    def _map(self, obs: Obs) -> Array:
        parts = zip(leaves(self.env.observation_space), jax.tree.leaves(obs), strict=True)
        return jnp.concatenate([_flatten_leaf(space, x) for space, x in parts])


@dataclasses.dataclass(frozen=True)
class SelectObservation(MappedObservation):
    """Only some entries of a flat observation: what the agent does not see, it has to remember.

    `indices` count from 0, in the order that the agent sees.
    """

    indices: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        space = self.env.observation_space
        require(
            isinstance(space, spaces.Box) and len(space.shape) == 1,
            f"SelectObservation needs a Box with one axis, not {space}",
            _as_one_box(space),
            SpaceError,
        )
        size = as_box(space).shape[0]
        fits = [type(i) is int and 0 <= i < size for i in self.indices]
        require(
            bool(fits) and all(fits) and len(set(self.indices)) == len(fits),
            f"SelectObservation needs different indices from 0 to {size - 1}, got"
            f" {list(self.indices)}",
            "pass those of the entries that the agent sees, such as (0, 2)",
        )

    @property
    def observation_space(self) -> Space:
        """A Box with the bounds of those entries."""
        return self._observation_space

    @functools.cached_property
    def _observation_space(self) -> Space:
        box, chosen = as_box(self.env.observation_space), list(self.indices)
        return spaces.Box(box.low[chosen], box.high[chosen], dtype=box.dtype.type)

    def _map(self, obs: Obs) -> Array:
        return jnp.asarray(obs)[np.asarray(self.indices)]


class FrameStackState(struct.PyTreeNode, kw_only=True):
    """The wrapped environment's state and the last frames."""

    env: PyTree
    frames: Array  # shaped like the observation: oldest first along the last axis


@dataclasses.dataclass(frozen=True)
class FrameStack(Wrapper):
    """Stacks the last `num_frames` observations along the last axis (channels), oldest first.

    At the start of an episode, the first observation is repeated.
    """

    num_frames: int

    def __post_init__(self) -> None:
        super().__post_init__()
        space, num = self.env.observation_space, self.num_frames
        fits = isinstance(space, spaces.Box) and len(space.shape) >= 1
        require(
            fits,
            f"FrameStack needs a Box with an axis, not {space}",
            _as_one_box(space),
            SpaceError,
        )
        require_positive_integer("FrameStack num_frames", num, example=4)

    @property
    def observation_space(self) -> Space:
        """A Box whose last axis is `num_frames` times as long."""
        return self._observation_space

    @functools.cached_property
    def _observation_space(self) -> Space:
        box = as_box(self.env.observation_space)
        low, high = (
            np.concatenate([bound] * self.num_frames, axis=-1) for bound in (box.low, box.high)
        )
        return spaces.Box(low, high, dtype=box.dtype.type)

    def reset(self, key: Key) -> tuple[FrameStackState, Obs]:
        """Starts an episode; returns (state, obs). Consumes the key."""
        state, obs = self.env.reset(key)
        frames = self._repeat(obs)
        return FrameStackState(env=state, frames=frames), frames

    def step(self, key: Key, state: FrameStackState, action: Action) -> JaxStep:
        """One step. Consumes the key."""
        inner, obs, reward, terminated, truncated, info = self.env.step(key, state.env, action)
        if self.auto_reset:
            info = {
                **info,
                "final_observation": self._push(state.frames, info["final_observation"]),
            }
            frames = jnp.where(
                terminated | truncated, self._repeat(obs), self._push(state.frames, obs)
            )
        else:
            frames = self._push(state.frames, obs)
        return (
            FrameStackState(env=inner, frames=frames),
            frames,
            reward,
            terminated,
            truncated,
            info,
        )

    def inner_state(self, state: FrameStackState) -> EnvState:
        """The wrapped environment's state within `state`."""
        return state.env

    def _repeat(self, obs: Obs) -> Array:
        return jnp.concatenate(
            [cast_obs(obs, self.env.observation_space)] * self.num_frames, axis=-1
        )

    def _push(self, frames: Array, obs: Obs) -> Array:
        width = as_box(self.env.observation_space).shape[-1]
        return jnp.concatenate(
            [frames[..., width:], cast_obs(obs, self.env.observation_space)], axis=-1
        )


@dataclasses.dataclass(frozen=True)
class CastObservation(MappedObservation):
    """Casts every Box of the observation to `dtype`, without scaling; leaves discrete parts."""

    dtype: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        check_observation_space(self.env.observation_space)
        dtype, boxes = (
            _dtype(self.dtype),
            [x for x in leaves(self.env.observation_space) if isinstance(x, spaces.Box)],
        )
        require(
            bool(boxes),
            "CastObservation needs a Box in the observation space, got"
            f" {self.env.observation_space}",
            "leave CastObservation out",
            SpaceError,
        )
        if np.issubdtype(dtype, np.integer):
            limits = np.iinfo(dtype)
            for box in boxes:
                fits = bool((box.low >= limits.min).all() and (box.high <= limits.max).all())
                fix = "cast to float32, or declare narrower bounds"
                require(
                    fits,
                    f"{dtype} holds {limits.min} to {limits.max}, which {box} exceeds",
                    fix,
                    SpaceError,
                )

    @property
    def observation_space(self) -> Space:
        """The wrapped space with the new dtype."""
        return self._observation_space

    @functools.cached_property
    def _observation_space(self) -> Space:
        space = self.env.observation_space
        cast = _rebuild(lambda leaf: _cast_box(leaf, _dtype(self.dtype)), space)
        if not has_mask(space):
            return cast
        assert isinstance(space, spaces.Dict) and isinstance(cast, spaces.Dict)
        return spaces.Dict({**cast.spaces, ACTION_MASK: space.spaces[ACTION_MASK]})

    def _map(self, obs: Obs) -> Obs:
        return cast_obs(obs, self.observation_space)


def _as_one_box(space: Space) -> str:
    return MASK_BY_METHOD if has_mask(space) else "wrap the environment in FlattenObservation first"


def _flatten_leaf(space: Space, x: Array) -> Array:
    if isinstance(space, spaces.Discrete):
        return jax.nn.one_hot(x - int(space.start), int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        index = (x - jnp.asarray(space.start, x.dtype)).ravel()
        return one_hots(index, tuple(map(int, space.nvec.ravel())))
    return x.ravel().astype(jnp.float32)


def _flat_bounds(space: Space) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(space, spaces.Box):
        with np.errstate(over="ignore"):  # bounds beyond float32 become infinite
            return space.low.ravel().astype(np.float32), space.high.ravel().astype(np.float32)
    size = spaces.flatdim(space)
    return np.zeros(size, np.float32), np.ones(size, np.float32)


def _dtype(dtype: Any) -> np.dtype:
    try:
        parsed = np.dtype(dtype)
    except TypeError:
        parsed = None
    good = parsed is not None and parsed.kind in "fiu" and parsed.itemsize <= 4
    require(
        good,
        f"CastObservation cannot cast to {dtype!r}",
        "use float32, float16, or an integer type of at most 32 bits",
    )
    return np.dtype(dtype)


def _cast_box(space: Space, dtype: np.dtype) -> Space:
    if not isinstance(space, spaces.Box):
        return space
    with np.errstate(over="ignore"):
        return spaces.Box(space.low.astype(dtype), space.high.astype(dtype), dtype=dtype.type)


def _rebuild(function: Callable[[Space], Space], space: Space) -> Space:
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: _rebuild(function, part) for name, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_rebuild(function, part) for part in space.spaces])
    return function(space)
