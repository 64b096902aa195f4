"""How a run is rounded to whole outer iterations, every number by hand."""

import pytest

from rlkit.errors import ConfigError
from rlkit.training.config import TrainerConfig, make_plan
from rlkit.validation import validate

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("settings", "outer", "epochs", "total"),
    [
        ({"total_steps": 160}, 10, 1, 160),  # 10 iterations of 16 steps: fewer than 20 outer ones
        ({"total_steps": 161}, 11, 1, 176),  # rounded up
        ({"total_steps": 1}, 1, 1, 16),
        ({"total_steps": 16 * 100}, 20, 5, 1600),
        ({"total_steps": 16 * 101}, 17, 6, 16 * 102),
        ({"total_steps": 160, "num_checkpoints": 5}, 5, 2, 160),
        ({"total_steps": 160, "num_checkpoints": 4}, 4, 3, 192),
        ({"total_steps": 160, "num_checkpoints": 1}, 1, 10, 160),
        ({"total_steps": 16, "num_checkpoints": 5}, 1, 1, 16),
        ({"total_steps": 160, "epochs_per_checkpoint": 4}, 3, 4, 192),
        ({"num_checkpoints": 3}, 3, 1, 48),
        ({"num_checkpoints": 3, "epochs_per_checkpoint": 2}, 3, 2, 96),
        ({"epochs_per_checkpoint": 2}, 20, 2, 640),
        ({"total_steps": 3 * 10**9, "num_checkpoints": 3}, 3, 62_500_000, 3 * 10**9),
    ],
)
def test_rounding(settings, outer, epochs, total):
    plan = make_plan(TrainerConfig(**settings), env_steps_per_iteration=16)
    assert (plan.num_checkpoints, plan.epochs_per_checkpoint, plan.total_steps) == (
        outer,
        epochs,
        total,
    )
    assert plan.steps_per_checkpoint == epochs * 16


def test_prefill_counts_into_total_steps():
    plan = make_plan(TrainerConfig(total_steps=100), env_steps_per_iteration=10, prefill_steps=30)
    assert (plan.num_checkpoints, plan.epochs_per_checkpoint, plan.total_steps) == (7, 1, 100)
    plan = make_plan(TrainerConfig(num_checkpoints=2), env_steps_per_iteration=10, prefill_steps=30)
    assert plan.total_steps == 50


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({}, "length of training is not set; set total_steps"),
        (
            {"total_steps": 10, "num_checkpoints": 2, "epochs_per_checkpoint": 2},
            "leave out one of the three",
        ),
        ({"total_steps": 30}, "does not exceed the 30 random steps"),
    ],
)
def test_contradictions(settings, match):
    with pytest.raises(ConfigError, match=match):
        make_plan(TrainerConfig(**settings), env_steps_per_iteration=10, prefill_steps=30)


@pytest.mark.parametrize(
    "settings",
    [
        {"total_steps": 0},
        {"num_checkpoints": -1},
        {"total_steps": 1.5},
        {"evaluation_episodes": 0},
        {"restore_checkpoint": -1},
    ],
)
def test_sizes_out_of_range(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        validate(TrainerConfig(**{"total_steps": 100} | settings))
