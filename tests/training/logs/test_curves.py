"""What curves of several seeds and runs hold: statistics, bands, groups, axes and smoothing."""

import dataclasses
import math

import numpy as np
import pytest

from rlkit.errors import ConfigError
from rlkit.training.logs.announcements import replay_refilled
from rlkit.training.logs.curves import Curve, Mark, curve_of, grouped
from rlkit.training.logs.jsonl_logger import JsonlLogger
from rlkit.training.logs.loaded_run import load_run
from rlkit.training.logs.records import Record
from rlkit.training.logs.statistics import bootstrap_interval, interquartile_mean

pytestmark = pytest.mark.fast
NAN = math.nan


def curve(*seeds, x=(0, 1, 2), **about):
    told = {"name": "a", "algorithm": "ppo", "env": "E", **about}
    return Curve(x=np.array(x, float), seeds=np.array(seeds, float), **told)


def test_the_interquartile_mean_leaves_out_a_quarter_at_either_end():
    values = np.array([[9.0], [1.0], [2.0], [4.0], [0.0], [3.0], [5.0], [8.0]])  # drops 0, 1, 8, 9
    assert interquartile_mean(values) == pytest.approx([3.5])
    assert interquartile_mean(np.array([1.0, 2.0, 9.0])) == pytest.approx(4.0)
    with_a_gap = np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [9.0, NAN]])
    np.testing.assert_array_equal(interquartile_mean(with_a_gap), [2.5, NAN])


@pytest.mark.parametrize("statistic", ["mean", "interquartile_mean"])
def test_bootstrap_intervals_cover_the_truth_as_often_as_they_say(statistic):
    """Of 10 normal values: 95 % aimed at, and a bootstrap of few values is short."""
    dice, covered = np.random.default_rng(3), 0
    for _ in range(200):
        low, high = bootstrap_interval(dice.normal(2.0, 1.0, (10, 1)), statistic, resamples=500)
        covered += bool((low <= 2.0) & (high >= 2.0))
    assert 170 <= covered <= 198


def test_the_center_and_what_surrounds_it():
    seeds = curve([0, 1, 2], [2, 3, 10], [4, 5, 6])
    assert seeds.center("mean").tolist() == [2, 3, 6]
    assert seeds.center("median").tolist() == [2, 3, 6]
    assert [edge.tolist() for edge in seeds.band("min_max", "mean")] == [[0, 1, 2], [4, 5, 10]]
    low, high = seeds.band("standard_error", "mean")
    assert high - low == pytest.approx(2 * np.array([2.0, 2.0, 4.0]) / np.sqrt(3))
    low, high = seeds.band("interval", "median")
    assert (low < seeds.center("median")).all() and (high > seeds.center("median")).all()
    assert seeds.band("none", "mean") is None and curve([1, 2, 3]).band("min_max", "mean") is None


def test_a_missing_seed_is_missing_from_the_mean():
    assert np.isnan(curve([0, NAN, 2], [2, 2, 2]).center("mean")).tolist() == [False, True, False]


def test_smoothing_is_a_trailing_mean_of_what_is_there():
    smooth = curve([1, 3, NAN, 5], x=range(4)).smoothed(2)
    np.testing.assert_array_equal(smooth.seeds[0], [1, 2, NAN, 5])
    assert curve([1e20, 1, 1]).smoothed(2).seeds[0].tolist() == [1e20, 5e19, 1]
    assert curve([1, 3, 8]).smoothed(10**12).seeds[0].tolist() == [1, 2, 4]
    logged = dataclasses.replace(curve([1, 3, 8]), logged_mean=np.array([2.0, 4.0, 6.0]))
    assert logged.smoothed(2).center("mean").tolist() == [2, 3, 5]
    assert logged.smoothed(1) is logged


def settings(seed, rate=1.0, **trainer):
    return {
        "seed": seed,
        "algorithm": "ppo",
        "hyperparameters": {"learning_rate": rate},
        "trainer": {"total_steps": 10, **trainer},
    }


def test_runs_with_the_same_settings_are_one_curve():
    runs = [curve([0, 1, 2], name="a"), curve([2, 3, 4], name="b"), curve([5, 5, 5], name="c")]
    written = {"num_seeds": 1, "checkpoint_every": 2, "log_every": 5}
    given = [settings(0, run_dir="a"), settings(1, run_dir="b", **written), settings(0, rate=2.0)]
    joined = grouped(runs, given, "settings")
    assert [(c.name, len(c.seeds)) for c in joined] == [("a", 2), ("c", 1)]
    assert joined[0].center("mean").tolist() == [1, 2, 3]
    assert grouped(runs, given, "run") == runs


@pytest.mark.parametrize(
    "trainer", [{"warm_start": "a"}, {"overlap": "update"}, {"replay_buffer_capacity": 9}]
)
def test_whatever_changes_learning_tells_runs_apart(trainer):
    runs = [curve([0, 1, 2], name="a"), curve([2, 3, 4], name="b")]
    assert len(grouped(runs, [settings(0), settings(1, **trainer)], "settings")) == 2


def test_runs_of_no_known_algorithm_are_not_one(tmp_path):
    unknown = [curve([0, 1, 2], name=name, algorithm=None) for name in "ab"]
    assert len(grouped(unknown, [{}, {}], "algorithm")) == 2
    known = [curve([0, 1, 2], name=name) for name in "ab"]
    assert len(grouped(known, [{}, {"custom": ["loss"]}], "algorithm")) == 2


def test_runs_that_share_nothing_are_refused():
    runs = [curve([0, 1], x=(0, 1), name="a"), curve([0, 1], x=(5, 6), name="b")]
    with pytest.raises(ConfigError, match="a and b share no stretch of the x axis"):
        grouped(runs, [{}, {}], "algorithm")


def test_runs_of_an_algorithm_are_one_curve_on_what_they_share():
    runs = [
        curve([0, 2, 4], name="a", x=(0, 2, 4), marks=(Mark(2.0), Mark(3.0, "b"))),
        curve([1, 1, 1], name="b", x=(1, 2, 3)),
        curve([7, 7, 7], name="c", algorithm="dqn"),
    ]
    joined = grouped(runs, [{}] * 3, "algorithm")
    assert [c.name for c in joined] == ["ppo", "dqn"]
    assert joined[0].x.tolist() == [1, 2, 3] and joined[0].marks == (Mark(2.0), Mark(3.0, "b"))
    assert joined[0].seeds.tolist() == [[1, 2, 3], [1, 1, 1]]  # one in between was interpolated


def test_values_at_one_place_of_the_axis_are_all_kept():
    """Updates stand still while the replay memory is filled."""
    runs = [curve([0, 1, 2, 3], name=name, x=(0, 0, 0, 5)) for name in "ab"]
    (joined,) = grouped(runs, [{}] * 2, "algorithm")
    assert joined.seeds.tolist() == [[0, 1, 2, 3]] * 2


def record(kind, steps, seconds, metrics, *, seed=None, text=None):
    return Record(
        kind=kind,
        env_steps=steps,
        updates=steps // 10,
        wall_seconds=seconds,
        seed=seed,
        metrics=metrics,
        text=text,
    )


@pytest.fixture
def extended(tmp_path):
    """A run of two seeds, which compiled for 5 s, began a phase after 100 steps, and was extended
    after 200.
    """
    logger = JsonlLogger(tmp_path / "metrics.jsonl")
    logger.log(record("event", 0, 0, {}, text="training to 200 environment steps: 2 outer"))
    for steps, seconds in ((0, 0.0), (100, 7.0), (200, 9.0), (300, 11.0)):
        if steps:
            logger.log(record("train", steps, seconds, {"train/steps_per_second": 100.0}))
        if steps == 300:
            text = "training from step 200 to 300 environment steps: 1 outer"
            logger.log(record("event", 200, 9.0, {}, text=text))
        if steps == 100:
            for text in ("phase 1 of 2 begins: 100", "phase 2 of 2 (long pole) begins: 100 steps"):
                logger.log(record("event", 100, 7.0, {}, text=text))
        for seed in (0, 1):
            logger.log(record("eval", steps, seconds, {"eval/avg_return": steps + seed}, seed=seed))
    logger.close()
    return load_run(tmp_path)


@pytest.mark.parametrize(
    ("x", "places"),
    [
        ("env_steps", [0, 100, 200, 300]),
        ("updates", [0, 10, 20, 30]),
        ("wall_seconds", [0, 7, 9, 11]),
        ("training_seconds", [0, 2, 4, 6]),  # 100 steps of two seeds at 100 steps per second
    ],
)
def test_what_the_axis_counts(extended, x, places):
    found = curve_of(extended, "run", "eval/avg_return", x)
    assert found.x.tolist() == places
    assert found.marks == (Mark(places[1], "long pole"), Mark(places[2]))
    assert found.seeds.tolist() == [[0, 100, 200, 300], [1, 101, 201, 301]]


def test_a_refilled_replay_memory_does_not_hide_an_extension(tmp_path):
    logger = JsonlLogger(tmp_path / "metrics.jsonl")
    logger.log(record("event", 0, 0, {}, text="training to 1,200 environment steps: 12 outer"))
    refilled = replay_refilled(2000)
    for text in (refilled, "training from step 3,200 to 5,000 environment steps: 18 outer"):
        logger.log(record("event", 3200, 0, {}, text=text))
    logger.close()
    assert load_run(tmp_path).extended_at == [1200]


def test_a_run_that_is_only_resumed_was_not_extended(tmp_path):
    logger = JsonlLogger(tmp_path / "metrics.jsonl")
    logger.log(record("event", 0, 0, {}, text="training to 1,200 environment steps: 12 outer"))
    text = "training from step 300 to 1,200 environment steps: 9 outer"
    logger.log(record("event", 300, 0, {}, text=text))
    logger.close()
    assert load_run(tmp_path).extended_at == []
