"""Records and results of trials, by hand-checked numbers."""

import math

import pytest

from rlkit.training.logs.records import Record
from rlkit.training.sweeps.joint_records import logged_records, trial_records
from rlkit.training.sweeps.results import (
    TrialResult,
    as_csv,
    from_rows,
    ranked,
    score_of,
    table,
    to_rows,
)
from rlkit.training.sweeps.standing import kept

pytestmark = pytest.mark.fast


def record(seed, kind="train", steps=8, updates=1, text=None, **metrics):
    named = {name.replace("__", "/"): x for name, x in metrics.items()}
    return Record(
        kind=kind,
        env_steps=steps,
        updates=updates,
        wall_seconds=1.0,
        seed=seed,
        metrics=named,
        text=text,
    )


JOINT = [
    record(None, kind="event", text="training to 8 environment steps"),
    *(record(lane, train__loss=float(lane)) for lane in range(6)),
    record(None, train__loss=2.5, train__steps_per_second=600.0),
    *(record(lane, kind="eval", eval__avg_return=10.0 * lane) for lane in range(6)),
    record(None, kind="eval", eval__avg_return=25.0),
]


def test_a_trial_gets_the_records_of_its_seeds():
    found = list(trial_records(JOINT, range(2, 4), 6))
    assert found == [
        record(0, train__loss=2.0),
        record(1, train__loss=3.0),
        record(None, train__loss=2.5, train__steps_per_second=200.0),
        record(0, kind="eval", eval__avg_return=20.0),
        record(1, kind="eval", eval__avg_return=30.0),
        record(None, kind="eval", eval__avg_return=25.0),
    ]


def test_a_trial_logs_every_so_many_outer_iterations():
    """The program that trains several logs all of them, so that skipped updates are counted."""
    ends = [8, 16, 24, 30, 36]  # of outer iterations, of which those of a last phase are shorter
    rows = [record(None, steps=end) for end in ends]
    rows[1:1] = [record(None, kind="eval", steps=8)]

    def logged(every, planned=5):
        return [x.env_steps for x in logged_records(rows, every, done=5, planned=planned)]

    assert logged(1) == [8, 8, 16, 24, 30, 36]
    assert logged(2) == [8, 16, 30, 36] and logged(2, planned=9) == [8, 16, 30]
    thinned = rows[2::2]
    assert logged_records(thinned, 2, done=5, planned=5) == thinned
    iterations = [record(None, steps=end) for end in (2, 4, 6, 8, 10, 12)]  # a row for each
    kept = logged_records(iterations, 3, done=3, planned=3)
    assert [x.env_steps for x in kept] == [10, 12]


def test_a_trial_of_one_seed_has_no_rows_for_seeds():
    found = list(trial_records(JOINT, range(5, 6), 6))
    assert found == [
        record(None, train__loss=5.0, train__steps_per_second=100.0),
        record(None, kind="eval", eval__avg_return=50.0),
    ]


def test_a_trial_alone_gets_all_records():
    alone = [JOINT[0], record(None, train__loss=1.0)]
    assert list(trial_records(alone, range(1), 1)) == alone[1:]


def test_scores_are_those_of_the_seeds():
    records = [
        *(record(seed, "eval", 0, 0, eval__avg_return=1.0) for seed in (0, 1)),
        *(record(seed, "eval", 8, 1, eval__avg_return=4.0 + seed) for seed in (0, 1)),
        *(record(seed, "eval", 16, 2, eval__avg_return=8.0 - seed) for seed in (0, 1)),
    ]
    assert score_of(records, "final") == (8.0, 7.0)
    assert score_of(records, "area") == (6.0, 6.0)
    assert score_of([], "final") == ()


def result(trial, *scores, rung=0, failure=None, skipped=0):
    return TrialResult(
        trial=trial,
        rung=rung,
        settings={"gamma": 0.9, "hidden_sizes": (64, 64)},
        scores=scores,
        env_steps=1000,
        skipped_updates=skipped,
        failure=failure,
    )


def test_the_score_is_the_mean_over_seeds_and_nan_is_the_worst():
    assert result(0, 1.0, 4.0).score == 2.5
    assert result(0, 1.0, math.nan).score == -math.inf
    assert result(0).score == -math.inf
    assert result(0, 1.0).interval is None
    assert result(0, 1.0, 3.0).interval == (1.0, 3.0)


def test_later_rungs_come_first_then_the_best():
    found = {
        (0, 0): result(0, 9.0),
        (0, 1): result(1, 5.0),
        (0, 2): result(2, 7.0),
        (1, 2): result(2, 6.0, rung=1),
    }
    assert [each.trial for each in ranked(found)] == [2, 0, 1]
    assert ranked(found)[0].score == 6.0


def test_failures_are_never_kept():
    results = [result(0, 1.0), result(1, failure="not finite"), result(2, 3.0), result(3, 2.0)]
    assert kept(results, 2) == [2, 3]
    assert kept(results[:2], 2) == [0]
    assert kept([results[1]], 2) == []
    assert kept(results, 9) == [2]


def test_results_are_rows():
    assert from_rows("") == {}
    text = to_rows([result(0, 1.0, math.nan)])
    assert list(from_rows(text + '{"trial": 1, "ru')) == [(0, 0)]  # its writer was killed
    found = from_rows(text + to_rows([result(1, 2.0, rung=1), result(2, failure="no")]))
    assert list(found) == [(0, 0), (1, 1), (0, 2)]
    assert math.isnan(found[0, 0].scores[1]) and found[0, 2].failure == "no"


def test_the_table_says_what_became_of_each_trial():
    rows = table(
        [
            result(7, 2.0, 4.0, rung=1),
            result(1, 1.0, 1.0, skipped=1234),
            result(2, failure="rewards are not finite"),
        ],
        num_rungs=2,
    ).splitlines()
    assert rows[0].split() == [
        "trial",
        "gamma",
        "hidden_sizes",
        "return",
        "95",
        "%",
        "steps",
        "note",
    ]
    assert rows[1].split() == ["007", "0.9", "64x64", "3.00", "2.00", "to", "4.00", "1,000"]
    assert rows[2].endswith("stopped at rung 1 of 2, diverged: 1,234 updates skipped")
    assert rows[3].endswith("failed: rewards are not finite") and " - " in rows[3]


def test_the_csv_has_a_column_for_each_seed():
    rows = as_csv([result(0, 2.0, 4.0), result(1, failure="no")]).splitlines()
    assert rows[0].split(",")[3:8] == ["return", "low", "high", "return_seed_0", "return_seed_1"]
    assert rows[1] == '0,0.9,"(64, 64)",3.0,2.0,4.0,2.0,4.0,1000,0,0,'
    assert rows[2] == '1,0.9,"(64, 64)",,,,,,1000,0,0,no'
