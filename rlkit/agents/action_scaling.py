"""Unit actions, scaled to [-1, 1] whatever the environment's bounds.

Shared by the agents for bounded continuous actions.
"""

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from rlkit.agents.base import unsupported_actions
from rlkit.errors import SpaceError, require
from rlkit.spaces import Space, check_action_space, is_bounded
from rlkit.types import Action


def to_unit(box: spaces.Box, action: Action) -> Action:
    """Maps actions from the bounds of `box` to [-1, 1]; anything outside is clipped."""
    center, half_width = _center_and_half_width(box)
    return jnp.clip((action - center) / half_width, -1.0, 1.0)


def from_unit(box: spaces.Box, unit_action: Action) -> Action:
    """Maps unit actions to the bounds of `box`, which rounding cannot exceed."""
    center, half_width = _center_and_half_width(box)
    low, high = (np.asarray(bound, np.float32) for bound in (box.low, box.high))
    return jnp.clip(center + half_width * unit_action, low, high)


def bounded_box(space: Space, agent: str) -> spaces.Box:
    """`space`, if it is a Box of floats with finite bounds.

    Raises `SpaceError` otherwise, in the name of `agent`.
    """
    if not isinstance(space, spaces.Box):
        raise unsupported_actions(agent, "a Box of continuous", space)
    check_action_space(space)
    require(
        bool(is_bounded(space).all()),
        f"{agent} squashes its actions and needs finite bounds, got {space}",
        "declare finite bounds, such as spaces.Box(-1.0, 1.0, shape), or use actor_critic"
        " (PPO, A2C)",
        SpaceError,
    )
    return space


def _center_and_half_width(box: spaces.Box) -> tuple[np.ndarray, np.ndarray]:
    """Two float32 arrays of the box's shape."""
    low, high = np.asarray(box.low, np.float64), np.asarray(box.high, np.float64)
    return np.asarray((low + high) / 2, np.float32), np.asarray((high - low) / 2, np.float32)
