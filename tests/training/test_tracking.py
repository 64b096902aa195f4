"""Spreadsheets, TensorBoard and W&B tell of a run what its JSONL file does, interrupted or not."""

import dataclasses
import math
import pathlib
from typing import Any

import numpy as np
import pytest
from event_files import curves, hparams, read_events, texts
from tiers import by_default
from tiny_runs import settings_of
from wandb_files import (
    lay_out_artifacts,
    wandb_files,
    wandb_history,
    wandb_labels,
    wandb_summary,
)

import rlkit
from rlkit.training.callbacks import Callback
from rlkit.training.config import LoggerConfig
from rlkit.training.logs.csv_logger import COLUMNS
from rlkit.training.logs.records import read_records

pytestmark = pytest.mark.process
SPEED = "train/steps_per_second"  # differs from run to run
EVALUATIONS = [0, 32, 64, 96]  # environment steps


class CrashAfter(Callback):
    """Ends the run after the records of an outer iteration, before its checkpoint."""

    def __init__(self, iteration):
        self.iteration = iteration

    def on_evaluation(self, trainer, iteration, evaluation):
        trainer.log({"iteration": iteration})
        if iteration == self.iteration:
            raise ZeroDivisionError


@dataclasses.dataclass(frozen=True)
class Tracked:
    whole: pathlib.Path
    parts: pathlib.Path  # W&B has only this one
    wandb_file: Any  # the last file of each seed, by its name


@pytest.fixture(scope="module")
def tracked(tiny, tmp_path_factory):
    """Run directories of the same run, one of which was interrupted, with all loggers."""
    root = tmp_path_factory.mktemp("tracked")
    settings = {"num_seeds": 2, "restore_checkpoint": "auto"}
    files = {"console": False, "csv": True, "tensorboard": True}
    on_wandb = {"wandb": "offline", "wandb_runs": "per_seed", "wandb_artifacts": True}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_SILENT", "true")
        patch.setenv("WANDB_DATA_DIR", str(root / "staged"))
        for part in ("whole", "parts", "parts"):
            others = on_wandb if part == "parts" else {}
            config = settings | {"run_dir": str(root / part)}
            is_first = part == "parts" and not (root / part).exists()
            callback = CrashAfter(2 if is_first else math.inf)
            config |= {"logger_config": LoggerConfig(**files, **others), "callbacks": [callback]}
            with tiny.trainer(**config) as trainer:
                if is_first:
                    with pytest.raises(ZeroDivisionError):
                        trainer.run(5)
                else:
                    trainer.run(5)
        last = {wandb_labels(path)[0]["name"]: path for path in wandb_files(root)}
        yield Tracked(whole=root / "whole", parts=root / "parts", wandb_file=last)


def jsonl_rows(directory):
    return [
        (record.kind, record.env_steps, record.updates, record.seed, name, value)
        for record in read_records(directory / "metrics.jsonl")
        for name, value in record.metrics.items()
        if name != SPEED
    ]


def csv_rows(directory, file="metrics.csv"):
    import pandas

    table = pandas.read_csv(directory / file)
    assert tuple(table.columns) == COLUMNS
    rows = table.drop(columns="wall_seconds").itertuples(index=False, name=None)
    return [
        (*when, None if math.isnan(seed) else int(seed), name, value)
        for *when, seed, name, value in rows
        if name != SPEED
    ]


@pytest.mark.full
def test_pandas_reads_what_the_jsonl_file_has(tracked):
    for directory in (tracked.whole, tracked.parts):
        for found, expected in zip(csv_rows(directory), jsonl_rows(directory), strict=True):
            assert found[:-1] == expected[:-1]
            assert found[-1] == pytest.approx(expected[-1], rel=1e-14)
    assert csv_rows(tracked.parts) == csv_rows(tracked.whole)
    dropped = csv_rows(tracked.parts, "metrics.dropped.csv")
    assert {row[1] for row in dropped} == {64} and {row[0] for row in dropped} >= {"train", "eval"}


@pytest.mark.parametrize("seed", by_default([None, 1], [None, 0, 1]))
def test_tensorboard_reads_what_the_jsonl_file_has(tracked, seed):
    folder = "tensorboard" if seed is None else f"tensorboard/seed_{seed}"
    whole, parts = (curves(read_events(path / folder)) for path in (tracked.whole, tracked.parts))
    for found in (whole, parts):
        speed = found.pop(SPEED, [])
        assert len(speed) == (3 if seed is None else 0)
    assert parts == whole
    expected = {}
    for _, env_steps, _, of_seed, name, value in jsonl_rows(tracked.whole):
        if of_seed == seed:
            expected.setdefault(name, []).append((env_steps, float(np.float32(value))))
    assert whole == expected and "eval/avg_return" in expected


def test_tensorboard_has_texts_and_settings(tracked):
    for directory in (tracked.whole, tracked.parts):
        reader = read_events(directory / "tensorboard")
        assert hparams(reader)["algorithm"] == "ppo" and hparams(reader)["seed"] == 5
        found = [text for named in texts(reader).values() for text in named]
        logged = [
            (record.env_steps, record.text)
            for record in read_records(directory / "metrics.jsonl")
            if record.text is not None
        ]
        assert sorted(found) == sorted(logged) and logged


def test_wandb_has_a_run_for_each_seed(tracked):
    rows, ids = wandb_history(tracked.parts)
    assert len(set(ids)) == 2 and len(wandb_files(tracked.parts)) == 4
    assert sorted(tracked.wandb_file) == ["parts-seed_0", "parts-seed_1"]
    for seed in (0, 1):
        labels, config = wandb_labels(tracked.wandb_file[f"parts-seed_{seed}"])
        assert labels["group"] == "parts" and config["algorithm"] == "ppo"
        assert (config["seed"], config["seed_index"]) == (5 + seed, seed)
    assert not any("/seed_" in name for row in rows for name in row)


def test_wandb_gets_each_row_of_a_seed_once(tracked):
    expected = {
        seed: [
            (env_steps, value)
            for _, env_steps, _, of_seed, name, value in jsonl_rows(tracked.parts)
            if name == "eval/avg_return" and of_seed == seed
        ]
        for seed in (0, 1)
    }
    found: dict[str, list[dict[str, Any]]] = {}
    for path in wandb_files(tracked.parts):
        name = wandb_labels(path)[0]["name"]
        found.setdefault(name, []).extend(wandb_history(path.parent)[0])
    for seed in (0, 1):
        rows = found[f"parts-seed_{seed}"]
        returns = [
            (row["env_steps"], row["eval/avg_return"]) for row in rows if "eval/avg_return" in row
        ]
        assert returns == expected[seed] and [steps for steps, _ in returns] == EVALUATIONS
        assert [row["env_steps"] for row in rows if SPEED in row] == EVALUATIONS[1:]
        assert any("ZeroDivisionError" in row.get("error", "") for row in rows)
        summary = wandb_summary(tracked.wandb_file[f"parts-seed_{seed}"])
        after = [value for steps, value in returns if steps >= 64]  # in the file of the last part
        assert summary["eval/avg_return"]["max"] == max(after)


def test_wandb_shows_the_learning_curve(tracked):
    for path in tracked.wandb_file.values():
        (row,) = [row for row in wandb_history(path.parent)[0] if "learning_curve/path" in row]
        picture = path.parent / "files" / row["learning_curve/path"]
        assert row["env_steps"] == 96
        assert picture.read_bytes() == (tracked.parts / "learning_curve.png").read_bytes()


def test_an_artifact_of_wandb_is_a_policy(tracked, tmp_path):
    first, second = (tracked.wandb_file[f"parts-seed_{seed}"] for seed in (0, 1))
    (metadata,) = lay_out_artifacts(first, tmp_path)
    assert lay_out_artifacts(second, tmp_path) == []
    policy, original = rlkit.load_policy(tmp_path), rlkit.load_policy(tracked.parts)
    assert metadata["type"] == "model" and metadata["step"] == original.checkpoint_step
    (evaluated,) = [
        value
        for _, env_steps, _, seed, name, value in jsonl_rows(tracked.parts)
        if name == "eval/avg_return" and seed is None and env_steps == metadata["env_steps"]
    ]
    assert metadata["return"] == evaluated
    assert policy.env_steps == original.env_steps == metadata["env_steps"]
    assert policy.seed_index == original.seed_index
    obs = np.zeros((1, *policy.env.observation_space.shape), np.float32)
    assert policy(obs) == original(obs)
    assert not list(tmp_path.rglob("learner"))  # what only training needs


def test_a_branch_has_runs_of_its_own_on_wandb(tracked, tmp_path, monkeypatch):
    """One for each seed, although it saves a checkpoint before it logs anything."""
    monkeypatch.setenv("WANDB_SILENT", "true")
    with rlkit.reopen(tracked.parts, into=tmp_path / "branch") as branch:
        branch.log({"temperature": 0.5})
    names = {wandb_labels(path)[0]["name"] for path in wandb_files(tmp_path)}
    assert names == {"branch-seed_0", "branch-seed_1"}


@pytest.mark.full
def test_wandb_shows_videos(tmp_path):
    run = tmp_path / "run"
    log = {"logger_config": {"console": False, "wandb": "offline"}, "max_evaluation_steps": 4}
    callbacks = [rlkit.RecordVideo(ending=".gif")]
    with rlkit.build(settings_of(run, **log), callbacks=callbacks) as trainer:
        trainer.run(0)
    (path,) = wandb_files(run)
    shown = [row for row in wandb_history(path.parent)[0] if "video/path" in row]
    assert [row["env_steps"] for row in shown] == [16, 32]
    for row, iteration in zip(shown, (1, 2), strict=True):
        video = path.parent / "files" / row["video/path"]
        assert video.read_bytes() == (run / "videos" / f"iteration-{iteration}.gif").read_bytes()
