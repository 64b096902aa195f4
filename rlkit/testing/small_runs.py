"""Settings with which every algorithm makes a run of seconds.

They go by the names of fields: a config that has one gets the value.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from rlkit.agents.base import Agent
from rlkit.agents.registry import agent_entry, make_agent
from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.registry import algorithm_entry, make_algorithm
from rlkit.envs.base import EnvAdapter

# A ring that two environments soon fill, and batches of 8.
SMALL: dict[str, Any] = {
    "num_steps": 8,
    "num_epochs": 1,
    "num_minibatches": 2,
    "prefill_steps": 20,
    "capacity": 60,
    "batch_size": 8,
    "updates_per_step": 0.25,
    "target_period": 40,
}
SMALL_AGENT: dict[str, Any] = {"hidden_sizes": (8,), "num_quantiles": 8}


def known(kind: type, table: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of `table` that the dataclass `kind` has a field for."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in table.items() if name in names}


def small_parts(algorithm: str, env: EnvAdapter) -> tuple[Agent, Algorithm]:
    """The algorithm with small settings, and its default agent. Raises `SpaceError`."""
    entry = algorithm_entry(algorithm)
    network = agent_entry(entry.agent).config
    agent = make_agent(
        entry.agent, env.observation_space, env.action_space, network(**known(network, SMALL_AGENT))
    )
    return agent, make_algorithm(algorithm, entry.config(**known(entry.config, SMALL)))
