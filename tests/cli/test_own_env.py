"""Environments given as `module:Class`: imported if the user types them, never from a file."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from endless_env import SOURCE as ENDLESS
from tiny_command import TINY

from rlkit.cli.main import main
from rlkit.envs import registry

RUN = [*TINY, "--total-steps", "64", "--num-checkpoints", "1", "--evaluation-episodes", "2"]
RUN += ["--no-debug", "--run-dir", "run"]

WALKS = """
import os
import pathlib

import gymnasium
import numpy as np

pathlib.Path("imported").touch()
SIZE = 3


class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0.0, 99.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    max_episode_steps = 5

    def __init__(self, size=5, breaks=False):
        self.size, self.breaks = size, breaks

    def reset(self, *, seed=None, options=None):
        self.count = 0
        pathlib.Path(f"process-{os.getpid()}").touch()
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.count += 1
        if self.breaks and self.count == 2:
            raise RuntimeError("the floor is wet")
        return np.full(2, self.count, np.float32), 1.0, False, self.count >= self.size


class Walk5(Walk):
    def step(self, action):
        return *super().step(action), {}


class Endless(Walk5):
    max_episode_steps = None


def small_walk():
    return Walk5(size=2)
"""
JAX_WALKS = """
import jax.numpy as jnp
from rlkit.envs.probes.space_probes import Counter


class Stairs(Counter):
    pass
"""


@pytest.fixture(autouse=True)
def own_directory(tmp_path, monkeypatch):
    """An empty current directory; modules in it are removed afterwards."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(registry, "_registered", {})
    yield
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def walks(tmp_path):
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").touch()
    (tmp_path / "my_package" / "walks.py").write_text(WALKS)


def failure(capsys, *arguments):
    """The one-line error of a command."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("rlkit: error: ") and err.count("\n") == 1
    return err


@pytest.mark.fast
def test_a_class_in_the_current_directory_can_be_named(walks, capsys, tmp_path):
    assert (
        main(
            [
                "train",
                "ppo",
                "my_package.walks:Walk5",
                "--env-arguments",
                '{"size": 4}',
                "--total-steps=1e4",
                "--dry-run",
            ]
        )
        == 0
    )
    settings = yaml.safe_load(capsys.readouterr().out)
    assert settings["env"]["id"] == "my_package.walks:Walk5"
    assert sys.path[0] == str(tmp_path) and (tmp_path / "imported").exists()
    env = registry.make_env("my_package.walks:Walk5", 2, size=4)
    assert env.spec == ("my_package.walks:Walk5", {"size": 4}) and env.max_episode_steps == 5


@pytest.mark.fast
def test_a_dry_run_refuses_evaluations_without_an_end(walks, capsys):
    command = ["train", "ppo", "my_package.walks:Endless", "--total-steps=1e4", "--dry-run"]
    assert main(command) == 2
    assert "the evaluation environment has no time limit" in capsys.readouterr().err
    assert main([*command, "--max-evaluation-steps=9"]) == 0
    assert main([*command, "--no-enable-evaluation"]) == 0


@pytest.mark.fast
@pytest.mark.parametrize(
    ("env_id", "said"),
    [
        ("my_package.walks:Wlak", "my_package.walks has no 'Wlak'; did you mean 'Walk'"),
        (
            "my_package.walks:SIZE",
            (
                "my_package.walks:SIZE is the int 3; name a gymnasium.Env or JaxEnv class, or a"
                " function"
            ),
        ),
        ("my_package.walks:np", "is the module"),
        ("os:system", "os:system is the builtin_function_or_method"),
        (
            "my_package.walk:Walk5",
            (
                "there is no module 'my_package.walk' in {here} or the installed packages;"
                " start rlkit"
            ),
        ),
        ("my_pakage.walks:Walk5", "there is no module 'my_pakage' in {here}"),
        (
            "my_package.walks:",
            "'my_package.walks:' is not a valid environment class; use module:Class",
        ),
        (
            "my_package/walks.py:Walk5",
            "'my_package/walks.py:Walk5' is not a valid environment class; use module:Class as"
            " Python imports them: my_package.walks:Walk5",
        ),
        ("./my_package/walks.py:Walk5", "as Python imports them: my_package.walks:Walk5"),
        ("./raises.py", "as Python imports them: raises:MyEnv"),
        ("raises.py", "as Python imports them: raises:MyEnv"),
        ("absent.py", "as Python imports them: absent:MyEnv"),
        ("raises.py:Env", "as Python imports them: raises:Env"),
        ("my_package.walks.Walk5", "as Python imports them: my_package.walks:Walk5"),
        ("my_package.walks:Walk5-v0", "is not a valid environment class; use module:Class"),
        ("..walks:Walk5", "is not a valid environment class"),
        (
            "raises:Env",
            (
                "importing raises raised ZeroDivisionError: division by zero ({here}/raises.py,"
                " line 2); fix it"
            ),
        ),
        ("wrong:Env", "importing wrong raised SyntaxError: "),
        (
            "needs:Env",
            (
                "importing needs failed: No module named 'no_such_package' ({here}/needs.py, line"
                " 1); install what"
            ),
        ),
        (
            "leaves:Env",
            (
                "importing leaves ended with exit code 3 ({here}/leaves.py, line 1); move code that"
                " should only run as a script"
            ),
        ),
    ],
)
def test_import_errors_are_reported_in_one_line(env_id, said, walks, capsys, tmp_path):
    modules = {
        "raises": "x = 1\nx / 0",
        "wrong": "def (",
        "needs": "import no_such_package",
        "leaves": "raise SystemExit(3)",
    }
    for name, source in modules.items():
        (tmp_path / f"{name}.py").write_text(source)
    assert said.format(here=tmp_path) in failure(capsys, "train", "ppo", env_id, *RUN)
    assert not (tmp_path / "run").exists()


@pytest.fixture
def hostile_run(walks, tmp_path):
    """A run whose config.yaml names a module that leaves a trace when imported."""
    (tmp_path / "run").mkdir()
    settings = {
        "algorithm": "ppo",
        "env": {"id": "my_package.walks:Walk5", "num_envs": 2, "arguments": {}},
        "trainer": {},
    }
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(settings))
    return settings


COMMANDS = {
    "resume": (["resume", "run"], "add `--env my_package.walks:Walk5`"),
    "evaluate": (["evaluate", "run"], "add `--env my_package.walks:Walk5`"),
    "train": (
        ["train", "--config", "run/config.yaml"],
        "`rlkit train ppo my_package.walks:Walk5 --config run/config.yaml`",
    ),
    "resume another": (
        ["resume", "run", "--env", "os:system"],
        "trained on my_package.walks:Walk5, got --env os:system",
    ),
    "evaluate another": (
        ["evaluate", "run", "--env", "gymnax/CartPole-v1"],
        "walks:Walk5, got --env gymnax/CartPole-v1; use that id: --env my_package.walks:Walk5",
    ),
}


@pytest.mark.fast
@pytest.mark.parametrize("command", COMMANDS)
def test_files_never_import_code(command, hostile_run, capsys, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)  # so that it could be imported
    arguments, said = COMMANDS[command]
    assert said in failure(capsys, *arguments)
    assert "my_package" not in sys.modules and not (tmp_path / "imported").exists()


@pytest.mark.fast
@pytest.mark.parametrize("command", ["resume", "evaluate"])
def test_no_flag_names_an_environment_built_in_python(command, hostile_run, capsys, tmp_path):
    settings = {**hostile_run, "custom": ["env"], "env": {"type": "GymnasiumAdapter"}}
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(settings))
    error = failure(capsys, command, "run", "--env", "my_package.walks:Walk5")
    assert "run was trained on an environment that was built in Python" in error
    assert "rlkit.load_policy('run', env=...)" in error


@pytest.mark.fast
@pytest.mark.parametrize(
    "env_id",
    [
        "gymnasium/my_package.walks:Walk-v0",
        "my_package.walks:Walk-v0",
        "envpool/my_package.walks:W",
    ],
)
@pytest.mark.parametrize("command", ["train", "resume", "evaluate"])
def test_nor_does_any_other_id_in_a_file(
    command, env_id, hostile_run, capsys, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    hostile_run["env"]["id"] = env_id
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(hostile_run))
    arguments = (
        ["train", "--config", "run/config.yaml", "--run-dir", "new"]
        if command == "train"
        else [command, "run"]
    )
    failure(capsys, *arguments)
    assert "my_package" not in sys.modules and not (tmp_path / "imported").exists()


@pytest.mark.fast
def test_the_import_by_gymnasium_is_refused(walks, capsys, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    said = failure(capsys, "train", "ppo", "gymnasium/my_package.walks:Walk-v0", *RUN)
    assert "would import the module 'my_package.walks', which ids never do" in said
    assert not (tmp_path / "imported").exists()


@pytest.mark.process
@pytest.mark.full
@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_training_on_a_class_of_gymnasium(vectorization, walks, tmp_path, capsys):
    """In a process of its own, like a user: workers import it from the current directory."""
    env = "my_package.walks:Walk5"
    arguments = ["--env-arguments", f'{{"vectorization": "{vectorization}", "size": 4}}']
    out = rlkit("train", "ppo", env, *RUN, *arguments)
    assert (
        f"rlkit evaluate run --env {env}" in out
        and f"rlkit resume run --env {env} --total-steps N" in out
    )
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["env"]["id"] == env
    processes = len(list(tmp_path.glob("process-*")))
    assert processes == 1 if vectorization == "sync" else processes >= 2
    if vectorization == "sync":
        assert main(["evaluate", "run", "--env", env, "--episodes", "2"]) == 0
        assert "4.00 ± 0.00" in capsys.readouterr().out
        assert main(["resume", "run", "--env", env, "--total-steps", "128"]) == 0
        assert "128 steps in" in capsys.readouterr().out


def rlkit(*arguments):
    command = [sys.executable, "-m", "rlkit.cli.main", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "NPROC"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_training_on_a_class_of_jax(capsys, tmp_path):
    (tmp_path / "stairs.py").write_text(JAX_WALKS)
    assert main(["train", "ppo", "stairs:Stairs", *RUN]) == 0
    assert "rlkit evaluate run --env stairs:Stairs" in capsys.readouterr().out
    assert main(["evaluate", "run", "--env", "stairs:Stairs", "--episodes", "2"]) == 0


@pytest.mark.full
def test_a_class_of_jax_is_given_a_time_limit(capsys, tmp_path):
    """Which a run that is resumed or evaluated has again, from its config.yaml."""
    (tmp_path / "stairs.py").write_text(ENDLESS)
    limited = ["stairs:Endless", "--env-arguments", '{"max_episode_steps": 3}']
    assert main(["train", "ppo", *limited, *RUN]) == 0
    again = ["--env", "stairs:Endless"]
    assert main(["resume", "run", *again, "--total-steps", "128"]) == 0
    capsys.readouterr()
    assert main(["evaluate", "run", *again, "--episodes", "2"]) == 0
    assert " 3.00 ± 0.00" in capsys.readouterr().out


def test_a_function_will_do(walks, capsys):
    assert main(["train", "ppo", "my_package.walks:small_walk", *RUN]) == 0
    assert " 2.00 ± 0.00" in capsys.readouterr().out


def test_an_environment_that_fails_is_no_mistake_in_the_arguments(walks, capsys, tmp_path):
    env = ["my_package.walks:Walk5", "--env-arguments", '{"breaks": true}']
    assert main(["train", "ppo", *env, *RUN]) == 1
    said = capsys.readouterr().err
    assert (
        "rlkit: error: in evaluation, environment 0 raised RuntimeError: the floor is wet in step 2"
        " (action " in said
    )
    # Not run into one line.
    assert (
        f'\n  File "{tmp_path}/my_package/walks.py", line ' in said.partition("rlkit: error: ")[2]
    )
