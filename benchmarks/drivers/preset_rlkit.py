"""Trains a preset as `rlkit train` does, and prints what each seed reached.

    PYTHONPATH=benchmarks:benchmarks/learning python benchmarks/drivers/preset_rlkit.py \\
        ppo/gymnax/CartPole-v1 0 1 2 3 4

Seeds that follow each other are one program on a jittable environment; on the host, they are
trained one after the other. Seed n of several is what `--seed n` alone would be, up to rounding.
What is training stays in runs/learning/ until it is done, and is resumed if it was stopped.
"""

import argparse
import dataclasses
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from goals import GOALS, settings

import rlkit
from common import versions
from records import HERE
from rlkit.envs.suites.table import ADAPTED
from rlkit_parts import PACKAGES

RUNS = HERE.parent / "runs" / "learning"
LAST = 0.1  # of the steps of a run: the measure "training" is over its episodes


def main() -> None:
    """Runs the driver."""
    parser = argparse.ArgumentParser()
    parser.add_argument("preset", choices=GOALS)
    parser.add_argument("seeds", nargs="+", type=int)
    arguments = parser.parse_args()
    print("VERSIONS", json.dumps(versions(*PACKAGES, "gymnasium", "mujoco")), flush=True)
    suite = arguments.preset.split("/")[1]
    jittable = ADAPTED[suite].is_jittable if suite in ADAPTED else suite != "gymnasium"
    for first, count in groups(arguments.seeds, jittable):
        directory = run_directory(arguments.preset, first, count)
        for row in train(arguments.preset, first, count, directory):
            print("ROW", json.dumps(row), flush=True)
        shutil.rmtree(directory)


def groups(seeds: list[int], jittable: bool) -> list[tuple[int, int]]:
    """(first, how many) of the seeds that are trained together."""
    found: list[tuple[int, int]] = []
    for seed in sorted(seeds):
        if jittable and found and seed == sum(found[-1]):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((seed, 1))
    return found


def run_directory(name: str, first: int, count: int) -> Path:
    """Where seeds are trained: another place once the preset's file has changed."""
    told = json.dumps([settings(name), GOALS[name].episodes])
    digest = hashlib.sha256(told.encode()).hexdigest()[:8]
    return RUNS / f"{name.replace('/', '--')}--{first}-{count}-{digest}"


def train(name: str, first: int, count: int, directory: Path) -> list[dict[str, Any]]:
    """A row for each of `count` seeds from `first`, trained or resumed in `directory`."""
    algorithm, _, env_id = name.partition("/")
    preset = rlkit.preset(algorithm, env_id)
    trainer_config = dataclasses.replace(
        preset.trainer,
        num_seeds=count,
        evaluation_episodes=GOALS[name].episodes,
        run_dir=str(directory),
        restore_checkpoint="auto",
        debug=False,
    )
    with rlkit.build(dataclasses.replace(preset, trainer=trainer_config, seed=first)) as trainer:
        trainer.run(first)
    run = rlkit.load_run(directory)
    steps, returns = run.arrays("eval/avg_return")  # [K], [S, K]
    trained_at, trained = run.arrays("train/avg_return")
    counted_at, episodes = run.arrays("train/episodes")
    episodes = episodes[:, np.isin(counted_at, trained_at)]  # where any seed ended one
    late = trained_at > (1 - LAST) * steps[-1]
    return [
        {
            "seed": first + i,
            "env_steps": int(steps[-1]),
            "evaluation": round(float(returns[i, -1]), 3),
            "training": round(_weighted(trained[i, late], episodes[i, late]), 3),
            "steps": steps.astype(int).tolist(),
            "returns": np.round(returns[i], 3).tolist(),
            "seconds": round(run.summary["wall_seconds"] / count, 1),
        }
        for i in range(count)
    ]


def _weighted(returns: np.ndarray, episodes: np.ndarray) -> float:
    """The mean over episodes of means over some of them; NaN where none ended."""
    known = np.isfinite(returns)
    return float(np.average(returns[known], weights=episodes[known])) if known.any() else np.nan


if __name__ == "__main__":
    rlkit.xla_cpu.enable()
    main()
