"""Jumanji's specs as gymnasium spaces, and its observations as elements of them."""

import math
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jumanji import specs  # pyright: ignore[reportAttributeAccessIssue]

from rlkit.action_masks import ACTION_MASK
from rlkit.envs.jittable.casts import cast_obs
from rlkit.spaces import Space
from rlkit.types import Obs

MOST_CODES = 40  # integers of more values count something: MMST has 36 nodes
MOST_INPUTS = 8192  # of one-hot vectors
SMALLEST_IMAGE = 8  # pixels a side; less is no image, whatever the number of its axes
NOT_OBSERVED = ("step_count",)  # time limits truncate, so it is no part of the task
LOWEST = {"position": -1}  # TSP begins nowhere, which its spec denies
HIGHEST = {  # of integers from 0 that have no bounds in Jumanji's specs
    "board": 31,
    "ghost_locations": 31,
    "pellet_locations": 31,
    "power_up_locations": 31,
}


def action_space_of(env: Any) -> tuple[Space, tuple[int, ...]]:
    """The action space, and if it is the product of several choices, how many each has.

    Such a product is a Discrete: Jumanji's masks of a piece and its place allow pairs of them. The
    choices of several agents have masks of their own, and are a MultiDiscrete.
    """
    spec, mask = env.action_spec, getattr(env.observation_spec, ACTION_MASK, None)
    if not np.issubdtype(spec.dtype, np.integer):
        low, high = (np.broadcast_to(x, spec.shape) for x in (spec.minimum, spec.maximum))
        return spaces.Box(low, high, dtype=np.float32), ()
    counts = tuple(int(n) + 1 for n in np.broadcast_to(spec.maximum, spec.shape).ravel())
    if len(counts) > 1 and mask is not None and mask.shape != counts:
        return spaces.MultiDiscrete(np.full(spec.shape, mask.shape[-1])), ()
    return spaces.Discrete(math.prod(counts)), counts if spec.shape else ()


def observation_space_of(spec: specs.Spec, name: str = "") -> Space:
    """The space of `observed`: Dicts, down to integers and floats."""
    if not isinstance(spec, specs.Array):
        return spaces.Dict(
            {part: observation_space_of(inner, part) for part, inner in _parts(spec)}
        )
    if name == ACTION_MASK:
        return spaces.MultiBinary(math.prod(spec.shape))
    low, high = _bounds(spec, name)
    if not _is_whole(spec) or not np.isfinite(high):
        return spaces.Box(low, high, _shape(spec), np.float32)
    count, start = int(high - low) + 1, int(low)
    if count > MOST_CODES or count * math.prod(spec.shape) > MOST_INPUTS:
        return spaces.Box(0, 1, _shape(spec), np.float32)
    if spec.shape == ():
        return spaces.Discrete(count, start=start)
    if (start, count) == (0, 2):
        return spaces.MultiBinary(spec.shape)
    return spaces.MultiDiscrete(np.full(spec.shape, count), start=np.full(spec.shape, start))


def observed(spec: specs.Spec, space: Space, value: Any, name: str = "") -> Obs:
    """An observation of Jumanji as an element of `space`."""
    if isinstance(space, spaces.Dict):
        return {
            part: observed(inner, space[part], getattr(value, part), part)
            for part, inner in _parts(spec)
        }
    if isinstance(space, spaces.Box):
        low, high = _bounds(spec, name)
        if _is_whole(spec) and np.isfinite(high):  # a count: as its share
            value = (value - low) / (high - low)
    return cast_obs(jnp.reshape(value, space.shape), space)


def _parts(spec: specs.Spec) -> Iterator[tuple[str, specs.Spec]]:
    for name, part in vars(spec).items():
        if isinstance(part, specs.Spec) and name not in NOT_OBSERVED:
            yield name, part


def _is_whole(spec: specs.Array) -> bool:
    return not np.issubdtype(spec.dtype, np.floating)


def _bounds(spec: specs.Array, name: str) -> tuple[float, float]:
    """The lowest and the highest number; infinite where there is none."""
    if isinstance(spec, specs.BoundedArray):
        low, high = float(np.asarray(spec.minimum).min()), float(np.asarray(spec.maximum).max())
        return LOWEST.get(name, low), high
    return (0.0, HIGHEST[name]) if name in HIGHEST else (-np.inf, np.inf)


def _shape(spec: specs.Array) -> tuple[int, ...]:
    """That of the Box: three axes are kept if they are an image, since networks convolve these."""
    is_image = len(spec.shape) == 3 and min(spec.shape[:2]) >= SMALLEST_IMAGE
    return spec.shape if is_image or len(spec.shape) < 3 else (math.prod(spec.shape),)
