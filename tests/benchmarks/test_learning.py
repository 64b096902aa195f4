"""What `make learning` shows of each preset: rows, bars, and which seeds are missing."""

import json
import subprocess

import numpy as np
import pytest

pytestmark = pytest.mark.fast
NAME = "ppo/gymnax/CartPole-v1"


def row(seed, evaluation, training=0.0):
    return {
        "seed": seed,
        "env_steps": 1000,
        "evaluation": evaluation,
        "training": training,
        "steps": [500, 1000],
        "returns": [0.0, evaluation],
        "seconds": 1.0,
        "revision": "abc",
    }


@pytest.fixture
def recorded(monkeypatch, tmp_path):
    """The records, in a directory of the test."""
    import preset_records

    monkeypatch.setattr(preset_records, "DIRECTORY", tmp_path)
    return preset_records


def test_every_preset_has_a_row_and_no_row_is_without_a_preset():
    from goals import GOALS

    from rlkit.training.run_config import preset_names

    assert sorted(GOALS) == preset_names()


def test_five_seeds_unless_a_run_takes_a_million_steps_of_mujoco():
    from goals import GOALS, settings

    few = {name for name, goal in GOALS.items() if goal.seeds < 5}
    steps = {name: int(settings(name)["trainer"]["total_steps"]) for name in few}
    assert all(GOALS[name].seeds == 3 and steps[name] >= 500_000 for name in few), steps


def test_a_preset_is_trained_on_the_seeds_that_are_missing(recorded):
    recorded.add(NAME, row(1, 5.0))
    assert recorded.missing(NAME) == [0, 2, 3, 4]
    recorded.add(NAME, row(1, 6.0))
    (found,) = recorded.read(NAME)
    assert found["evaluation"] == 6.0


def test_rows_of_an_older_preset_do_not_count(recorded, monkeypatch):
    recorded.add(NAME, row(0, 5.0))
    changed = {**recorded.settings(NAME), "hyperparameters": {"gamma": 0.5}}
    monkeypatch.setattr(recorded, "settings", lambda name: changed)
    assert recorded.read(NAME) == []


@pytest.mark.parametrize(
    ("jittable", "together"), [(True, [(0, 3), (4, 1)]), (False, [(0, 1), (1, 1), (2, 1), (4, 1)])]
)
def test_seeds_that_follow_each_other_are_one_program_on_the_device(jittable, together):
    from preset_rlkit import groups

    assert groups([2, 0, 1, 4], jittable) == together


def test_a_run_is_not_resumed_once_its_preset_has_changed(monkeypatch):
    import preset_rlkit

    before = preset_rlkit.run_directory(NAME, 0, 5)
    assert before == preset_rlkit.run_directory(NAME, 0, 5)
    changed = {**preset_rlkit.settings(NAME), "hyperparameters": {"gamma": 0.5}}
    monkeypatch.setattr(preset_rlkit, "settings", lambda name: changed)
    assert preset_rlkit.run_directory(NAME, 0, 5) not in {before, *before.parents}
    assert preset_rlkit.run_directory(NAME, 1, 1).parent == before.parent


@pytest.mark.parametrize(("returns", "missed"), [([470.0, 479.0], True), ([471.0, 480.0], False)])
def test_a_bar_is_missed_by_the_mean(recorded, returns, missed):
    import preset_report

    for seed, value in enumerate(returns):
        recorded.add(NAME, row(seed, value))
    assert bool(preset_report.below(NAME)) == missed


def test_training_returns_are_what_some_are_measured_by(recorded):
    import preset_report

    name = "ppo/gymnasium/Hopper-v4"
    recorded.add(name, row(0, 9999.0, training=2000.0))
    assert preset_report.below(name) == "ppo/gymnasium/Hopper-v4: the mean 2000.0 is below 2145"


def test_training_returns_are_averaged_over_episodes():
    """An average of one episode and one of three: (10 + 3 * 2) / 4."""
    from preset_rlkit import _weighted

    assert _weighted(np.array([10.0, np.nan, 2.0]), np.array([1.0, 0.0, 3.0])) == 4.0


@pytest.mark.parametrize(
    ("values", "middle"), [([1.0, 2.0, 9.0], 4.0), ([0.0, 4.0, 1.0, 2.0, 99.0], 7 / 3)]
)
def test_the_interquartile_mean_leaves_out_a_quarter_at_either_end(values, middle):
    from intervals import interval
    from rlkit.training.logs.statistics import interquartile_mean

    assert interquartile_mean(np.array(values)) == pytest.approx(middle)
    low, high = interval(values)
    assert min(values) <= low < middle < high <= max(values)


def test_the_page_shows_the_records():
    import preset_report

    import page

    assert page.shown(preset_report.COMMAND) == preset_report.table()


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1724.46, "1724.5"), (-20.61, "-20.6"), (4.81, "4.81"), (0.9698, "0.970"), (0.9998, "1.00")],
)
def test_returns_are_shown_with_three_digits_that_matter(value, shown):
    import preset_report

    assert preset_report._text(value) == shown


def test_presets_whose_seeds_are_not_complete_are_named():
    import preset_report
    from goals import GOALS

    rows = {name: [{}] * goal.seeds for name, goal in GOALS.items()}
    assert preset_report._done(rows) == f"All {len(GOALS)} were run."
    rows |= {"td3/gymnasium/Hopper-v5": [{}], "sac/gymnasium/Hopper-v5": []}
    left = "not yet: sac gymnasium/Hopper-v5, td3 gymnasium/Hopper-v5 (1 of 3 seeds)."
    assert preset_report._done(rows).endswith(left)


def test_few_seeds_have_a_range_and_no_interval():
    import preset_report

    assert preset_report._spread([3.0]) == "one seed"
    assert preset_report._spread([3.0, 1.0, 2.0]) == "range 1.00 to 3.00"
    assert not preset_report._spread([3.0, 1.0, 2.0, 4.0, 5.0]).startswith("range")


def test_what_is_recorded_names_commits_that_are_here():
    """A history that was rewritten would leave numbers whose code nobody has."""
    import preset_records

    root = preset_records.HERE.parent
    git = ["git", "-C", str(root)]
    asked = [*git, "rev-parse", "--is-shallow-repository"]
    shallow = subprocess.run(asked, capture_output=True, text=True, check=False)
    if shallow.stdout.strip() != "false":
        pytest.skip("not a whole clone")
    named = {
        json.loads(line)["revision"].rstrip("+")
        for file in (root / "benchmarks" / "results").rglob("*.jsonl")
        for line in file.read_text().splitlines()
    }
    known = subprocess.run(
        [*git, "cat-file", "--batch-check"],
        input="\n".join(sorted(named)),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert named and [line for line in known if line.split()[1:2] != ["commit"]] == []
