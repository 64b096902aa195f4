"""The help texts: examples, every setting with its meaning and default, the available names."""

import dataclasses
import gc
import re
import sys

import pytest

import rlkit
from rlkit.agents.registry import agent_entry
from rlkit.algorithms.registry import ALGORITHMS
from rlkit.cli import flags, train
from rlkit.cli.main import COMMANDS, main
from rlkit.envs.registry import list_envs
from rlkit.training.config import CheckpointerConfig, LoggerConfig, TrainerConfig
from rlkit.training.run_config import EnvConfig, RunConfig, preset, preset_names
from rlkit.xla_cpu.process import GC_THRESHOLDS

pytestmark = pytest.mark.fast

KINDS = [TrainerConfig, LoggerConfig, CheckpointerConfig]
RUN_FLAGS = ["--config", "--agent", "--seed", "--num-envs", "--env-arguments", "--dry-run"]


def said_by(capsys, *arguments):
    assert main(arguments) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_names_every_command_and_shows_examples(arguments, capsys):
    said = said_by(capsys, *arguments)
    assert all(re.search(rf"^  {command} ", said, re.MULTILINE) for command in COMMANDS)
    assert "rlkit train ppo gymnax/CartPole-v1" in said


def test_version(capsys):
    assert said_by(capsys, "--version") == f"rlkit {rlkit.__version__}\n"


def test_gc_thresholds_are_raised_in_processes_of_the_command_alone(monkeypatch):
    before, usual = gc.get_threshold(), (700, 10, 10)
    try:
        gc.set_threshold(*usual)
        main(["--version"])
        assert gc.get_threshold() == usual
        monkeypatch.setattr(sys, "argv", ["rlkit", "--version"])
        monkeypatch.setenv("RLKIT_CPU_TUNING", "off")
        main()
        assert gc.get_threshold() == usual
        monkeypatch.setenv("RLKIT_CPU_TUNING", "on")
        main()
        assert gc.get_threshold() == GC_THRESHOLDS
    finally:
        gc.set_threshold(*before)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    assert said_by(capsys, command, "--help").startswith(f"usage: rlkit {command}")


def test_help_of_train_lists_the_algorithms(capsys):
    said = said_by(capsys, "train", "--help")
    assert all(name in said and entry.summary in said for name, entry in ALGORITHMS.items())


def test_help_of_train_names_every_kind_of_environment(capsys):
    said = said_by(capsys, "train", "--help")
    assert all(
        re.search(rf"^  {kind} ", said, re.MULTILINE)
        for kind in ("gymnax/NAME", "gymnasium/NAME", "envpool/NAME")
    )
    assert re.search(r"^  module:Class ", said, re.MULTILINE)
    assert (
        "rlkit train ppo my_package.my_module:MyEnv" in said
        and "rlkit train ppo gymnasium/Hopper-v5" in said
    )


@pytest.mark.parametrize(
    ("env_id", "name"),
    [
        ("gymnax/CartPole-v1", "ppo-CartPole-v1-s0-"),
        ("gymnasium/ALE/Pong-v5", "ppo-ALE-Pong-v5-s0-"),
        ("my_package.my_module:MyEnv", "ppo-MyEnv-s0-"),
    ],
)
def test_a_run_is_named_after_its_environment(env_id, name):
    assert train._run_name(preset("ppo", env_id)).startswith(name)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_help_of_an_algorithm_lists_every_setting(algorithm, capsys):
    said = said_by(capsys, "train", algorithm, "gymnax/CartPole-v1", "--help")
    entry = ALGORITHMS[algorithm]
    kinds = [entry.config, agent_entry(entry.agent).config, *KINDS, EnvConfig, RunConfig]
    fields = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    parts = {
        "algorithm",
        "env",
        "id",
        "hyperparameters",
        "network",
        "trainer",
        "logger_config",
        "checkpointer_config",
    }
    renamed = {"arguments": "env_arguments"}
    for name in fields - parts:
        assert re.search(rf"--{renamed.get(name, name).replace('_', '-')}\b", said), name


def test_settings_have_names_of_their_own():
    """Flags have no prefix, so two with the same name would collide."""
    for entry in ALGORITHMS.values():
        kinds = [
            entry.config,
            agent_entry(entry.agent).config,
            TrainerConfig,
        ]  # the latter holds those of loggers and checkpoints
        names = [*RUN_FLAGS, *(flag for kind in kinds for flag in flags.flags(kind))]
        assert len(names) == len(set(names))


def test_help_shows_the_values_of_the_preset(capsys):
    said = " ".join(
        said_by(capsys, "train", "ppo", "gymnax/Acrobot-v1", "--help").replace("│", "").split()
    )
    assert "(default: 16)" in said.partition("--num-envs")[2][:120]
    assert "(default: 500000)" in said.partition("--total-steps")[2][:300]


def test_list(capsys):
    assert said_by(capsys, "list", "envs").split() == list_envs()
    assert said_by(capsys, "list", "presets").splitlines() == [
        name.replace("/", " ", 1) for name in preset_names()
    ]
    assert all(name in said_by(capsys, "list", "algorithms") for name in ALGORITHMS)
    assert "actor_critic" in said_by(capsys, "list", "agents")
