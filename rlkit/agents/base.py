"""The agent protocols: networks that act, and the families of agents that losses ask for.

Agents know nothing of losses and environments.
"""

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import jax
from flax import struct
from jax import Array

from rlkit.errors import SpaceError
from rlkit.spaces import Space
from rlkit.types import Action, Carry, CriticMemory, Key, NoiseState, Obs, Params, PyTree

if TYPE_CHECKING:  # importing distrax takes a second
    from rlkit.agents.heads import Distribution, TanhGaussian


@runtime_checkable
class Agent(Protocol):
    """Pure functions over explicit parameters.

    Observations are already normalised. `carry` is what the agent keeps over the steps of an
    episode: its memory, the state of its exploration noise (a `NoiseState`), both, or ().
    """

    @property
    def spec(self) -> tuple[str, object] | None:
        """(registry name, config) to rebuild it, or None if it is not in the registry."""
        ...

    def init(self, key: Key) -> Params:
        """Fresh parameters; the key is consumed."""
        ...

    def initial_carry(self, num_envs: int) -> Carry:
        """The carry at the start of an episode, leaves [N, ...]."""
        ...

    def explore(
        self, params: Params, obs: Obs, carry: Carry, key: Key, progress: Array
    ) -> tuple[Action, Carry, dict[str, PyTree]]:
        """Exploratory actions [N, ...], the new carry, and extras to store in the rollout.

        `progress` in [0, 1] drives schedules.
        """
        ...

    def exploit(self, params: Params, obs: Obs, carry: Carry, key: Key) -> tuple[Action, Carry]:
        """The agent's best actions [N, ...], and the new carry."""
        ...


class StateValueAgent(Agent, Protocol):
    """An agent that estimates the value of states."""

    def value(self, params: Params, obs: Obs) -> Array:
        """The state values [B]."""
        ...


class ActorCriticAgent(StateValueAgent, Protocol):
    """A policy and a state value, such as `actor_critic`."""

    def policy_and_value(self, params: Params, obs: Obs) -> tuple["Distribution", Array]:
        """The distribution over actions for each observation, and the state values [B]."""
        ...


OUTPUTS = "outputs"
"""Name of `Outputs` in the extras of a rollout."""


class Outputs(struct.PyTreeNode, kw_only=True):
    """What an actor-critic's network computed when it acted, where that includes the values.

    An on-policy algorithm then learns from these, rather than from the same numbers computed again.
    """

    policy: Array  # [N, outputs], of which `agent.distribution` makes the policy
    value: Array  # [N]
    agent: "OutputsAgent" = struct.field(pytree_node=False)
    """Who acted. Another one that wraps it may mean something else by them."""


class OutputsAgent(ActorCriticAgent, Protocol):
    """An actor-critic that keeps `Outputs`."""

    def distribution(self, params: Params, outputs: Array) -> "Distribution":
        """The policy of its network's outputs [B, ...]."""
        ...


class DiscreteAgent(Agent, Protocol):
    """An agent with a finite set of actions."""

    def index(self, action: Action) -> Array:
        """The index of each action, [B], from 0."""
        ...


class QAgent(DiscreteAgent, Protocol):
    """An agent that estimates the value of every action, such as `q_network`."""

    def q_values(self, params: Params, obs: Obs) -> Array:
        """The value of every action, [B, A]."""
        ...


class QAndStateValueAgent(QAgent, StateValueAgent, Protocol):
    """A `QAgent` whose state value is that of the best action, such as `normalized_q_network`."""


class QuantileAgent(DiscreteAgent, Protocol):
    """An agent that estimates the distribution of returns, such as `quantile_network`."""

    def quantiles(self, params: Params, obs: Obs) -> Array:
        """Quantiles of the return of every action, [N, B, A]: the i-th is at level (i + ½) / N."""
        ...


class ContinuousCriticAgent(Agent, Protocol):
    """Two critics that take a unit action, in [-1, 1] whatever the bounds, as an input."""

    def q_values(self, critic_params: Params, obs: Obs, unit_action: Action) -> Array:
        """Both critics' values [2, B] of unit actions [B, ...]."""
        ...

    def to_unit(self, action: Action) -> Action:
        """Maps actions from the environment's bounds to [-1, 1]; anything outside is clipped."""
        ...


class SoftActorCriticAgent(ContinuousCriticAgent, Protocol):
    """A squashed Gaussian policy and two critics, such as `soft_actor_critic`."""

    def policy(self, actor_params: Params, obs: Obs) -> "TanhGaussian":
        """The distribution over unit actions for each observation."""
        ...


class DeterministicActorCriticAgent(ContinuousCriticAgent, Protocol):
    """A deterministic policy and two critics, such as `deterministic_actor_critic`."""

    def act(self, actor_params: Params, obs: Obs) -> Action:
        """The unit action for each observation, [B, ...]."""
        ...


class DiscreteSoftActorCriticAgent(DiscreteAgent, Protocol):
    """A categorical policy and two Q-networks, such as `discrete_soft_actor_critic`."""

    def log_probs(self, actor_params: Params, obs: Obs) -> Array:
        """The log-prob of every action, [B, A]."""
        ...

    def q_values(self, critic_params: Params, obs: Obs) -> Array:
        """Both critics' values of every action, [2, B, A]."""
        ...


def remembers(agent: Agent) -> bool:
    """Whether an agent has memory; computes nothing."""
    return carries_memory(jax.eval_shape(lambda: agent.initial_carry(1)))


def carries_memory(carry: Carry) -> bool:
    """Whether a carry holds memory that the agent acts by."""
    return bool(jax.tree.leaves(memory_of(carry)))


def memory_of(carry: Carry) -> Carry:
    """The part of a carry that best actions depend on: neither noise nor what critics remember."""
    return jax.tree.map(lambda x: () if _is_set_aside(x) else x, carry, is_leaf=_is_set_aside)


def memory_for_losses(carry: Carry) -> Carry:
    """A carry without the state of exploration noise, which losses do not learn to use."""
    return jax.tree.map(lambda x: () if _is_noise(x) else x, carry, is_leaf=_is_noise)


def with_memory(carry: Carry, memory: Iterable[Array]) -> Carry:
    """A carry with these arrays as its memory, in the order of the leaves of `memory_of(carry)`."""
    left = iter(memory)
    return jax.tree.map(
        lambda x: x if _is_set_aside(x) else next(left), carry, is_leaf=_is_set_aside
    )


def _is_noise(node: Carry) -> bool:
    return isinstance(node, NoiseState)


def _is_set_aside(node: Carry) -> bool:
    return isinstance(node, (NoiseState, CriticMemory))


def methods_of(family: type) -> tuple[str, ...]:
    """The methods that agents of `family` have in addition to those of `Agent`.

    `family` is a protocol, from this file or your own.
    """
    bases = [base for base in inspect.getmro(family) if base not in inspect.getmro(Agent)]
    return tuple(name for base in bases for name in vars(base) if not name.startswith("_"))


def unsupported_actions(agent: str, needed: str, space: Space) -> SpaceError:
    """The error for an agent that cannot act in `space`."""
    return SpaceError(
        f"{agent} needs {needed} actions, got {space}; use actor_critic (PPO, A2C), which takes all"
        " kinds, or find another algorithm with `rlkit list algorithms`"
    )
