"""Checks, shapes and dtypes of gymnasium spaces, and sampling with JAX keys."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from rlkit.action_masks import mask_in, num_choices
from rlkit.errors import SpaceError, require
from rlkit.ops.choices import allowed, has_no_choice, random_indices
from rlkit.types import Action, PyTree

Space = spaces.Space
COMPOSITE = (spaces.Dict, spaces.Tuple)
_UNBOUNDED = 1e30


def check_action_space(space: Space, path: str = "action space") -> None:
    """Raises `SpaceError` unless `actor_critic` supports the action space.

    Supported are Discrete, flat MultiDiscrete, float Box with low < high, and Dict or Tuple of
    them.
    """
    if isinstance(space, COMPOSITE):
        _check_parts(check_action_space, space, path)
        return
    if isinstance(space, spaces.MultiBinary):
        raise SpaceError(
            f"{path} {space} is not supported; use MultiDiscrete([2] * {math.prod(space.shape)})"
        )
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.Box):
        raise SpaceError(
            f"{path} {space} is not supported; use Discrete, MultiDiscrete, Box, Dict or Tuple"
            " (with a wrapper)"
        )
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim != 1:
        raise SpaceError(
            f"{path} {space} has {space.nvec.ndim} axes; flatten it to MultiDiscrete([n_1, n_2,"
            " ...])"
        )
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        low, high = bounds(space)
        room = np.iinfo(jax_dtype(space))
        require(
            int(np.min(low)) >= room.min and int(np.max(high)) <= room.max,
            f"{path} {space} has actions that do not fit into {room.dtype}, which JAX uses",
            "count from 0, use fewer actions, or add the rest inside of the environment",
            SpaceError,
        )
    if isinstance(space, spaces.Box):
        _require_elements(space, path)
        if not np.issubdtype(space.dtype, np.floating):
            raise SpaceError(
                f"{path} {space} is a Box of {space.dtype}; use MultiDiscrete, or a Box of floats"
            )
        if not np.all(space.low < space.high):
            raise SpaceError(f"{path} {space} needs low < high everywhere; fix its bounds")


def check_observation_space(space: Space, path: str = "observation space") -> None:
    """Raises `SpaceError` unless networks support the observation space.

    Supported are Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of them.
    """
    if isinstance(space, COMPOSITE):
        _check_parts(check_observation_space, space, path)
    elif not isinstance(
        space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    ):
        raise SpaceError(
            f"{path} {space} is not supported; use Box, Discrete, MultiDiscrete, MultiBinary, Dict"
            " or Tuple"
        )
    else:
        _require_elements(space, path)


def _check_parts(check: Callable[[Space, str], None], space: Space, path: str) -> None:
    """Calls `check` with every part of a Dict or Tuple, and its path.

    Raises `SpaceError` if there is no part, or if a name in a Dict is not text.
    """
    is_dict = isinstance(space, spaces.Dict)
    parts = dict(space.spaces if is_dict else enumerate(space.spaces))  # pyright: ignore[reportAttributeAccessIssue]
    unnamed = next((name for name in parts if is_dict and not isinstance(name, str)), None)
    require(
        unnamed is None,
        f"{path} has a part called {unnamed!r}, which is no text",
        "give each part of a Dict a name, such as 'jump', or use a Tuple",
        SpaceError,
    )
    require(
        bool(parts),
        f"{path} {space} holds nothing",
        "give it at least one part, or leave it out",
        SpaceError,
    )
    for name, part in parts.items():
        check(part, f"{path}[{name!r}]")


def _require_elements(space: Space, path: str) -> None:
    if 0 in (space.shape or ()):
        raise SpaceError(
            f"{path} {space} has shape {space.shape} and so holds nothing; give it at least one"
            " element, or leave it out"
        )


def map_space(function: Callable[[Any], PyTree], space: Space) -> PyTree:
    """Maps `function` over the leaf spaces, in the pytree structure of its elements."""
    if isinstance(space, spaces.Dict):
        return {name: map_space(function, part) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(map_space(function, part) for part in space.spaces)
    return function(space)


def leaf_tree(space: Space) -> PyTree:
    """The leaf spaces, in the pytree structure of the space's elements."""
    return map_space(lambda leaf: leaf, space)


def leaves(space: Space) -> list[Space]:
    """The leaf spaces, in the order of `jax.tree.leaves` of an element."""
    return jax.tree.leaves(leaf_tree(space))


def has_floats(space: Space) -> bool:
    """Whether elements hold numbers that normalisation changes: it leaves integers alone."""
    return any(np.issubdtype(leaf.dtype, np.floating) for leaf in leaves(space))


def example(space: Space, batch_shape: tuple[int, ...] = ()) -> PyTree:
    """Zeros with the shape of elements of `space`, in JAX's dtypes."""
    return map_space(lambda leaf: jnp.zeros((*batch_shape, *leaf.shape), jax_dtype(leaf)), space)


def abstract(space: Space, batch_shape: tuple[int, ...] = ()) -> PyTree:
    """Shapes and dtypes of `example`, without computing anything."""
    return jax.eval_shape(lambda: example(space, batch_shape))


def jax_dtype(space: Space) -> np.dtype:
    """The dtype of the elements of `space` on the device: 64-bit dtypes become 32-bit."""
    return jax.dtypes.canonicalize_dtype(space.dtype or np.float32)


def is_image(space: Space) -> bool:
    """Whether `space` holds images [H, W, C]."""
    return isinstance(space, spaces.Box) and len(space.shape) == 3


def looks_channels_first(space: Space) -> bool:
    """Whether an image is more likely one of [C, H, W]: a few rows, and no few channels."""
    if not is_image(space):
        return False
    height, width, channels = space.shape or (0, 0, 0)
    return height <= 4 and min(width, channels) >= 8


def bounds(space: Space) -> tuple[PyTree, PyTree]:
    """Lowest and highest element of a leaf space, inclusive."""
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return 0, 1


def clip(space: Space, action: Action) -> Action:
    """Actions [N, ...] clipped to the bounds of every Box; unchanged elsewhere.

    Arrays of NumPy stay such: nothing is computed on a device for them. Where a bound of float64
    lies between two numbers of float32, actions of float32 end at the one inside.
    """

    def clipped(leaf: Space, x: Any) -> Any:
        if not isinstance(leaf, spaces.Box):
            return x
        low, high = leaf.low.astype(x.dtype), leaf.high.astype(x.dtype)
        low = np.where(low < leaf.low, np.nextafter(low, np.inf, dtype=x.dtype), low)
        high = np.where(high > leaf.high, np.nextafter(high, -np.inf, dtype=x.dtype), high)
        return (jnp if isinstance(x, Array) else np).clip(x, low, high)

    return jax.tree.map(clipped, leaf_tree(space), action)


def is_bounded(box: spaces.Box) -> np.ndarray:
    """Which dimensions of a Box have bounds, [...] bool.

    Those of 1e30 and more, such as the largest float32, mean that there are none.
    """
    return np.maximum(np.abs(box.low), np.abs(box.high)) < _UNBOUNDED


def sample(space: Space, key: Array, num: int) -> Action:
    """`num` uniformly random actions [num, ...]. Consumes the key.

    Unbounded Box dimensions are drawn from a standard normal.
    """
    if isinstance(space, COMPOSITE):
        parts, structure = jax.tree.flatten(leaf_tree(space))
        keys = jax.random.split(key, len(parts))
        return structure.unflatten([sample(*each, num) for each in zip(parts, keys, strict=True)])
    if isinstance(space, spaces.Discrete):
        return jax.random.randint(key, (num,), int(space.start), int(space.start + space.n))
    if isinstance(space, spaces.MultiDiscrete):
        start = jnp.asarray(space.start, jnp.int32)
        return jax.random.randint(
            key, (num, *space.shape), start, start + jnp.asarray(space.nvec, jnp.int32)
        )
    if isinstance(space, spaces.Box):
        bounded = is_bounded(space)
        low, high = np.where(bounded, space.low, 0.0), np.where(bounded, space.high, 1.0)
        uniform = jax.random.uniform(key, (num, *space.shape), minval=low, maxval=high)
        if bounded.all():
            return uniform
        return jnp.where(
            bounded, uniform, jax.random.normal(jax.random.fold_in(key, 1), (num, *space.shape))
        )
    raise SpaceError(f"cannot sample from {space}; use Discrete, MultiDiscrete, Box, Dict or Tuple")


def allowed_actions(obs: PyTree, action_space: Space) -> Array | None:
    """What the masks in observations [B, ...] allow, [B, A] bool; None: there are no masks.

    Where nothing is allowed, as after a termination, all is.
    """
    mask = mask_in(obs)
    return None if mask is None else allowed(mask, num_choices(action_space))


def nothing_allowed(obs: PyTree, action_space: Space) -> Array | None:
    """Where the masks in observations [B, ...] allow no action, [B] bool; None: without masks."""
    mask = mask_in(obs)
    return None if mask is None else has_no_choice(mask, num_choices(action_space))


def sample_allowed(space: Space, key: Array, obs: PyTree) -> Action:
    """Uniformly random actions [B, ...] for observations [B, ...], of those that masks allow.

    Consumes the key.
    """
    mask = allowed_actions(obs, space)
    if mask is None:
        return sample(space, key, jax.tree.leaves(obs)[0].shape[0])
    index = random_indices(key, mask, num_choices(space))
    if isinstance(space, spaces.Discrete):
        return index[:, 0] + int(space.start)
    assert isinstance(space, spaces.MultiDiscrete)
    return index + jnp.asarray(space.start, jnp.int32)
