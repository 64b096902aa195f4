"""What becomes of metrics in records: averages, what is left out, and what ends a run."""

import math

import numpy as np
import pytest

from rlkit.training.logs.metrics import Moment, eval_records, train_records

MOMENT = Moment(env_steps=64, updates=8, wall_seconds=1.0)


def rows(metrics, num_seeds):
    records = train_records(metrics, MOMENT, num_seeds=num_seeds, steps_per_second=5.0)
    return {record.seed: record.metrics for record in records}


@pytest.mark.fast
def test_what_was_not_measured_has_no_entry():
    metrics = {
        "loss": np.float32(1.5),
        "actor_loss": np.float32(math.nan),
        "sum/skipped_updates": np.float32(0.0),
    }
    assert rows(metrics, 1) == {
        None: {"train/loss": 1.5, "train/skipped_updates": 0.0, "train/steps_per_second": 5.0}
    }
    episodes = {
        "sum/episodes": np.int32(0),
        "sum/episode_return": np.float32(0),
        "sum/episode_length": np.float32(0),
    }
    assert set(rows(metrics | episodes, 1)[None]) == {
        f"train/{n}" for n in ("loss", "skipped_updates", "episodes", "steps_per_second")
    }


@pytest.mark.fast
def test_of_several_seeds_each_has_what_it_measured():
    found = rows(
        {
            "loss": np.array([1.0, 3.0]),
            "actor_loss": np.array([math.nan, 2.0]),
            "other": np.full(2, math.nan),
        },
        2,
    )
    assert found[0] == {"train/loss": 1.0}
    assert found[1] == {"train/loss": 3.0, "train/actor_loss": 2.0}
    assert found[None] == {
        "train/loss": 2.0,
        "train/actor_loss": 2.0,
        "train/steps_per_second": 5.0,
    }


@pytest.mark.fast
def test_evaluations_say_what_is_nan():
    (record,) = eval_records(
        {"return": np.array([1.0, 3.0]), "error": np.float32(math.nan)}, MOMENT, num_seeds=1
    )
    assert record.metrics["eval/avg_return"] == 2.0 and math.isnan(record.metrics["eval/error"])
