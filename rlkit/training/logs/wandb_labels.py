"""The labels of a run at Weights & Biases: project, name, group and so on."""

import os
from pathlib import Path

from rlkit.training.config import LoggerConfig
from rlkit.validation import PlainData


def choose_labels(
    config: LoggerConfig,
    directory: Path | None,
    before: PlainData,
    *,
    seed: int | None,
    group: str | None,
) -> PlainData:
    """Labels of the config, else of `before`: the run that this one continues.

    Else of the environment, else a default; None leaves a label to W&B. `seed` is the index of the
    only seed that the run shows (None: it shows all), `group` the default of its group.
    """
    of_directory = directory.resolve().name if directory else None
    tags = os.environ.get("WANDB_TAGS", "")
    given = {
        "project": config.wandb_project,
        "entity": config.wandb_entity,
        "name": _name_of(config.wandb_name, seed),
        "group": config.wandb_group,
        "tags": list(config.wandb_tags),
        "notes": config.wandb_notes,
    }
    otherwise = {
        "project": os.environ.get("WANDB_PROJECT", "rlkit"),
        "entity": os.environ.get("WANDB_ENTITY"),
        "name": _name_of(os.environ.get("WANDB_NAME", of_directory), seed),
        "group": os.environ.get("WANDB_RUN_GROUP", group),
        "tags": [tag.strip() for tag in tags.split(",") if tag.strip()],
        "notes": os.environ.get("WANDB_NOTES"),
    }
    return {
        label: value or before.get(label) or otherwise[label] or None
        for label, value in given.items()
    }


def _name_of(name: str | None, seed: int | None) -> str | None:
    return f"{name}-seed_{seed}" if name and seed is not None else name
