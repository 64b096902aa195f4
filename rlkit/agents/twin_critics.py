"""Two critics, with memory or without: of unit actions, or of all discrete actions."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from gymnasium import spaces
from jax import Array

from rlkit.agents.configs import (
    DeterministicActorCriticConfig,
    DiscreteSoftActorCriticConfig,
    SoftActorCriticConfig,
)
from rlkit.agents.layers import MLP, Linear
from rlkit.agents.masking import ignoring_masks
from rlkit.agents.memory import features_of, one_step
from rlkit.agents.memory_torso import (
    InitialCarry,
    memory_and_features,
    memory_of_torso,
    torso_and_memory,
)
from rlkit.agents.networks import Network, TorsoBuilder, make_network
from rlkit.agents.torso import Twins, WithHead, activation_of, make_remembering, torso_of
from rlkit.errors import require
from rlkit.spaces import Space
from rlkit.types import Action, Carry, CriticMemory, Key, Obs, Params, Sequences, seen


@dataclasses.dataclass(frozen=True)
class TwinCritics:
    """Two critics that share nothing. Observations are [B, ...] or, with memory, `Sequences`."""

    network: Network[tuple[Carry, Array]]  # (obs, *more) -> (both memories, outputs [2, B, ...])
    memory: InitialCarry | None  # that of one critic

    def init(self, key: Key) -> Params:
        """Fresh parameters of both; the key is consumed."""
        return self.network.init(key)

    def initial_carry(self, num_envs: int) -> CriticMemory:
        """Both memories at the start of an episode."""
        if self.memory is None:
            return CriticMemory(values=())
        return CriticMemory(values=(self.memory(num_envs), self.memory(num_envs)))

    def apply(self, params: Params, obs: Obs | Sequences, *more: Array) -> Array:
        """Both outputs, [2, B, ...]; of `Sequences`, the carry is a `CriticMemory`."""
        if isinstance(obs, Sequences):
            obs = obs.replace(carry=obs.carry.values)
        return self.network.apply(params, obs, *more)[1]

    def remember(
        self, params: Params, obs: Obs, memory: CriticMemory, *more: Array
    ) -> CriticMemory:
        """Both memories after a step with observations [N, ...]."""
        if self.memory is None:
            return memory
        values, _ = self.network.apply(params, one_step(obs, memory.values), *more)
        return memory.replace(values=values)


def action_critics(
    observation_space: Space,
    box: spaces.Box,
    config: SoftActorCriticConfig | DeterministicActorCriticConfig,
    own: TorsoBuilder | None,
) -> TwinCritics:
    """Critics of (obs, unit_action [B, *shape]), whose outputs are [2, B].

    Without memory, the torso, a user's `own` or the default, encodes (obs, unit_action), the action
    flat [B, A]. With memory, the action joins between the recurrent layer and the last hidden one,
    so that one pass over a sequence serves any actions.
    """
    if isinstance(config, SoftActorCriticConfig) and config.memory is not None:
        return _action_critics_with_memory(observation_space, box, config, own)
    both = spaces.Tuple((observation_space, spaces.Box(-1.0, 1.0, (math.prod(box.shape),))))
    _refuse_memory(own)
    build, features = torso_of(config, both, own)

    def critic(rngs: nnx.Rngs) -> WithHead:
        return WithHead(build(rngs), features, 1, 1.0)

    twins = make_network(lambda rngs: Twins(critic(rngs), critic(rngs)), config)

    def values(params: Params, obs: Obs | Sequences, unit_action: Action) -> tuple[Carry, Array]:
        return (), jnp.squeeze(twins.apply(params, (seen(obs), _flat(unit_action))), -1)

    return TwinCritics(Network(twins.init, values, twins.module), None)


def _refuse_memory(own: TorsoBuilder | None) -> None:
    """Raises `ConfigError` for a user's torso with memory."""
    require(
        own is None or memory_of_torso(own) is None,
        "critic_torso has a memory, but it sees an action beside each observation, and losses ask"
        " for the values of others",
        'leave it out and set memory="gru", or pass one without memory',
    )


def _action_critics_with_memory(
    observation_space: Space,
    box: spaces.Box,
    config: SoftActorCriticConfig,
    own: TorsoBuilder | None,
) -> TwinCritics:
    require(
        own is None,
        f"critic_torso stands in for all layers of the critics, and memory={config.memory!r} would"
        " add another one",
        "leave one of them out; for an actor with memory and your critics without, pass a torso"
        " with memory",
    )
    build, features, memory = memory_and_features(config, observation_space)
    activation, width = activation_of(observation_space, config), config.hidden_sizes[-1]

    def critic(rngs: nnx.Rngs) -> ActionCritic:
        last = MLP(features + math.prod(box.shape), (width,), activation)
        return ActionCritic(build(rngs), last, width)

    twins = _side_by_side(make_network(critic, config))

    def values(params: Params, obs: Sequences, unit_action: Action) -> tuple[Carry, Array]:
        memories, values = twins.apply(params, obs, _flat(unit_action))
        return memories, jnp.squeeze(values, -1)

    return TwinCritics(Network(twins.init, values, twins.module), memory)


class ActionCritic(nnx.Module):
    """A critic with memory: (obs, unit actions [M, A]) -> (memory, values [M, 1])."""

    def __init__(self, torso: Any, last: MLP, width: int):
        self.torso, self.last = torso, last
        self.head = Linear(width, 1, scale=1.0, is_last=True)

    def __call__(self, obs: Sequences, unit_action: Array) -> tuple[Carry, Array]:
        memory, features = features_of(self.torso, obs)
        return memory, self.head(self.last(jnp.concatenate([features, unit_action], axis=-1)))


def discrete_critics(
    observation_space: Space,
    num_actions: int,
    config: DiscreteSoftActorCriticConfig,
    own: TorsoBuilder | None,
) -> TwinCritics:
    """Critics of all actions, whose outputs are [2, B, A]; `own` as for `actor_critic`."""
    build, features, memory = torso_and_memory(config, observation_space, own)

    def critic(rngs: nnx.Rngs) -> WithHead:
        return WithHead(build(rngs), features, num_actions, 1.0)

    if memory is not None:
        network = _side_by_side(make_remembering(critic, config))
        return TwinCritics(ignoring_masks(network), memory)
    twins = make_network(lambda rngs: Twins(critic(rngs), critic(rngs)), config)

    def values(params: Params, obs: Obs | Sequences) -> tuple[Carry, Array]:
        return (), twins.apply(params, seen(obs))

    return TwinCritics(ignoring_masks(Network(twins.init, values, twins.module)), None)


def _side_by_side(one: Network[tuple[Carry, Array]]) -> Network[tuple[Carry, Array]]:
    """Two of a network with memory: obs -> (pair of memories, both outputs [2, M, ...]).

    As one under `vmap`, which halves the loops over the steps of a sequence.
    """

    def init(key: Key) -> Params:
        first, second = jax.random.split(key)
        return {"first": one.init(first), "second": one.init(second)}

    def apply(params: Params, obs: Sequences, *more: Array) -> tuple[Carry, Array]:
        both = jax.tree.map(lambda *x: jnp.stack(x), params["first"], params["second"])
        carry = jax.tree.map(lambda *x: jnp.stack(x), *obs.carry)

        def of_one(params: Params, carry: Carry) -> tuple[Carry, Array]:
            return one.apply(params, obs.replace(carry=carry), *more)

        memories, out = jax.vmap(of_one)(both, carry)
        return tuple(jax.tree.map(lambda x, i=i: x[i], memories) for i in range(2)), out

    def module(params: Params) -> Twins:
        return Twins(one.module(params["first"]), one.module(params["second"]))

    return Network(init, apply, module)


def _flat(unit_action: Action) -> Array:
    return unit_action.reshape(unit_action.shape[0], -1)
