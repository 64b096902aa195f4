"""Agents by name: those of one's own stand beside ours."""

import dataclasses

import pytest
from gymnasium import spaces

import rlkit
from rlkit.agents import registry
from rlkit.algorithms import registry as algorithm_registry
from rlkit.errors import ConfigError, UnknownNameError
from rlkit.lazy import resolve

SPACES = spaces.Box(0.0, 1.0, (1,)), spaces.Discrete(2)


@dataclasses.dataclass(frozen=True)
class TableConfig:
    size: int = 3


@pytest.fixture
def registered(monkeypatch):
    """An agent `table`, for one test only."""
    monkeypatch.setattr(registry, "AGENTS", dict(registry.AGENTS))
    rlkit.register_agent("table", lambda *arguments: arguments, config=TableConfig, summary="a table")


def test_a_registered_agent_is_made_by_name(registered):
    assert rlkit.make_agent("table", *SPACES) == (*SPACES, TableConfig())
    assert rlkit.make_agent("table", *SPACES, TableConfig(size=5))[2].size == 5
    assert registry.agent_entry("table").summary == "a table"
    with pytest.raises(ConfigError, match="table takes a TableConfig, got int"):
        rlkit.make_agent("table", *SPACES, 3)


def test_names_are_taken_once(registered):
    for name in ("table", "actor_critic"):
        with pytest.raises(ConfigError, match=f"an agent '{name}' is registered already"):
            rlkit.register_agent(name, tuple, config=TableConfig)
    with pytest.raises(UnknownNameError, match="did you mean 'table'"):
        rlkit.make_agent("tabel", *SPACES)


def test_a_registered_algorithm_is_made_by_name(monkeypatch):
    monkeypatch.setattr(algorithm_registry, "ALGORITHMS", dict(algorithm_registry.ALGORITHMS))
    rlkit.register_algorithm("mine", lambda config: config, config=TableConfig)
    assert rlkit.make_algorithm("mine") == TableConfig()


def test_factories_are_resolved_from_text_or_taken_as_they_are():
    assert resolve("rlkit.agents.actor_critic:actor_critic") is rlkit.actor_critic
    assert resolve(len) is len
