"""The contract of agents: networks that act, and the families of agents that losses ask for. Agents
know no loss and no environment.
"""

import inspect
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from jax import Array

from rlkit.errors import SpaceError
from rlkit.spaces import Space
from rlkit.types import Action, Carry, Key, Obs, Params, PyTree

if TYPE_CHECKING:  # they import distrax, which takes a second
    from rlkit.agents.heads import Distribution, TanhGaussian


@runtime_checkable
class Agent(Protocol):
    """Pure functions over explicit parameters. Observations come in already normalised; `carry` is
    () for feed-forward agents.
    """

    @property
    def spec(self) -> tuple[str, Any] | None:
        """(registry name, config) that rebuild it; None: no registry knows it."""
        ...

    def init(self, key: Key) -> Params:
        """Fresh parameters; the key is consumed."""
        ...

    def initial_carry(self, num_envs: int) -> Carry:
        """The recurrent state at the start of an episode, leaves [N, ...]."""
        ...

    def explore(
        self, params: Params, obs: Obs, carry: Carry, key: Key, progress: Array
    ) -> tuple[Action, Carry, dict[str, PyTree]]:
        """Actions [N, ...] to learn from, and extras that the rollout keeps; `progress` in [0, 1]
        drives schedules.
        """
        ...

    def exploit(self, params: Params, obs: Obs, carry: Carry, key: Key) -> tuple[Action, Carry]:
        """The best actions [N, ...] that the agent knows."""
        ...


class StateValueAgent(Agent, Protocol):
    """Values states."""

    def value(self, params: Params, obs: Obs) -> Array:
        """The state values [B]."""
        ...


class ActorCriticAgent(StateValueAgent, Protocol):
    """A policy and the value of its states, such as `actor_critic`."""

    def policy_and_value(self, params: Params, obs: Obs) -> tuple["Distribution", Array]:
        """The distribution over actions for each observation, and the state values [B]."""
        ...


class DiscreteAgent(Agent, Protocol):
    """Chooses from actions that can be listed."""

    def index(self, action: Action) -> Array:
        """Where each action stands among all, [B]."""
        ...


class QAgent(DiscreteAgent, Protocol):
    """Values all actions, such as `q_network`."""

    def q_values(self, params: Params, obs: Obs) -> Array:
        """The value of every action, [B, A]."""
        ...


class QAndStateValueAgent(QAgent, StateValueAgent, Protocol):
    """Values all actions, and states by the best of them, such as `normalized_q_network`."""


class QuantileAgent(DiscreteAgent, Protocol):
    """Knows the distribution of the return of every action, such as `quantile_network`."""

    def quantiles(self, params: Params, obs: Obs) -> Array:
        """Quantiles of the return of every action, [N, B, A]: the i-th is that of (i + ½) / N."""
        ...


class ContinuousCriticAgent(Agent, Protocol):
    """Two critics of given actions. They speak of unit actions, in [-1, 1] whatever the bounds."""

    def q_values(self, critic_params: Params, obs: Obs, unit_action: Action) -> Array:
        """What both critics say of unit actions [B, ...], [2, B]."""
        ...

    def to_unit(self, action: Action) -> Action:
        """From the environment's bounds to [-1, 1]; anything outside is clipped."""
        ...


class SoftActorCriticAgent(ContinuousCriticAgent, Protocol):
    """A squashed Gaussian policy and two critics, such as `soft_actor_critic`."""

    def policy(self, actor_params: Params, obs: Obs) -> "TanhGaussian":
        """The distribution over unit actions for each observation."""
        ...


class DeterministicActorCriticAgent(ContinuousCriticAgent, Protocol):
    """One action for each observation and two critics, such as `deterministic_actor_critic`."""

    def act(self, actor_params: Params, obs: Obs) -> Action:
        """The unit action for each observation, [B, ...]."""
        ...


class DiscreteSoftActorCriticAgent(DiscreteAgent, Protocol):
    """A categorical policy and two critics of all actions, such as `discrete_soft_actor_critic`."""

    def log_probs(self, actor_params: Params, obs: Obs) -> Array:
        """The log-prob of every action, [B, A]."""
        ...

    def q_values(self, critic_params: Params, obs: Obs) -> Array:
        """What both critics say of every action, [2, B, A]."""
        ...


def methods_of(family: type) -> tuple[str, ...]:
    """What agents of `family`, a protocol of this file or of your own, have beside the members of
    `Agent`.
    """
    bases = [base for base in inspect.getmro(family) if base not in inspect.getmro(Agent)]
    return tuple(name for base in bases for name in vars(base) if not name.startswith("_"))


def unsupported_actions(agent: str, needed: str, space: Space) -> SpaceError:
    """The error of an agent that cannot act in `space`."""
    return SpaceError(
        f"{agent} needs {needed} actions, got {space}; use actor_critic (PPO, A2C), which takes all"
        " kinds, or see in `rlkit list algorithms` which others learn such actions"
    )
