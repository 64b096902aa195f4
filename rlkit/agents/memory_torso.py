"""Torsos with memory: a recurrent layer on a torso, and users' own."""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from rlkit.agents.cells import Cell, make_cell
from rlkit.agents.configs import Memory
from rlkit.agents.layers import MLP
from rlkit.agents.memory import has_memory
from rlkit.agents.networks import TorsoBuilder
from rlkit.agents.torso import TorsoConfig, activation_of, torso_of
from rlkit.errors import ConfigError, require
from rlkit.ops.rows import flatten
from rlkit.spaces import Space, abstract
from rlkit.types import Carry, Obs

InitialCarry = Callable[[int], Carry]
"""`initial_carry(num_envs)`: the memory at the start of an episode."""


class MemoryConfig(TorsoConfig, Protocol):
    """What the configs of agents say about their memory."""

    @property
    def memory(self) -> Memory | None:
        """The recurrent layer."""
        ...

    @property
    def memory_size(self) -> int:
        """Its width."""
        ...


class Remembering(nnx.Module):
    """A torso without memory, a recurrent layer on it, and layers for both.

    The last layers see what the torso says of the observation beside the memory. A policy needs
    both, and minGRU, which is linear in its memory, learns nothing of a difference without them.
    """

    def __init__(
        self, torso: Callable[[Obs], Array], cell: Cell, last: Callable[[Array], Array] | None
    ):
        self.torso, self.cell, self.last = torso, cell, last

    def initial_carry(self, num_envs: int) -> Carry:
        """That of the recurrent layer."""
        return self.cell.initial_carry(num_envs)

    def over(self, carry: Carry, obs: Obs, restart: Array) -> tuple[Carry, Array]:
        """See `MemoryTorso`. The torso, without memory, takes all steps as one batch."""
        features = self.torso(flatten(obs))
        features = features.reshape(*restart.shape, -1)
        carry, memory = self.cell.over(carry, features, restart)
        joined = jnp.concatenate([memory, features], axis=-1)
        return carry, joined if self.last is None else self.last(joined)


def torso_and_memory(
    config: MemoryConfig,
    space: Space,
    own: TorsoBuilder | None = None,
    *,
    layer_norm: bool = False,
) -> tuple[TorsoBuilder, int, InitialCarry | None]:
    """(builder, number of features, initial memory or None) of a torso: see `torso_of`.

    It has memory if the config says so, or if the user's `own` is a `MemoryTorso`. The recurrent
    layer that a config names stands before the last hidden layer, or on the user's torso.
    """
    memory = _require_one_memory(config, own)
    if own is not None and memory is not None:
        return own, _features_with(own, memory, abstract(space, (2,))), memory
    if config.memory is None:
        return *torso_of(config, space, own, layer_norm=layer_norm), None
    width = config.hidden_sizes[-1]

    def last(features: int) -> MLP:
        return MLP(features, (width,), activation_of(space, config), layer_norm=layer_norm)

    build, _, initial_carry = _memory_torso(config, space, own, last, layer_norm=layer_norm)
    return build, width, initial_carry


def memory_and_features(
    config: MemoryConfig, space: Space, own: TorsoBuilder | None = None
) -> tuple[TorsoBuilder, int, InitialCarry]:
    """As `torso_and_memory`, but ends with the memory and the features before it.

    For agents that put last layers of their own on these. `config` names a recurrent layer.
    """
    _require_one_memory(config, own)
    return _memory_torso(config, space, own, lambda features: None, layer_norm=False)


def _memory_torso(
    config: MemoryConfig,
    space: Space,
    own: TorsoBuilder | None,
    last: Callable[[int], MLP | None],
    *,
    layer_norm: bool,
) -> tuple[TorsoBuilder, int, InitialCarry]:
    """(builder, number of features before the last layer, initial memory).

    `last(features)` makes that layer.
    """
    kind, size = config.memory, config.memory_size
    assert kind is not None
    first = config.hidden_sizes[:-1]
    build, features = torso_of(config, space, own, layer_norm=layer_norm, hidden_sizes=first)
    joined = size + features

    def remembering(rngs: nnx.Rngs) -> Remembering:
        return Remembering(build(rngs), make_cell(kind, features, size), last(joined))

    shapes = nnx.eval_shape(lambda: make_cell(kind, features, size))
    return remembering, joined, shapes.initial_carry


def _require_one_memory(config: MemoryConfig, own: TorsoBuilder | None) -> InitialCarry | None:
    """How the memory of a user's torso begins, if it has one; raises `ConfigError` for two."""
    memory = None if own is None else memory_of_torso(own)
    require(
        memory is None or config.memory is None,
        f"the torso has a memory of its own, and memory={config.memory!r} would add another one",
        "leave out one of them: set memory=None, or pass a torso without initial_carry",
    )
    return memory


def memory_of_torso(own: TorsoBuilder) -> InitialCarry | None:
    """How the memory of a user's torso begins; None if it has none."""
    try:
        module: Any = nnx.eval_shape(lambda: own(nnx.Rngs(0)))
    except Exception:  # `torso_of` says what is wrong
        return None
    if isinstance(module, nnx.Rngs):  # of a function that returns its argument; has any name
        return None
    return module.initial_carry if has_memory(module) else None


def _features_with(own: TorsoBuilder, initial_carry: InitialCarry, example: Obs) -> int:
    """The number of features of a torso with memory; raises `ConfigError` if it does not fit."""

    def run(carry: Carry, obs: Obs) -> Any:
        torso: Any = own(nnx.Rngs(0))
        return torso(carry, obs)

    must = "it must map (carry [B, ...], obs [B, ...]) to (carry [B, ...], features [B, F])"
    batch = jax.tree.leaves(example)[0].shape[0]
    try:
        before = jax.eval_shape(lambda: initial_carry(batch))
        after, features = jax.eval_shape(run, before, example)
    except Exception as error:
        told = f"the torso fails on a batch of observations ({type(error).__name__}: {error})"
        raise ConfigError(f"{told}; {must}") from error
    shapes = [jax.tree.map(lambda x: (x.shape, str(x.dtype)), tree) for tree in (before, after)]
    require(
        shapes[0] == shapes[1],
        f"the torso changes the shape of its memory from {shapes[0]} to {shapes[1]}",
        "return a memory like that of initial_carry",
    )
    shape = getattr(features, "shape", None)
    require(
        shape is not None and len(shape) == 2 and shape[0] == batch,
        f"the torso maps a batch of {batch} observations to {shape}",
        must,
    )
    return features.shape[-1]
