"""What a run has written is read back: as arrays, as a frame, several runs at once."""

import json
import math

import numpy as np
import pytest
import yaml
from host_twins import HostCounter

import rlkit
from rlkit.errors import ConfigError, RunDirectoryError
from rlkit.training.logs.jsonl_logger import JsonlLogger
from rlkit.training.logs.records import Record

FIRST = ["kind", "env_steps", "updates", "wall_seconds", "seed"]


def record(kind="eval", step=0, seed=None, text=None, **metrics):
    return Record(
        kind=kind,
        env_steps=step,
        updates=step // 10,
        wall_seconds=step / 100,
        seed=seed,
        text=text,
        metrics={f"{kind}/{name}": value for name, value in metrics.items()},
    )


def write_run(directory, records, config=None, summary=None):
    logger = JsonlLogger(directory / "metrics.jsonl")
    for each in records:
        logger.log(each)
    logger.close()
    if config is not None:
        (directory / "config.yaml").write_text(yaml.safe_dump(config))
    if summary is not None:
        (directory / "summary.json").write_text(json.dumps(summary))
    return directory


def settings(algorithm="ppo", env="gymnax/CartPole-v1"):
    return {"algorithm": algorithm, "env": {"id": env}}


ONE_SEED = [
    record("event", text="training"),
    record(a=1.0),
    record("train", 100, b=5.0),
    record("eval", 100, a=2.0),
    record("user", 100, c=math.inf),
    record("eval", 200, a=math.nan),
]
TWO_SEEDS = [
    record(seed=0, a=1.0),
    record(seed=1, a=3.0),
    record(a=2.0, extra=7.0),
    record("train", 100, seed=0, b=1.0, only=5.0),
    record("train", 100, seed=1, b=2.0),
    record("train", 100, b=1.5, steps_per_second=9.0),
    record("eval", 200, seed=1, a=4.0),
    record("eval", 200, a=4.0),
]


@pytest.mark.fast
def test_arrays_have_a_row_for_each_seed(tmp_path):
    one = rlkit.load_run(write_run(tmp_path / "one", ONE_SEED))
    steps, values = one.arrays("eval/a")
    np.testing.assert_array_equal(steps, [0, 100, 200])
    np.testing.assert_array_equal(values, [[1, 2, np.nan]])
    assert one.arrays("user/c")[1].tolist() == [[math.inf]]
    two = rlkit.load_run(write_run(tmp_path / "two", TWO_SEEDS))
    steps, values = two.arrays("eval/a")
    np.testing.assert_array_equal(steps, [0, 200])
    np.testing.assert_array_equal(values, [[1, np.nan], [3, 4]])
    assert [x.tolist() for x in two.arrays("eval/extra")] == [[0], [[7.0]]]  # of both seeds
    np.testing.assert_array_equal(two.arrays("train/only")[1], [[5.0], [np.nan]])
    assert (one.num_seeds, two.num_seeds) == (1, 2)
    assert two.metrics[:4] == ["eval/a", "eval/extra", "train/b", "train/only"]


@pytest.mark.fast
def test_a_frame_has_a_row_for_each_record_and_seed(tmp_path):
    one = rlkit.load_run(write_run(tmp_path / "one", ONE_SEED)).frame()
    assert list(one) == [*FIRST, "eval/a", "train/b", "user/c"]
    assert one["kind"].tolist() == ["eval", "train", "eval", "user", "eval"]
    assert one["seed"].tolist() == [0] * 5  # groupby would drop rows without a seed
    assert one["env_steps"].tolist() == [0, 100, 100, 100, 200]
    assert one["updates"].tolist() == [0, 10, 10, 10, 20] and one["wall_seconds"].max() == 2.0
    np.testing.assert_array_equal(one["eval/a"], [1, np.nan, 2, np.nan, np.nan])
    empty = rlkit.load_run(write_run(tmp_path / "empty", [])).frame()
    assert list(empty) == FIRST and empty.empty


@pytest.mark.fast
def test_a_frame_leaves_out_the_logged_means_of_seeds(tmp_path):
    two = rlkit.load_run(write_run(tmp_path / "two", TWO_SEEDS)).frame()
    assert two["seed"].fillna(-1).tolist() == [0, 1, -1, 0, 1, -1, 1]
    means = two.groupby("env_steps")[["eval/a", "train/b"]].mean()
    np.testing.assert_array_equal(means, [[2, np.nan], [np.nan, 1.5], [4, np.nan]])
    together = two[two["seed"].isna()].dropna(axis="columns", how="all")
    assert list(together) == [*FIRST[:4], "eval/extra", "train/steps_per_second"]


@pytest.mark.fast
def test_several_runs_by_patterns_and_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, algorithm in (("b", "ppo"), ("a", "dqn"), ("old/a", "ppo")):
        write_run(tmp_path / "runs" / name, ONE_SEED, settings(algorithm))
    (tmp_path / "runs" / "notes.txt").write_text("no run")
    runs = rlkit.load_runs("runs/*")
    assert runs.names == ["a", "b"] and len(runs) == 2 and runs[0].algorithm == "dqn"
    frame = runs.frame()
    assert list(frame)[:4] == ["run", "algorithm", "env", "kind"]
    rows = {tuple(row) for row in frame[["run", "algorithm", "env"]].to_numpy()}
    assert rows == {("a", "dqn", "gymnax/CartPole-v1"), ("b", "ppo", "gymnax/CartPole-v1")}
    assert len(frame) == 2 * len(runs[0].frame())
    assert rlkit.load_runs("runs/b", tmp_path / "runs" / "a", "runs/*").names == ["b", "a"]
    nested = rlkit.load_runs("runs/**")
    assert nested.names == ["runs/a", "runs/b", "old/a"]
    assert rlkit.LoadedRuns(nested[:1]).names == ["a"]
    write_run(tmp_path / "runs" / "c[1]", ONE_SEED)
    assert rlkit.load_runs("runs/c[1]").names == ["c[1]"]  # a path, though it looks like a pattern


@pytest.mark.fast
def test_a_run_may_be_going_on(tmp_path):
    run = write_run(tmp_path / "run", ONE_SEED, settings())
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"kind": "eval", "env_st')
    found = rlkit.load_run(run)
    assert found.summary == {} and len(found.records) == len(ONE_SEED)
    (run / "metrics.jsonl").unlink()
    begun = rlkit.load_run(run)
    assert begun.records == () and begun.frame().empty and begun.env == "gymnax/CartPole-v1"
    with pytest.raises(ConfigError, match="has no metrics yet; wait for its first evaluation"):
        begun.arrays("eval/a")
    (run / "summary.json").write_text('{"env_steps": 3}')
    assert rlkit.load_run(run).summary == {"env_steps": 3}
    (run / "config.yaml").write_text("hyperparameters: {learning_rate: 3e-4}")  # a number here
    assert rlkit.load_run(run).config == {"hyperparameters": {"learning_rate": 3e-4}}


@pytest.mark.fast
def test_mistakes_name_the_fix(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = rlkit.load_run(write_run(tmp_path / "runs" / "a", ONE_SEED))
    with pytest.raises(ConfigError, match=r"did you mean 'eval/a'.* It has eval/a, train/b"):
        run.arrays("eval/b")
    with pytest.raises(RunDirectoryError, match=r"runs does not contain a run; .*config\.yaml"):
        rlkit.load_run("runs")
    with pytest.raises(RunDirectoryError, match="zz does not contain a run"):
        rlkit.load_runs("runs/*", "runs/zz")
    with pytest.raises(RunDirectoryError, match=r"no run matches 'rnus/\*' or 'x\*' in "):
        rlkit.load_runs("rnus/*", "x*")
    with pytest.raises(ConfigError, match=r"load_runs\(\*directories\)"):
        rlkit.load_runs(["runs/a"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="no run to load"):
        rlkit.load_runs()
    with pytest.raises(ConfigError, match="None is not a path"):
        rlkit.load_run(None)  # pyright: ignore[reportArgumentType]
    for name, text in (("config.yaml", "a: ["), ("config.yaml", "text"), ("summary.json", "{")):
        broken = write_run(tmp_path / f"broken-{len(text)}", ONE_SEED)
        (broken / name).write_text(text)
        with pytest.raises(ConfigError, match=rf"{name}.*restore the file that the run wrote"):
            rlkit.load_run(broken)


def test_what_a_trainer_wrote_is_read_back(tiny, tmp_path):
    """With parts that config.yaml cannot rebuild, and two seeds."""
    with tiny.trainer(num_seeds=2, run_dir=str(tmp_path / "run")) as trainer:
        history = trainer.run(0)
    run = rlkit.load_run(tmp_path / "run")
    steps, values = run.arrays("eval/avg_return")
    assert steps.tolist()[1:] == [evaluation["env_steps"] for evaluation in history]
    expected = np.stack([evaluation["return"].mean(axis=1) for evaluation in history], axis=1)
    np.testing.assert_allclose(values[:, 1:], expected)
    assert (run.algorithm, run.env) == ("ppo", "probe/Counter")
    assert run.summary["eval_return_per_seed"] == values[:, -1].tolist()
    frame = run.frame()
    last = frame[frame["env_steps"] == steps[-1]].set_index("seed").groupby("seed").first()
    assert last["eval/avg_return"].tolist() == values[:, -1].tolist()
    assert {"eval/avg_return", "train/loss"} <= set(frame)


@pytest.mark.full
def test_a_run_of_parts_of_ones_own_is_read_back(tiny, tmp_path):
    env = rlkit.make_env(HostCounter, num_envs=2)
    with tiny.trainer(env=env, run_dir=str(tmp_path), enable_evaluation=False) as trainer:
        trainer.run(0)
    env.close()
    run = rlkit.load_run(tmp_path)
    assert "env" in run.config["custom"] and (run.algorithm, run.env) == ("ppo", None)
    assert set(run.frame()["kind"]) == {"train"}
