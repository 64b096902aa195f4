"""Agents by name. Imports no JAX until one is built.

Installed packages add agents by an entry point in the group `rlkit.agents` that names an
`AgentEntry`, as for algorithms.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlkit import plugins
from rlkit.agents.configs import (
    ActorCriticConfig,
    DeterministicActorCriticConfig,
    DiscreteSoftActorCriticConfig,
    NormalizedQNetworkConfig,
    QNetworkConfig,
    QuantileNetworkConfig,
    SoftActorCriticConfig,
)
from rlkit.errors import ConfigError
from rlkit.lazy import resolve

if TYPE_CHECKING:
    from rlkit.agents.base import Agent
    from rlkit.spaces import Space

ENTRY_POINT_GROUP = "rlkit.agents"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentEntry:
    """What the registry knows about an agent."""

    config: type
    # "module:function", imported when used, or the function: factory(observation_space,
    # action_space, config) -> Agent
    factory: "str | Callable[..., Agent]"
    summary: str


AGENTS: dict[str, AgentEntry] = {
    "actor_critic": AgentEntry(
        config=ActorCriticConfig,
        factory="rlkit.agents.actor_critic:actor_critic",
        summary="policy and state value; MLP or CNN; discrete and continuous actions, in parts too",
    ),
    "q_network": AgentEntry(
        config=QNetworkConfig,
        factory="rlkit.agents.q_network:q_network",
        summary="a value for each discrete action, dueling or not; MLP or CNN",
    ),
    "normalized_q_network": AgentEntry(
        config=NormalizedQNetworkConfig,
        factory="rlkit.agents.q_network:normalized_q_network",
        summary="a `q_network` with layer normalisation",
    ),
    "quantile_network": AgentEntry(
        config=QuantileNetworkConfig,
        factory="rlkit.agents.quantile_network:quantile_network",
        summary="quantiles of the return of each discrete action; MLP or CNN",
    ),
    "soft_actor_critic": AgentEntry(
        config=SoftActorCriticConfig,
        factory="rlkit.agents.soft_actor_critic:soft_actor_critic",
        summary="squashed Gaussian policy and two action values; MLP or CNN; bounded Box actions",
    ),
    "deterministic_actor_critic": AgentEntry(
        config=DeterministicActorCriticConfig,
        factory="rlkit.agents.deterministic:deterministic_actor_critic",
        summary="deterministic policy and two action values; MLP or CNN; bounded Box actions",
    ),
    "discrete_soft_actor_critic": AgentEntry(
        config=DiscreteSoftActorCriticConfig,
        factory="rlkit.agents.discrete_soft_actor_critic:discrete_soft_actor_critic",
        summary="categorical policy and two values for each discrete action; MLP or CNN",
    ),
}


def agent_entry(name: str) -> AgentEntry:
    """The registry's row for `name`.

    Raises `UnknownNameError`, or `ConfigError` if the package that provides it is broken.
    """
    return plugins.find_row(name, AGENTS, ENTRY_POINT_GROUP, "agent", AgentEntry)


def list_agents() -> dict[str, str]:
    """Names and summaries of all agents.

    Agents of installed packages are not imported; their summary is the package's name.
    """
    return plugins.summaries(AGENTS, ENTRY_POINT_GROUP)


def make_agent(
    name: str, observation_space: "Space", action_space: "Space", config: object = None
) -> "Agent":
    """The agent `name` for the spaces of one environment. Raises `ConfigError`.

    If it is a dataclass, its `spec` is this name, as in `make_algorithm`.
    """
    entry = agent_entry(name)
    if config is not None and not isinstance(config, entry.config):
        raise ConfigError(
            f"{name} takes a {entry.config.__name__}, got {type(config).__name__}; pass that one"
        )
    config = config or entry.config()
    made: Any = resolve(entry.factory)(observation_space, action_space, config)
    return plugins.named(made, name, config)


def register_agent(
    name: str, factory: "Callable[..., Agent]", *, config: type, summary: str = ""
) -> None:
    """Adds an agent: `factory(observation_space, action_space, config) -> Agent`.

    Raises `ConfigError` if the name is taken, or if factory or config are no such things.
    """
    plugins.check_new(name, AGENTS, "agent", factory, config)
    AGENTS[name] = AgentEntry(config=config, factory=factory, summary=summary)
