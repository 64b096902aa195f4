"""Agents in masked environments: networks do not see the mask, and what they choose obeys it."""

from typing import Any, TypeVar

import jax.numpy as jnp
from jax import Array

from rlkit import spaces
from rlkit.action_masks import ACTION_MASK, check_mask, unmasked_space, without_mask
from rlkit.agents.networks import Network
from rlkit.ops.rows import flatten
from rlkit.spaces import Space, check_observation_space
from rlkit.types import Obs, Params, Sequences

Outputs = TypeVar("Outputs")


def observed_space(observation_space: Space, action_space: Space) -> Space:
    """What networks see of observations. Raises `SpaceError` for what none can, and for a mask that
    does not fit the actions.
    """
    check_observation_space(observation_space)
    check_mask(observation_space, action_space)
    return unmasked_space(observation_space)


def ignoring_masks(network: Network[Outputs]) -> Network[Outputs]:
    """A network of observations with or without masks, of which it sees none."""

    def apply(params: Params, obs: Obs | Sequences, *more: Any) -> Outputs:
        if isinstance(obs, Sequences):
            return network.apply(params, obs.replace(obs=without_mask(obs.obs)), *more)
        return network.apply(params, without_mask(obs), *more)

    return Network(network.init, apply)


def has_masks(obs: Obs | Sequences) -> bool:
    """Whether observations hold masks."""
    obs = obs.obs if isinstance(obs, Sequences) else obs
    return isinstance(obs, dict) and ACTION_MASK in obs


def allowed_actions(obs: Obs | Sequences, action_space: Space) -> Array | None:
    """`spaces.allowed_actions`; of `Sequences`, [L·B, A]."""
    if isinstance(obs, Sequences):
        return None if not has_masks(obs) else allowed_actions(flatten(obs.obs), action_space)
    return spaces.allowed_actions(obs, action_space)


def only_allowed(outputs: Array, obs: Obs | Sequences, action_space: Space) -> Array:
    """Logits or values [..., B, A], with -inf for actions that are not allowed."""
    mask = allowed_actions(obs, action_space)
    return outputs if mask is None else jnp.where(mask, outputs, -jnp.inf)
