"""The progress of a run and the metadata of its checkpoints: counted, written, read, refused."""

import dataclasses
import json

import pytest

from rlkit.errors import CheckpointError
from rlkit.training.config import Plan
from rlkit.training.files.checkpoint_metadata import CheckpointMetadata
from rlkit.training.files.checkpointer import Checkpointer
from rlkit.training.health import Health
from rlkit.training.policy import load_policy
from rlkit.training.run_progress import Parent, RunProgress

PLAN = Plan(
    num_checkpoints=3, epochs_per_checkpoint=2, env_steps_per_iteration=16, prefill_steps=20
)
PROGRESS = RunProgress(
    outer_iteration=2,
    env_steps=84,
    updates=2**40,
    skipped_in_a_row=(4.0, 0.0),
    seed_returns=(1.5, float("inf")),
    return_std=0.25,
    wall_seconds=3.5,
    seed=3,
    keys=[[0, 3], [0, 4]],
    parent=Parent(directory="/runs/old/checkpoints", step=1),
)
METADATA = CheckpointMetadata(
    progress=PROGRESS,
    plan=PLAN,
    num_seeds=2,
    normalize_observations=True,
    logger={"size": 120},
    description={"algorithm": "ppo", "seed": 3},
    fingerprint={"backend": "cpu", "nproc": None},
    versions={"jax": "0.10"},
    callbacks={"EarlyStopping": {"best": 1.5, "since": 2}},
    replay=False,
    metrics={"train/loss": 0.5},
    environments=1200,
    devices_per_seed=4,
    seed_shares=2,
    processes=2,
    health=Health(told=("endless_episodes",), in_a_row={"x": (1, 0)}, first_return=(1.5, 2.5)),
)
OPTIONAL = {
    "callbacks",
    "devices_per_seed",
    "environments",
    "has_started",
    "health",
    "metrics",
    "processes",
    "replay",
    "seed_peaks",
    "seed_shares",
    "skipped_in_a_row",
    "skipped_updates",
    "non_finite_steps",
}
REQUIRED = [
    field.name
    for kind in (RunProgress, CheckpointMetadata)
    for field in dataclasses.fields(kind)
    if field.name not in OPTIONAL | {"progress"}
]


def through_json(metadata):
    return json.loads(json.dumps(metadata.to_metadata()))


@pytest.mark.fast
def test_metadata_round_trip():
    assert CheckpointMetadata.from_metadata(through_json(METADATA), "steps") == METADATA
    fresh = dataclasses.replace(METADATA, progress=RunProgress.start(PLAN))
    assert CheckpointMetadata.from_metadata(through_json(fresh), "steps") == fresh


@pytest.mark.fast
def test_returns_that_are_not_finite_are_kept():
    nan = dataclasses.replace(PROGRESS, seed_returns=(float("nan"),), return_std=float("nan"))
    read = CheckpointMetadata.from_metadata(
        through_json(dataclasses.replace(METADATA, progress=nan)), "steps"
    ).progress
    assert str(read) == str(nan)


@pytest.mark.fast
def test_metadata_are_one_flat_object_and_unknown_fields_are_ignored():
    stored = through_json(METADATA)
    assert stored.keys() == {*REQUIRED, *OPTIONAL}
    assert CheckpointMetadata.from_metadata(stored | {"weather": "fine"}, "steps") == METADATA


@pytest.mark.fast
@pytest.mark.parametrize("name", REQUIRED)
def test_incomplete_metadata_are_refused(name):
    stored = through_json(METADATA)
    del stored[name]
    with pytest.raises(CheckpointError, match=rf"in steps cannot be read \({name}: field req"):
        CheckpointMetadata.from_metadata(stored, "steps")


@pytest.mark.fast
@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("env_steps", "84", "env_steps"),
        ("plan", {"num_checkpoints": 3}, r"plan\.epochs_per_checkpoint"),
        ("plan", None, "plan"),
        ("parent", {"step": 1}, r"parent\.directory"),
        ("seed_returns", 1.0, "seed_returns"),
        ("callbacks", [1], "callbacks"),
        ("replay", "yes", "replay"),
        ("environments", -1, "environments"),
        ("environments", 2**28 + 1, "environments"),
        ("metrics", {"train/loss": "low"}, "metrics.train/loss"),
    ],
)
def test_metadata_of_another_form_are_refused(name, value, field):
    with pytest.raises(CheckpointError, match=rf"\({field}: .*use a checkpoint that") as caught:
        CheckpointMetadata.from_metadata(through_json(METADATA) | {name: value}, "steps")
    assert "\n" not in str(caught.value)


@pytest.mark.fast
def test_counting():
    progress = RunProgress.start(PLAN, seed=1)
    assert progress.env_steps == 20 and progress.steps_at(3, PLAN) == PLAN.total_steps == 116
    progress = progress.after_steps(16).after_outer_iteration(PLAN)
    assert (progress.outer_iteration, progress.env_steps, progress.seed) == (1, 68, 1)
    assert [progress.steps_at(iteration, PLAN) for iteration in (0, 1, 3)] == [36, 68, 132]


def test_a_checkpoint_with_incomplete_metadata_is_refused_by_all(tiny, tmp_path, monkeypatch):
    save = Checkpointer.save

    def without_updates(self, step, items, *, metadata, **scores):
        metadata = {name: value for name, value in metadata.items() if name != "updates"}
        save(self, step, items, metadata=metadata, **scores)

    monkeypatch.setattr(Checkpointer, "save", without_updates)
    run = tmp_path / "run"
    with tiny.trainer(run_dir=str(run)) as trainer:
        trainer.run(0)
    refused = rf"checkpoint in {run / 'checkpoints'} cannot be read \(updates: field required\)"
    with pytest.raises(CheckpointError, match=refused):
        tiny.trainer().load_checkpoint(run)
    resumed = tiny.trainer(run_dir=str(run), restore_checkpoint="auto")
    with pytest.raises(CheckpointError, match=refused):
        resumed.run(0)
    with pytest.raises(CheckpointError, match=refused):
        load_policy(run)
