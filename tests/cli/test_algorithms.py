"""Every registered algorithm from the command line: training, evaluation, settings as flags."""

import json
from pathlib import Path

import algorithm_rows as rows
import pytest
import yaml
from tiers import by_default

from rlkit.algorithms.registry import algorithm_entry
from rlkit.cli.main import main


def as_flags(settings):
    return [
        word
        for name, value in settings.items()
        for word in (f"--{name.replace('_', '-')}", *words(value))
    ]


def words(value):
    return list(map(str, value)) if isinstance(value, tuple) else [str(value)]


@pytest.mark.parametrize("name", by_default(["sac"], rows.NAMES))
def test_trains_and_evaluates(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    entry, env_id = algorithm_entry(name), rows.training_env(name)
    hyper, network = (
        rows.known(entry.config, rows.SMALL),
        rows.known(rows.agent_kind(name), rows.SMALL_AGENT),
    )
    length = {
        "total_steps": 64,
        "num_checkpoints": 1,
        "evaluation_episodes": 2,
        "max_evaluation_steps": 8,
        "num_envs": 2,
    }
    arguments = as_flags(hyper | network | length)
    assert main(["train", name, env_id, *arguments, "--no-debug", "--run-dir", "run"]) == 0
    assert "rlkit evaluate run" in capsys.readouterr().out
    settings = yaml.safe_load(Path("run/config.yaml").read_text())
    assert (settings["algorithm"], settings["env"]["id"], settings["agent"]) == (
        name,
        env_id,
        entry.agent,
    )
    assert settings["hyperparameters"].items() >= hyper.items()
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["env_steps"] >= 64 and summary["eval_return_mean"] is not None
    assert main(["evaluate", "run", "--episodes", "3", "--checkpoint", "latest", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["env_steps"] == summary["env_steps"] and len(result["return"]) == 3
