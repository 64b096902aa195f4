"""`rlkit check-env`: the report, the exit code, and wrong arguments."""

import json
import re
import sys
import threading

import pytest

from rlkit.cli import check_env
from rlkit.cli.main import main
from rlkit.envs import registry

pytestmark = pytest.mark.fast
MODULE = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Maze(gymnasium.Env):
    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Discrete(2)

    def __init__(self, size=3, values=5):
        self.size, self.values = size, values

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = self.size + self.np_random.integers(3)
        return self.np_random.random(2, np.float32), {}

    def step(self, action):
        self.left -= 1
        result = self.np_random.random(2, np.float32), 1.0, self.left <= 0, False, {}
        return result[: self.values]
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "check_env_maze.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    yield "check_env_maze:Maze"
    sys.modules.pop("check_env_maze", None)


def test_a_sound_environment_exits_with_0(capsys):
    assert main(["check-env", "gymnasium/CartPole-v1", "--num-steps", "50"]) == 0
    assert capsys.readouterr().out.startswith("gymnasium/CartPole-v1: no problems found\n  steps ")


def test_warnings_exit_with_0(capsys):
    assert main(["check-env", "gymnasium/CliffWalking-v1"]) == 0
    out = capsys.readouterr().out
    assert (
        "0 error(s), 1 warning(s)\n  warning " in out
        and "why: evaluation needs one" in out
        and "fix: pass max_ep" in out
    )
    assert (
        main(
            [
                "check-env",
                "gymnasium/CliffWalking-v1",
                "--env-arguments",
                '{"max_episode_steps": 30}',
            ]
        )
        == 0
    )
    assert "warning" not in capsys.readouterr().out


def test_errors_in_a_class_of_the_users_exit_with_1(module, capsys):
    assert main(["check-env", module, "--seed", "3"]) == 0
    assert f"{module}: no problems found" in capsys.readouterr().out
    assert main(["check-env", module, "--env-arguments", '{"values": 4}']) == 1
    out = capsys.readouterr().out
    assert (
        f"{module}.step returned 4 values instead of five" in out
        and "fix: return obs, reward, terminated" in out
    )


def test_one_json_object(module, capsys):
    assert main(["check-env", module, "--env-arguments", '{"values": 4}', "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["env"] == module and found["ok"] is False and found["measured"]["steps"] == 1
    assert [finding["severity"] for finding in found["findings"]] == ["error"]
    assert set(found["findings"][0]) == {"severity", "what", "why", "fix"}


MISTAKES = {
    "nothing": ([], "ENV"),
    "unknown id": (["gymnasium/CartPol-v1"], "did you mean 'gymnasium/CartPole-v1'"),
    "no suite": (["CartPole-v1"], "has no suite"),
    "no module": (["no_such_module:Maze"], "no module 'no_such_module'"),
    "no class": (["json:Maze"], "has no 'Maze'"),
    "steps": (["gymnasium/CartPole-v1", "--num-steps", "0"], "--num-steps: input should"),
    "not JSON": (["gymnasium/CartPole-v1", "--env-arguments", "{a"], "--env-arguments is not JSON"),
    "arguments": (
        ["gymnasium/CartPole-v1", "--env-arguments", '{"size": 3}'],
        "unexpected keyword argument 'size'",
    ),
    "arguments of make_env": (
        ["gymnasium/CartPole-v1", "--env-arguments", '{"num_envs": 3}'],
        "'num_envs' is no argument of an environment",
    ),
    "flag": (["gymnasium/CartPole-v1", "--num-step", "3"], "did you mean '--num-steps'"),
    "download": (["gymnax/MNISTBandit-bsuite"], "cannot run offline"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_exit_with_2_and_one_line(mistake, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(check_env, "PATIENCE", 1000.0)
    arguments, fix = MISTAKES[mistake]
    assert main(["check-env", *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith("rlkit: error: ") and err.count("\n") == 1 and fix in err


def test_stages_are_shown_when_it_takes_long(capsys, monkeypatch):
    monkeypatch.setattr(check_env, "PATIENCE", 0.0)
    assert main(["check-env", "probe/Counter", "--num-steps", "20", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["env"] == "probe/Counter"
    assert re.search(r"^rlkit: \d+ s, compiling step \.\.\.$", err, re.MULTILINE)
    assert re.search(r"^rlkit: \d+ s, playing \d+ random steps \.\.\.$", err, re.MULTILINE)
    assert main(["check-env", "gymnasium/CartPole-v1", "--num-steps", "50"]) == 0
    assert "repeating episodes with the same seed" in capsys.readouterr().err


def test_nothing_is_shown_when_it_is_quick(capsys, monkeypatch):
    monkeypatch.setattr(check_env, "PATIENCE", 1000.0)
    before = threading.active_count()
    assert main(["check-env", "probe/Counter", "--num-steps", "20"]) == 0
    assert not capsys.readouterr().err and threading.active_count() == before


def test_help_teaches(capsys):
    assert main(["check-env", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for part in (
        "Exit code 0",
        "my_package.my_module:MyEnv --env-arguments",
        "--num-steps",
        "--json",
        "Gymnasium's checker",
    ):
        assert part in out
    assert main(["--help"]) == 0
    assert "check-env" in capsys.readouterr().out
