"""Directories of runs, written without training."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from rlkit.training.logs.jsonl_logger import JsonlLogger
from rlkit.training.logs.records import Kind, Record

STEPS = 1000  # from one evaluation to the next


def write_run(
    directory: Path,
    *,
    algorithm: str = "ppo",
    env: str = "gymnax/CartPole-v1",
    seeds: int = 1,
    points: int = 5,
    lift: float = 0.0,
    first_step: int = 0,
    settings: dict[str, Any] | None = None,
    summary: dict[str, Any] | None = None,
    said: Sequence[tuple[Kind, str]] = (),
) -> Path:
    """A run whose returns rise by 10 from one evaluation to the next; `lift` raises them all.

    Seed s is s above the first. `said` are its last records.
    """
    directory.mkdir(parents=True)
    config = {"algorithm": algorithm, "env": {"id": env}, **(settings or {})}
    (directory / "config.yaml").write_text(yaml.safe_dump(config))
    if summary is not None:
        (directory / "summary.json").write_text(json.dumps(summary))
    logger = JsonlLogger(directory / "metrics.jsonl")
    for point in range(points):
        steps = first_step + STEPS * point
        when = {"env_steps": steps, "updates": point, "wall_seconds": 2.0 * point}
        values = [lift + 10.0 * point + seed for seed in range(seeds)]
        rows = [*enumerate(values), (None, sum(values) / seeds)] if seeds > 1 else [(None, *values)]
        for seed, value in rows:
            metrics = {"eval/avg_return": value, "eval/avg_length": math.nan if point == 1 else 5.0}
            logger.log(Record(kind="eval", seed=seed, metrics=metrics, **when))
        train = {"train/loss": 1 / (point + 1), "train/steps_per_second": 250.0, "train/own": 1.0}
        logger.log(Record(kind="train", metrics=train, **when))
    for kind, text in said:
        when = {"env_steps": STEPS * (points - 1), "updates": points, "wall_seconds": 2.0 * points}
        logger.log(Record(kind=kind, text=text, **when))
    logger.close()
    return directory
