"""What a policy is given to act on, checked: raw observations, and the carry before them."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from gymnasium.spaces import Dict, Tuple

from rlkit.action_masks import first_without_choice, has_mask, mask_in, num_choices
from rlkit.agents.base import Agent
from rlkit.errors import require
from rlkit.spaces import Space, jax_dtype
from rlkit.types import Carry, PyTree

_WHOLE, _AS_RETURNED = "an observation", "pass what the environment returned"


def batch_of(observation_space: Space, obs: PyTree) -> tuple[PyTree, int]:
    """(observations [B, ...] in the structure and dtypes of the space, B).

    Networks see structure and dtypes: another order would swap parts, and floats are normalised
    where integers are not. Numbers that the space's dtype cannot hold are refused, with
    `ConfigError`, as are NaN and infinity.
    """
    found = _checked(observation_space, obs, _WHOLE)
    sizes = sorted({len(leaf) for leaf in jax.tree.leaves(found)})
    require(
        len(sizes) == 1,
        f"the parts of the observations have {', '.join(map(str, sizes))} rows",
        "give each part one row for each observation",
    )
    require(sizes[0] > 0, "a policy got a batch of 0 observations", "ask for one action at least")
    return found, sizes[0]


def check_choices(observation_space: Space, action_space: Space, obs: PyTree) -> None:
    """Raises `ConfigError` if the mask in one of the observations [B, ...] allows nothing."""
    if has_mask(observation_space):
        row = first_without_choice(mask_in(obs), num_choices(action_space))
        require(
            row is None,
            f"the action mask of observation {row} allows nothing",
            "ask only for actions in running episodes, where one is allowed",
        )


def check_carry(agent: Agent, carry: Carry | None, size: int) -> None:
    """Raises `ConfigError` unless it is what `agent` carries in `size` episodes, or None."""
    if carry is None:
        return
    wanted = jax.eval_shape(lambda: agent.initial_carry(size))
    shapes = [jax.tree.map(np.shape, each) for each in (wanted, carry)]
    require(
        shapes[0] == shapes[1],
        f"the carry of {size} episodes has shapes {shapes[0]}, got {shapes[1]}",
        f"pass what the last step returned, or policy.initial_carry({size})",
    )


def restarts(restart: Any, size: int) -> np.ndarray | None:
    """Where episodes begin, [B] bool; None: nowhere."""
    if restart is None:
        return None
    restart = np.asarray(restart, bool)
    require(
        restart.shape == (size,),
        f"restart has shape {restart.shape} for {size} observations",
        "pass one flag for each, such as terminated | truncated",
    )
    return restart


def _checked(space: Space, obs: Any, path: str) -> PyTree:
    """`obs` in the structure and dtypes of `space`, each leaf with an axis in front."""
    if isinstance(space, Dict):
        names = list(space.spaces)
        given = list(obs) if isinstance(obs, Mapping) else type(obs).__name__
        require(
            isinstance(obs, Mapping) and set(obs) == set(names),
            f"{path} has the parts {names} here, got {given}",
            f"{_AS_RETURNED}, a dict with these names",
        )
        parts = space.spaces.items()
        return {name: _checked(part, obs[name], f"{path}[{name!r}]") for name, part in parts}
    if isinstance(space, Tuple):
        count, is_tuple = len(space.spaces), isinstance(obs, tuple | list)
        given = f"{len(obs)}" if is_tuple else type(obs).__name__
        require(
            is_tuple and len(obs) == count,
            f"{path} has {count} parts here, got {given}",
            f"{_AS_RETURNED}, a tuple",
        )
        return tuple(_checked(part, obs[i], f"{path}[{i}]") for i, part in enumerate(space.spaces))
    return _leaf(space, obs, path)


def _leaf(space: Space, obs: Any, path: str) -> np.ndarray:
    try:
        given = np.asarray(obs)
    except ValueError:  # rows of different lengths
        given = np.empty((), object)
    shape, dtype = space.shape or (), jax_dtype(space)
    require(
        given.dtype.kind in "biuf",
        f"{path} is an array of numbers here, got {obs!r:.80}",
        _AS_RETURNED,
    )
    batch = ", ".join(["B", *map(str, shape)])
    of = "" if path == _WHOLE else f" as {path}"
    require(
        given.shape[1:] == shape and given.ndim > 0,
        f"a policy takes a batch of observations ({batch}), got shape {given.shape}{of}",
        "add an axis for a single one: obs[None]"
        if given.shape == shape
        else f"{_AS_RETURNED}, one row for each of B environments",
    )
    with np.errstate(over="ignore", invalid="ignore"):  # both are told below
        cast = given.astype(dtype, copy=False)
    if np.issubdtype(dtype, np.floating):
        fault = f"{path} holds NaN or infinity, for which no action means anything"
        require(bool(np.isfinite(cast).all()), fault, "look for the fault in the environment")
        return cast
    lost = given[cast != given]
    first = lost.flat[0] if lost.size else ""
    fault = f"{path} is of {dtype} here and cannot hold {first}"
    require(not lost.size, fault, f"{_AS_RETURNED}, neither scaled nor normalised")
    return cast
