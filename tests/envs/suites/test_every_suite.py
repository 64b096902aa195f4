"""Every suite that rlkit adapts: the laws of environments and of runs, on one of its ids."""

import dataclasses
import importlib
import importlib.util
import re
from typing import Any

import pytest

import rlkit
from rlkit import testing
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


@pytest.mark.full
@pytest.mark.parametrize("suite", [pytest.param(name, marks=needs(name)) for name in ROWS])
def test_seeds_train_together_and_are_evaluated_from_the_run_alone(suite, tmp_path):
    row = ROWS[suite]
    env = rlkit.EnvConfig(id=f"{suite}/{row.name}", num_envs=2, arguments=row.arguments)
    trainer = rlkit.TrainerConfig(
        total_steps=64, num_checkpoints=1, num_seeds=2, evaluation_episodes=2, run_dir=str(tmp_path)
    )
    hyperparameters = rlkit.PPOConfig(num_steps=16, num_minibatches=2, num_epochs=1)
    config = rlkit.RunConfig(
        algorithm="ppo", env=env, hyperparameters=hyperparameters, trainer=trainer
    )
    with rlkit.build(config) as built:
        evaluation = built.run(0)[-1]
    assert evaluation["return"].shape == (2, 2)  # seeds, episodes
    found = rlkit.load_policy(tmp_path).evaluate(2)
    assert found["return"].shape == (2,)


@pytest.mark.fast
def test_an_id_that_was_left_out_says_why():
    with pytest.raises(UnknownNameError, match=r"leaves it out \(downloads its levels"):
        rlkit.make_env("jumanji/Sokoban-v0", 2)


@pytest.mark.fast
@pytest.mark.parametrize("suite", ADAPTED)
def test_a_suite_that_breaks_when_it_is_imported_names_the_tested_version(suite, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(importlib, "import_module", lambda name: 1 / 0)
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
