"""Shared by the drivers of learning curves: trains seed after seed, and prints each one's curve.

    PYTHONPATH=benchmarks:benchmarks/curves python benchmarks/drivers/curve_rlkit.py dqn-acrobot 0

A curve is, for each tenth of a run after its prefill, the sum of the returns of the training
episodes that ended in it, and how many did.
"""

import argparse
import json
import time

import numpy as np
from cells import CELLS, PARTS

from common import versions


def serve(trainer, packages):
    """Runs a driver.

    `trainer(task)` returns a function of a seed: (sums [10], episodes [10]). rlkit's, which has
    settings to try beside the task's, also takes what `--change` gave.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("cell", choices=sorted(CELLS))
    parser.add_argument("seeds", nargs="+", type=int)
    parser.add_argument("--change", type=json.loads, default={}, help="settings of rlkit, as JSON")
    arguments = parser.parse_args()
    train = trainer(CELLS[arguments.cell].task, **arguments.change)
    print("VERSIONS", json.dumps(versions(*packages)), flush=True)
    for seed in arguments.seeds:
        begun = time.perf_counter()
        sums, episodes = train(seed)
        curve = {
            "seed": seed,
            "return_sums": np.asarray(sums, np.float64).round(3).tolist(),
            "episodes": np.asarray(episodes, np.int64).tolist(),
            "seconds": round(time.perf_counter() - begun, 1),
        }
        print("CURVE", json.dumps(curve), flush=True)


def parts_of(ended_at, returns, task):
    """The curve of episodes that ended after `ended_at` environment steps of the whole run."""
    prefill = task.total_steps - task.env_steps
    ended_at, returns = np.asarray(ended_at, np.int64), np.asarray(returns, np.float64)
    learning = ended_at > prefill
    part = (ended_at[learning] - prefill - 1) * PARTS // task.env_steps
    part = np.minimum(part, PARTS - 1)
    sums = np.bincount(part, weights=returns[learning], minlength=PARTS)
    return sums, np.bincount(part, minlength=PARTS)
