"""Every suite that rlkit adapts: the laws of environments and of runs, on one of its ids."""

import dataclasses
import importlib
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tiny_command import TINY

import rlkit
from rlkit import testing
from rlkit.cli.main import main
from rlkit.envs.suites.table import ADAPTED
from rlkit.errors import ConfigError, UnknownNameError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """The id that stands for a suite."""

    name: str
    replay: str
    """An algorithm with a replay buffer that learns in it."""
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Such that random actions reach the time limit."""


ROWS: dict[str, Row] = {
    "brax": Row(name="inverted_pendulum", replay="sac", arguments={"episode_length": 8}),
    "craftax": Row(
        name="Craftax-Classic-Symbolic-v1", replay="dqn", arguments={"params": {"max_timesteps": 9}}
    ),
    "jumanji": Row(name="Snake-v1", replay="dqn", arguments={"time_limit": 5}),
    "navix": Row(name="Navix-Empty-5x5-v0", replay="dqn", arguments={"max_steps": 9}),
    "minigrid": Row(name="MiniGrid-Empty-5x5-v0", replay="dqn", arguments={"max_steps": 7}),
    "pgx": Row(name="minatar-breakout", replay="dqn", arguments={"time_limit": 9}),
    "playground": Row(
        name="CartpoleBalance", replay="sac", arguments={"config": {"episode_length": 8}}
    ),
    "popgym": Row(name="RepeatFirstEasy-v0", replay="dqn"),
    "xminigrid": Row(name="MiniGrid-Empty-5x5", replay="dqn", arguments={"max_steps": 9}),
}


def needs(suite: str) -> pytest.MarkDecorator:
    """Skips a test where the package of the suite is not installed."""
    package = ADAPTED[suite].package
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"needs {package}")


CASES = [
    pytest.param(suite, law, algorithm, id=f"{suite}-{law}-{algorithm}", marks=needs(suite))
    for suite, row in ROWS.items()
    for law in testing.list_laws("jittable" if ADAPTED[suite].is_jittable else "host")
    for algorithm in (("ppo", row.replay) if law in ("trains", "resumes_exactly") else ("ppo",))
]


@pytest.mark.fast
def test_every_suite_has_a_row():
    assert ROWS.keys() == ADAPTED.keys()
    assert all(row.name in ADAPTED[suite].ids for suite, row in ROWS.items())


@pytest.mark.fast
def test_a_suite_lists_what_works_and_says_why_the_rest_does_not():
    for row in ADAPTED.values():
        assert len(set(row.ids)) == len(row.ids) > 0
        assert not row.left_out.keys() & set(row.ids)
        assert all(row.left_out.values())


@pytest.mark.full
@pytest.mark.parametrize(("suite", "law", "algorithm"), CASES)
def test_law(suite, law, algorithm, tmp_path):
    row = ROWS[suite]
    arguments: dict[str, Any] = {"env_arguments": row.arguments}
    if law in ("trains", "resumes_exactly", "exports_the_same_actions"):
        arguments["algorithm"] = algorithm
    testing.check_law(law, f"{suite}/{row.name}", tmp_path, **arguments)


COMMANDS = [
    pytest.param(suite, algorithm, id=f"{suite}-{algorithm}", marks=needs(suite))
    for suite, row in ROWS.items()
    for algorithm in ("ppo", row.replay)
]
_REPLAY = ["--num-envs", "2", "--hidden-sizes", "8", "--capacity", "64", "--batch-size", "4"]
_REPLAY += ["--warmup-steps", "8"]
# Tiny, and without schedules, which a longer run would stretch.
SMALL = {
    "ppo": [*TINY, "--learning-rate-schedule", "constant"],
    "dqn": [*_REPLAY, "--epsilon-start", "0.1", "--epsilon-end", "0.1"],
    "sac": _REPLAY,
}


@pytest.mark.full
@pytest.mark.process
@pytest.mark.parametrize(("suite", "algorithm"), COMMANDS)
def test_it_is_trained_resumed_evaluated_and_exported_from_the_command_line(
    suite, algorithm, tmp_path, capsys
):
    """Two seeds in one program; a run that was resumed ends as one that was never stopped."""
    row, long, short = ROWS[suite], str(tmp_path / "long"), str(tmp_path / "short")
    train = ["train", algorithm, f"{suite}/{row.name}", "--num-seeds", "2"]
    train += ["--env-arguments", json.dumps(row.arguments), "--evaluation-episodes", "2"]
    train += ["--no-debug", *SMALL[algorithm]]

    def ended(run: str, *command: str) -> str:
        assert main([*command]) == 0
        return json.loads((Path(run) / "summary.json").read_text())["params_sha256"]

    # Outer iterations of equal length are one program: others may round physics otherwise.
    whole, half = (["--total-steps", "120"], ["--total-steps", "64"])
    uninterrupted = ended(long, *train, *whole, "--num-checkpoints", "4", "--run-dir", long)
    stopped = ended(short, *train, *half, "--num-checkpoints", "2", "--run-dir", short)
    resumed = ended(short, "resume", short, *whole)
    assert stopped != resumed == uninterrupted
    capsys.readouterr()
    assert main(["evaluate", short, "--episodes", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["return"]) == 2
    assert main(["export", short, "--format", "stablehlo"]) == 0
    assert list((tmp_path / "short" / "exports").glob("*/manifest.json"))


@pytest.mark.fast
def test_an_id_that_was_left_out_says_why():
    with pytest.raises(UnknownNameError, match=r"leaves it out \(downloads its levels"):
        rlkit.make_env("jumanji/Sokoban-v0", 2)


@pytest.mark.fast
@pytest.mark.parametrize("suite", ADAPTED)
def test_a_suite_that_breaks_when_it_is_imported_names_the_tested_version(suite, monkeypatch):
    whole = importlib.import_module

    def broken(name, package=None):  # others may be imported here for the first time
        return 1 / 0 if name == f"rlkit.envs.suites.{suite}" else whole(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(importlib, "import_module", broken)
    wanted = rf"cannot be imported \(ZeroDivisionError.*{re.escape(ADAPTED[suite].requirement)}"
    with pytest.raises(ConfigError, match=wanted):
        rlkit.make_env(f"{suite}/{ADAPTED[suite].ids[0]}", 2)


@pytest.mark.fast
@pytest.mark.parametrize("suite", ADAPTED)
def test_a_missing_package_is_one_error_that_says_what_to_install(suite, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    wanted = f"'{ADAPTED[suite].package}', which is not installed; {ADAPTED[suite].install}"
    with pytest.raises(ConfigError) as error:
        rlkit.make_env(f"{suite}/{ADAPTED[suite].ids[0]}", 2)
    assert wanted in str(error.value)
