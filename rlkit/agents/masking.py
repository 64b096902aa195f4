"""Agents in masked environments: networks do not see the mask, and what they choose obeys it."""

from typing import Any, TypeVar

import jax.numpy as jnp
from jax import Array

from rlkit import spaces
from rlkit.action_masks import check_mask, unmasked_space, without_mask
from rlkit.agents.networks import Network
from rlkit.spaces import Space, check_observation_space
from rlkit.types import Obs, Params, Sequences, seen

Outputs = TypeVar("Outputs")


def check_observed(observation_space: Space, action_space: Space) -> None:
    """Raises `SpaceError` for what no network sees, and for a mask that does not fit."""
    check_observation_space(observation_space)
    check_mask(observation_space, action_space)


def observed_space(observation_space: Space, action_space: Space) -> Space:
    """What networks see of observations. Raises the errors of `check_observed`."""
    check_observed(observation_space, action_space)
    return unmasked_space(observation_space)


def ignoring_masks(network: Network[Outputs]) -> Network[Outputs]:
    """A network of observations with or without masks, of which it sees none."""

    def apply(params: Params, obs: Obs | Sequences, *more: Any) -> Outputs:
        if isinstance(obs, Sequences):
            return network.apply(params, obs.replace(obs=without_mask(obs.obs)), *more)
        return network.apply(params, without_mask(obs), *more)

    return Network(network.init, apply, network.module)


def only_allowed(outputs: Array, obs: Obs | Sequences, action_space: Space) -> Array:
    """Logits or values [..., B, A], with -inf for actions that are not allowed."""
    mask = spaces.allowed_actions(seen(obs), action_space)
    return outputs if mask is None else jnp.where(mask, outputs, -jnp.inf)
