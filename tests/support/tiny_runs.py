"""A run of two outer iterations that takes a second, and what tests do to its directory."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from rlkit.training.run_config import RunConfig, from_dict

_SETTINGS: dict[str, Any] = {
    "algorithm": "ppo",
    "env": {"id": "probe/Counter", "num_envs": 2},
    "hyperparameters": {"num_steps": 8, "num_minibatches": 2, "num_epochs": 1},
    "network": {"hidden_sizes": [8]},
}
_TRAINER = {
    "num_checkpoints": 2,
    "epochs_per_checkpoint": 1,
    "evaluation_episodes": 2,
    "debug": False,
    "logger_config": {"console": False},
}


def settings_of(run_dir: Path | str, **trainer: object) -> RunConfig:
    """The settings of the run, with others of the trainer."""
    return from_dict(_SETTINGS | {"trainer": _TRAINER | trainer | {"run_dir": str(run_dir)}})


def edit_settings(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Edits config.yaml."""
    settings = yaml.safe_load((run / "config.yaml").read_text())
    change(settings)
    (run / "config.yaml").write_text(yaml.safe_dump(settings))


def set_trainer(run: Path, **changes: object) -> None:
    """Edits the settings of the trainer in config.yaml."""
    edit_settings(run, lambda settings: settings["trainer"].update(changes))


def edit_records(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Edits what all checkpoints record, checksums included."""
    from rlkit.training.files.stored_step import sealed

    for path in (run / "checkpoints").glob("*/record/metadata"):
        body = json.loads(path.read_text())["body"]
        change(body)
        path.write_text(json.dumps(sealed(body)))
