"""Agents by name: those of one's own stand beside ours."""

import dataclasses
import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import yaml
from flax import nnx
from gymnasium import spaces

import rlkit
from rlkit import plugins
from rlkit.agents import registry
from rlkit.algorithms import registry as algorithm_registry
from rlkit.cli.main import main
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
    rlkit.register_agent(
        "table", lambda *arguments: arguments, config=TableConfig, summary="a table"
    )


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
    settings = rlkit.PPOConfig(num_steps=7)
    rlkit.register_algorithm("mine", lambda config: rlkit.ppo(settings), config=TableConfig)
    assert rlkit.make_algorithm("mine").collector.num_steps == 7
    assert rlkit.make_algorithm("mine").spec == ("mine", TableConfig())
    rlkit.register_algorithm("no algorithm", lambda config: config, config=TableConfig)
    with pytest.raises(ConfigError, match=r"'no algorithm' returned TableConfig.*an Algorithm"):
        rlkit.make_algorithm("no algorithm")


def test_what_a_registry_made_of_our_parts_is_rebuilt_by_its_name(monkeypatch):
    """Its own loss, torso and settings are those of the name, and not of what is around them."""
    monkeypatch.setattr(registry, "AGENTS", dict(registry.AGENTS))
    monkeypatch.setattr(algorithm_registry, "ALGORITHMS", dict(algorithm_registry.ALGORITHMS))

    def algorithm(config):
        return rlkit.ppo(config, loss=lambda agent, params, target_params, batch, key: 0.0)

    def agent(observation_space, action_space, config):
        torso = lambda rngs: nnx.Linear(4, 8, rngs=rngs)  # noqa: E731
        return rlkit.actor_critic(observation_space, action_space, config, torso=torso)

    rlkit.register_algorithm("mine", algorithm, config=rlkit.PPOConfig)
    rlkit.register_agent("own", agent, config=rlkit.ActorCriticConfig)
    run = rlkit.RunConfig(
        algorithm="mine",
        agent="own",
        env=rlkit.EnvConfig(id="gymnax/CartPole-v1", num_envs=2),
        trainer=rlkit.TrainerConfig(total_steps=512),
    )
    with rlkit.build(run) as trainer:
        told = trainer.description()
    assert "custom" not in told and (told["algorithm"], told["agent"]) == ("mine", "own")


@dataclasses.dataclass(frozen=True)
class Width:
    """Settings of an agent that is one of rlkit's inside."""

    width: int = 8


@pytest.mark.parametrize("kind", sorted(registry.AGENTS))
def test_agents_of_ours_have_their_settings_under_another_name(kind, monkeypatch):
    """What they need at run time is not in `spec`, which is that of the other name."""
    monkeypatch.setattr(registry, "AGENTS", dict(registry.AGENTS))
    entry = registry.AGENTS[kind]

    def factory(observation_space, action_space, config):
        own = entry.config(hidden_sizes=(config.width,))
        return resolve(entry.factory)(observation_space, action_space, own)

    rlkit.register_agent("narrow", factory, config=Width)
    is_continuous = kind in ("soft_actor_critic", "deterministic_actor_critic")
    action_space = spaces.Box(-1.0, 1.0, (1,)) if is_continuous else spaces.Discrete(3)
    agent = registry.make_agent("narrow", spaces.Box(-1.0, 1.0, (2,)), action_space, Width(4))
    assert agent.spec == ("narrow", Width(4))

    def explore(key):
        obs, progress = jnp.zeros((5, 2)), jnp.float32(0.5)
        return agent.explore(agent.init(key), obs, agent.initial_carry(5), key, progress)[0]

    assert jax.eval_shape(explore, jax.random.key(0)).shape == (5, *action_space.shape)


@dataclasses.dataclass(frozen=True)
class NoSpec:
    custom: bool = True


@dataclasses.dataclass
class OwnInit:
    size: int
    spec: object

    def __init__(self):
        self.size, self.spec = 3, None


def test_own_agents_are_named_without_being_built_again(monkeypatch):
    monkeypatch.setattr(registry, "AGENTS", dict(registry.AGENTS))
    rlkit.register_agent("no spec", lambda *_: NoSpec(), config=TableConfig)
    rlkit.register_agent("own init", lambda *_: OwnInit(), config=TableConfig)
    assert rlkit.make_agent("no spec", *SPACES) == NoSpec(custom=True)
    made = rlkit.make_agent("own init", *SPACES)
    assert (made.size, made.spec) == (3, ("own init", TableConfig()))


@pytest.mark.parametrize("register", [rlkit.register_algorithm, rlkit.register_agent])
def test_what_cannot_be_registered_is_refused_at_once(register):
    with pytest.raises(ConfigError, match=r"factory of an? .*'mine' is 3; pass the function"):
        register("mine", 3, config=TableConfig)
    for config in (TableConfig(), int, None):
        with pytest.raises(ConfigError, match=r"config of an? .*'mine' is .*; pass the class"):
            register("mine", tuple, config=config)


class Plugin:
    """An entry point of the package `other`."""

    dist = type("Dist", (), {"name": "other"})

    def __init__(self, name, row):
        self.name, self.row, self.value = name, row, "other.module:ENTRY"

    def load(self):
        if isinstance(self.row, Exception):
            raise self.row
        return self.row


@dataclasses.dataclass(frozen=True)
class Registry:
    """What agents and algorithms have in common."""

    group: str
    kind: str
    row: Any
    entry: Any
    listing: Any


REGISTRIES = {
    "agents": Registry(
        "rlkit.agents",
        "agent",
        registry.AgentEntry(config=TableConfig, factory=lambda *parts: parts, summary="a table"),
        registry.agent_entry,
        registry.list_agents,
    ),
    "algorithms": Registry(
        "rlkit.algorithms",
        "algorithm",
        algorithm_registry.AlgorithmEntry(
            config=TableConfig, factory=lambda c: c, agent="actor_critic", summary="a table"
        ),
        algorithm_registry.algorithm_entry,
        algorithm_registry.list_algorithms,
    ),
}


@pytest.fixture(params=REGISTRIES)
def installed(request, monkeypatch):
    """installed(row, name="table", times=1): the registry, with an entry point of that name."""
    chosen = REGISTRIES[request.param]

    def install(row, name="table", times=1):
        found = [Plugin(name, row)] * times
        monkeypatch.setattr(
            plugins, "scan", lambda group, path: found if group == chosen.group else []
        )
        return chosen

    return install


def test_rows_of_packages_stand_beside_ours(installed):
    chosen = installed(None)
    chosen = installed(chosen.row)
    assert chosen.entry("table") is chosen.row
    assert chosen.listing()["table"] == "of package 'other'"
    with pytest.raises(
        UnknownNameError, match=f"unknown {chosen.kind} 'tabel'; did you mean 'table'"
    ):
        chosen.entry("tabel")


def test_listing_loads_no_package(installed):
    assert "boom" in installed(ZeroDivisionError(), name="boom").listing()


def test_a_package_that_claims_one_of_our_names_is_named_where_it_is_used(installed):
    plain = installed(None).listing()
    ours, other = [name for name in plain if name != "table"][:2]
    chosen = installed(REGISTRIES["agents"].row, name=ours)
    with pytest.raises(
        ConfigError,
        match=(
            rf"{chosen.kind} '{ours}' is already registered, .* 'other' \(other.module:ENTRY\)"
            " claims .*; uninstall"
        ),
    ):
        chosen.entry(ours)
    assert chosen.entry(other).summary == plain[other] and chosen.listing()[ours] == plain[ours]


def test_a_package_may_register_its_own_row_too(installed, monkeypatch):
    """As one does that registers at import: the first use of the name imports it, later ones find
    the name taken by it.
    """
    chosen = installed(REGISTRIES["agents"].row, name="table")
    rows = registry.AGENTS if chosen.kind == "agent" else algorithm_registry.ALGORITHMS
    monkeypatch.setitem(rows, "table", REGISTRIES["agents"].row)
    assert chosen.entry("table") is REGISTRIES["agents"].row


def test_packages_that_are_broken_are_named(installed):
    chosen = installed(ImportError("no jaxx"))
    with pytest.raises(
        ConfigError,
        match=(
            rf"{chosen.kind} 'table' of package 'other' .* cannot be loaded: ImportError: no jaxx;"
            r" repair"
        ),
    ):
        chosen.entry("table")
    with pytest.raises(
        ConfigError, match=r"'table' is claimed by several packages: .*; uninstall all but one"
    ):
        installed(chosen.row, times=2).entry("table")
    with pytest.raises(
        ConfigError,
        match=r"'table' of package 'other' \(other.module:ENTRY\) is of type int, not an rlkit A",
    ):
        installed(3).entry("table")


def test_an_algorithm_of_a_package_is_listed_and_parsed_by_the_command_line(monkeypatch, capsys):
    row = dataclasses.replace(algorithm_registry.ALGORITHMS["ppo"], summary="mine")
    monkeypatch.setattr(
        plugins,
        "scan",
        lambda group, path: [Plugin("mine", row)] if group == "rlkit.algorithms" else [],
    )
    assert main(["list", "algorithms"]) == 0
    assert re.search(r"^mine +of package 'other'$", capsys.readouterr().out, re.MULTILINE)
    length = ["--total-steps", "1e4"]
    assert (
        main(["train", "mine", "gymnax/CartPole-v1", "--num-steps", "7", *length, "--dry-run"]) == 0
    )
    settings = yaml.safe_load(capsys.readouterr().out)
    assert settings["algorithm"] == "mine" and settings["hyperparameters"]["num_steps"] == 7


def test_factories_are_resolved_from_text_or_taken_as_they_are():
    assert resolve("rlkit.agents.actor_critic:actor_critic") is rlkit.actor_critic
    assert resolve(len) is len
