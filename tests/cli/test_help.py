"""The help texts: examples, every setting with its meaning and default, the available names."""

import dataclasses
import gc
import re
import shlex
import subprocess
import sys

import pytest

import rlkit
from rlkit.agents.registry import agent_entry
from rlkit.algorithms.registry import ALGORITHMS
from rlkit.cli import flags, run_settings, train_flags
from rlkit.cli.check_env import CheckEnvFlags
from rlkit.cli.copy import CopyFlags
from rlkit.cli.evaluate import EvaluateFlags
from rlkit.cli.export import ExportFlags
from rlkit.cli.main import COMMANDS, main
from rlkit.cli.plot import PlotFlags
from rlkit.cli.report import ReportFlags
from rlkit.cli.resume import ResumeFlags
from rlkit.cli.sweep_group import SweepGroupFlags
from rlkit.cli.train_flags import FIRST
from rlkit.cli.video import VideoFlags
from rlkit.envs.registry import list_envs
from rlkit.training.config import CheckpointerConfig, LoggerConfig, TrainerConfig
from rlkit.training.run_config import EnvConfig, RunConfig, dump, preset, preset_names
from rlkit.xla_cpu.process import GC_THRESHOLDS

pytestmark = pytest.mark.fast

KINDS = [TrainerConfig, LoggerConfig, CheckpointerConfig]
FLAGS = {
    "resume": ResumeFlags,
    "sweep-group": SweepGroupFlags,
    "copy": CopyFlags,
    "evaluate": EvaluateFlags,
    "plot": PlotFlags,
    "report": ReportFlags,
    "video": VideoFlags,
    "export": ExportFlags,
    "check-env": CheckEnvFlags,
}
PLACEHOLDER, OWN_CLASS = "my_package.my_module:MyEnv", "host_twins:SizedCounter"
RUN_FLAGS = ["--config", "--agent", "--seed", "--num-envs", "--env-arguments", "--dry-run"]


def said_by(capsys, *arguments):
    assert main(arguments) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"], ["help", "help"]])
def test_help_names_every_command_and_shows_examples(arguments, capsys):
    said = said_by(capsys, *arguments)
    assert all(re.search(rf"^  {command} ", said, re.MULTILINE) for command in COMMANDS)
    assert "rlkit train ppo gymnax/CartPole-v1" in said


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_help_says_where_a_run_goes(command, capsys):
    said = said_by(capsys, command, "ppo", "gymnax/CartPole-v1", "--help")
    words = " ".join(said.replace("│", " ").split())
    assert "None: no directory; the command line makes a new one in runs/." in words


def test_version(capsys):
    assert said_by(capsys, "--version") == f"rlkit {rlkit.__version__}\n"


def test_the_package_is_the_command_too():
    command = [sys.executable, "-m", "rlkit", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["rlkit", rlkit.__version__]


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
    said = said_by(capsys, command, "--help")
    assert said.startswith(f"usage: rlkit {command}") and said_by(capsys, "help", command) == said


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
    assert run_settings.run_name(preset("ppo", env_id)).startswith(name)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_help_of_an_algorithm_lists_every_setting(algorithm, capsys):
    said = said_by(capsys, "train", algorithm, "gymnax/CartPole-v1", "--help-all")
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


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_help_shows_the_first_flags_and_counts_the_others(algorithm, capsys):
    command = ["train", algorithm, "gymnax/CartPole-v1"]
    row = re.compile(r"^[^\w\n]*--([a-z][a-z-]*)", re.MULTILINE)
    texts = [said_by(capsys, *command, option) for option in ("--help", "--help-all")]
    first, every = (set(row.findall(text)) for text in texts)
    assert first == {name.replace("_", "-") for name in FIRST} and first < every
    last = texts[0].splitlines()[-1]
    count = len(every - first)
    assert last == f"`rlkit {' '.join(command)} --help-all` shows the other {count} flags."


def test_help_of_a_file_names_the_file(capsys, tmp_path):
    (tmp_path / "mine.yaml").write_text(dump(preset("ppo", "gymnax/Acrobot-v1")))
    said = said_by(capsys, "train", "--config", f"{tmp_path}/mine.yaml", "--help")
    assert f"  rlkit train --config {tmp_path}/mine.yaml --total-steps" in said


NAMES = ["ppo", "gymnax/CartPole-v1"]
EXAMPLES = [[], *([command] for command in COMMANDS), ["train", *NAMES], ["sweep", *NAMES]]


@pytest.mark.parametrize("command", EXAMPLES, ids=" ".join)
def test_help_fits_a_terminal_and_its_examples_can_be_typed(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    said = said_by(capsys, *command, "--help")
    prose = said.partition("examples:")[2]
    assert prose and max(map(len, prose.splitlines())) <= 80
    examples = re.findall(r"^  (rlkit .*?)(?:   .*| > .*)?$", prose, re.MULTILINE)
    assert examples and all(" ".join(["rlkit", *command]) in example for example in examples)
    for example in examples:
        name, *arguments = shlex.split(example)[1:]
        check_command(name, arguments)


def check_command(name, arguments):
    """Runs the command where that writes nothing, else reads its flags."""
    if name == "train" and "--config" not in arguments and "--help" not in arguments:
        names = [OWN_CLASS if word == PLACEHOLDER else word for word in arguments[:2]]
        config = preset(*names)
        train_flags.override(config, arguments[2:], command="rlkit train")
    elif name == "sweep":
        assert main(["sweep", *arguments, "--dry-run"]) == 0
    elif name in FLAGS:
        flags.parse(FLAGS[name], arguments, command=f"rlkit {name}")
    elif name == "list" or "--help" in arguments:
        assert main([name, *arguments]) == 0
    else:
        assert flags.peek(arguments, "--config").endswith("config.yaml")


def test_settings_have_names_of_their_own():
    """Flags have no prefix, so two with the same name would collide."""
    for entry in ALGORITHMS.values():
        # The latter holds those of loggers and checkpoints.
        kinds = [
            entry.config,
            agent_entry(entry.agent).config,
            TrainerConfig,
        ]
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
    own = [env_id for env_id in list_envs() if env_id.startswith("rlkit/")]
    assert said_by(capsys, "list", "envs", "--suite", "rlkit").split() == own
    assert said_by(capsys, "list", "envs", "--suite=rlkit").split() == own
    assert said_by(capsys, "list", "presets").splitlines() == [
        name.replace("/", " ", 1) for name in preset_names()
    ]
    assert all(name in said_by(capsys, "list", "algorithms") for name in ALGORITHMS)
    assert "actor_critic" in said_by(capsys, "list", "agents")


def test_the_list_of_a_suite_says_what_it_needs(capsys, monkeypatch):
    """On stderr, so that the list can be piped."""
    has = set()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name in has or None)
    assert main(["list", "envs", "--suite", "playground"]) == 0
    listed, told = capsys.readouterr()
    assert "playground/CartpoleBalance" in listed.split()
    assert told == (
        "playground needs the package 'mujoco_playground', which is not installed;"
        " pip install 'playground>=0.2,<1'\n"
    )
    has.add("mujoco_playground")
    assert main(["list", "envs", "--suite", "playground"]) == 0
    assert capsys.readouterr() == (listed, "")
    has |= {"mujoco", "ale_py"}
    assert main(["list", "envs", "--suite", "gymnasium"]) == 0
    listed, told = capsys.readouterr()
    assert {"gymnasium/CartPole-v1", "gymnasium/ALE/Pong-v5"} <= set(listed.split())
    assert told == (
        "each Box2D environment of gymnasium needs the package 'Box2D', which is not installed;"
        ' pip install "gymnasium[box2d]"\n'
        "each Atari game of gymnasium needs the package 'cv2', which is not installed;"
        " pip install ale-py opencv-python-headless\n"
    )
