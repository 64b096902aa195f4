"""Warnings of runs that do not learn: when they come, what they say, and that they come once."""

import dataclasses
import json
import math

import numpy as np
import pytest
from gymnasium import spaces
from host_twins import HostCounter
from pydantic import TypeAdapter
from stopping import StopAt
from tiers import in_full

from rlkit.algorithms.configs import DiscreteSACConfig, PPOConfig, SACConfig, TD3Config
from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.training import health
from rlkit.training.health import Health, Setting, entropy_range, examine, examine_evaluation
from rlkit.training.logs.records import read_records

SETTING = Setting(
    num_seeds=1,
    num_envs=4,
    action_space=spaces.Discrete(2),
    max_episode_steps=200,
    hyperparameters=PPOConfig(),
    has_floats=True,
    steps_per_checkpoint=10_000,
    total_steps=100_000,
)
STUCK = {  # constant returns of -30
    "explained_variance": 0.01,
    "entropy": 0.5,
    "sum/episodes": 10.0,
    "sum/episode_return": -300.0,
}


def rows(**changes):
    """Metrics of outer iterations: lists differ between these, numbers stay."""
    length = max([len(x) for x in changes.values() if isinstance(x, list)], default=10)
    names = {"episodes": "sum/episodes", "returns": "sum/episode_return"}
    table = STUCK | {names.get(name, name): x for name, x in changes.items()}
    return [
        {name: np.asarray(x[i] if isinstance(x, list) else x) for name, x in table.items()}
        for i in range(length)
    ]


def told(table, setting=SETTING, start=None):
    """[(number of the outer iteration, text)] of all warnings."""
    now, found = start or Health(), []
    for number, metrics in enumerate(table, 1):
        now, texts = examine(now, metrics, setting)
        found += [(number, text) for text in texts]
    return found


def when(table, setting=SETTING):
    """The outer iterations with a warning."""
    return [number for number, _ in told(table, setting)]


@pytest.mark.fast
def test_a_loss_that_depends_on_no_parameter_is_told():
    well = {"explained_variance": 0.9, "returns": [-300.0 + i for i in range(10)]}
    ((number, text),) = told(rows(grad_norm=0.0, **well))
    assert number == 3 and "no gradient has reached any parameter for 30,000" in text
    assert when(rows(critic_grad_norm=0.0, actor_grad_norm=math.nan, **well)) == [3]
    assert when(rows(critic_grad_norm=1e-30, actor_grad_norm=0.0, **well)) == []
    assert when(rows(grad_norm=math.nan, **well)) == []  # no update was due
    assert when(rows(grad_norm=[0.0, 0.0, 1.0] * 4, **(well | {"returns": -300.0}))) == []
    seeds = dataclasses.replace(SETTING, num_seeds=2)
    ((_, text),) = told(rows(grad_norm=[np.array([1.0, 0.0])] * 10, **well), seeds)
    assert text.startswith("seed 1: no gradient")


@pytest.mark.fast
def test_a_critic_that_explains_nothing_is_told_once_with_a_cure():
    ((number, text),) = told(rows())
    assert number == 3  # in a row, 30 % of the run
    assert "almost nothing of the returns" in text and "30,000 environment steps" in text
    assert "normalize_rewards=True (--normalize-rewards) and normalize_observations=True" in text
    ((_, text),) = told(rows(), dataclasses.replace(SETTING, has_floats=False))
    assert "; try normalize_rewards=True (--normalize-rewards), or look" in text
    tried = PPOConfig(normalize_rewards=True, normalize_observations=True)
    ((_, text),) = told(rows(), dataclasses.replace(SETTING, hyperparameters=tried))
    assert "normalize" not in text and "; look whether observations" in text


@pytest.mark.fast
def test_no_warning_where_the_critic_or_the_policy_learns():
    assert when(rows(explained_variance=0.06)) == []
    assert when(rows(explained_variance=math.nan)) == []
    assert when(rows(explained_variance=[0.0, 0.0, 0.3] * 4)) == []  # never three in a row
    # from -30 by a quarter to -22.5, and a little more or less
    assert when(rows(returns=[-300.0, -224.0, *[-300.0] * 8])) == []
    assert when(rows(returns=[-300.0, -226.0, *[-300.0] * 8])) == [3]
    assert when(rows(returns=[0.0, 1.0, *[0.0] * 8])) == []  # a first success


@pytest.mark.fast
def test_short_trials_and_small_shares_of_a_run_say_nothing():
    small = dataclasses.replace(SETTING, steps_per_checkpoint=3000, total_steps=30_000)
    assert when(rows(), small) == [4]  # 12,000 steps; three would be 9,000
    long = dataclasses.replace(SETTING, total_steps=1_000_000)
    assert when(rows(explained_variance=[0.0] * 25), long) == [20]  # a fifth of the run


@pytest.mark.fast
def test_the_entropy_of_a_collapsed_policy_by_hand():
    assert entropy_range(spaces.Discrete(2)) == pytest.approx((0.0138629, 0.6931472), rel=1e-5)
    assert entropy_range(spaces.MultiDiscrete([2, 4])) == pytest.approx(
        (0.0415888, 2.0794415), rel=1e-5
    )
    # one normal variable: 1.4189385 + log(std); log(0.01) = -4.6051702
    wide, narrow = spaces.Box(-2.0, 2.0, (1,)), spaces.Box(-0.5, 0.5, (2,))
    assert entropy_range(wide) == pytest.approx((-3.1862317, 1.4189385), rel=1e-5)
    assert entropy_range(narrow) == pytest.approx((-7.7587577, 1.4515827), rel=1e-5)
    unbounded = spaces.Box(-np.inf, np.inf, (1,))
    assert entropy_range(unbounded) == entropy_range(wide)
    assert entropy_range(None) is None
    parts = spaces.Dict({"a": wide, "b": spaces.Tuple([spaces.Discrete(2), narrow])})
    assert entropy_range(parts) == pytest.approx((-10.9311265, 3.5636684), rel=1e-5)


@pytest.mark.fast
def test_a_policy_that_collapses_while_returns_do_not_rise():
    falls = [0.69, 0.3, *[0.001] * 8]
    ((number, text),) = told(rows(entropy=falls, explained_variance=0.9))
    assert number == 5 and "hardly varies its actions" in text
    assert "raise entropy_coef (--entropy-coef), or lower learning_rate" in text
    assert when(rows(entropy=falls, explained_variance=0.9, returns=[-300.0, *[300.0] * 9])) == []
    assert when(rows(entropy=0.001, explained_variance=0.9)) == []  # it was loaded like that
    sac = dataclasses.replace(
        SETTING, action_space=spaces.Box(-1, 1, (1,)), hyperparameters=SACConfig()
    )
    table = rows(entropy=[0.5, *[-3.3] * 9], explained_variance=math.nan)
    ((number, text),) = told(table, sac)
    assert number == 4 and "raise target_entropy (--target-entropy)" in text
    usual = rows(entropy=[0.5, *[-1.0] * 9], explained_variance=math.nan)  # SAC's own target
    assert when(usual, sac) == []


@pytest.mark.fast
def test_episodes_that_never_end():
    endless = {"episodes": 0.0, "returns": 0.0, "explained_variance": 0.9}
    ((number, text),) = told(rows(**endless))
    assert number == 3 and "7,500 of each environment" in text and "max_episode_steps" in text
    assert when(rows(**endless | {"episodes": [0.0, 0.0, 1.0, *[0.0] * 7]})) == []
    limit = dataclasses.replace(SETTING, max_episode_steps=10_000)
    assert when(rows(**endless), limit) == [5]  # 4 x 10,001 steps
    unknown = dataclasses.replace(SETTING, num_envs=64, max_episode_steps=None, total_steps=10**5)
    assert when(rows(**endless), unknown) == [7]  # 64 x 1,001 steps


def missed(greedy, sampled, setting=SETTING, first=10.0, start=None):
    """The same of evaluations with these mean returns [E] or [E, S], after a first one.

    Each has 16 episodes, whose returns have a standard deviation of 1.
    """
    spread = np.array([-1.0, 1.0] * 8)
    now, found = start or Health(), []
    firsts = np.full((1, setting.num_seeds), first)
    pairs = zip([*firsts, *greedy], [*firsts, *sampled], strict=True)
    for number, (low, high) in enumerate(pairs):
        returns = (np.reshape(mean, (-1, 1)) + spread for mean in (low, high))
        now, texts = examine_evaluation(now, *returns, setting)
        found += [(number, text) for text in texts]
    return found


@pytest.mark.fast
def test_likely_actions_that_throw_away_what_was_learned():
    ((number, text),) = missed([200.0] * 10, [500.0] * 10)  # 300 of the 490 that were gained
    assert number == 3
    assert "return much less than sampled ones" in text and "30,000 environment steps" in text
    assert "; train for longer, lower entropy_coef (--entropy-coef), or act with" in text
    assert missed([260.0] * 10, [500.0] * 10) == []  # 240 of 490
    assert missed([200.0, 200.0, 500.0] * 4, [500.0] * 12) == []  # never three in a row
    assert missed([500.0] * 10, [200.0] * 10) == []
    for unknown in (math.nan, math.inf, -math.inf):
        assert missed([unknown] * 10, [500.0] * 10, first=unknown) == []
        assert missed([200.0] * 10, [unknown] * 10) == []
    assert missed([0.0] * 10, [12.0] * 10) == []  # sampled actions gained less than a quarter


@pytest.mark.fast
@pytest.mark.parametrize(
    ("hyperparameters", "cure"),
    [
        (SACConfig(), "lower target_entropy (--target-entropy)"),
        (DiscreteSACConfig(), "lower target_entropy_ratio (--target-entropy-ratio)"),
        (SACConfig(temperature=0.2), "lower temperature (--temperature)"),
        (DiscreteSACConfig(temperature=0.0), None),
        (PPOConfig(entropy_coef=0.0), None),
        (TD3Config(), None),
        (None, None),
    ],
)
def test_a_cure_is_named_where_there_is_one(hyperparameters, cure):
    setting = dataclasses.replace(SETTING, hyperparameters=hyperparameters)
    ((_, text),) = missed([200.0] * 10, [500.0] * 10, setting)
    lowered = "" if cure is None else f"{cure}, "
    assert f"; train for longer, {lowered}or act with sampled actions" in text


@pytest.mark.fast
def test_what_a_few_episodes_vary_by_is_not_told():
    """16 episodes with a deviation of 1: the difference of means has an error of 0.365."""
    assert missed([1.0] * 10, [2.0] * 10, first=0.5) == []  # 2.7 of these
    assert len(missed([0.8] * 10, [2.0] * 10, first=0.5)) == 1  # 3.3
    rng, alarms = np.random.default_rng(0), 0
    for _ in range(200):  # rare successes of settled policies, which repeat their luck
        luck = (rng.random((2, 1, 16)) < 0.1).astype(np.float64)
        now, _ = examine_evaluation(Health(), np.zeros((1, 16)), np.zeros((1, 16)), SETTING)
        for _ in range(10):
            now, texts = examine_evaluation(now, *luck, SETTING)
            alarms += len(texts)
    assert alarms <= 2
    one = np.zeros((1, 1))
    now, _ = examine_evaluation(Health(), one, one, SETTING)
    for _ in range(10):  # a single episode says nothing
        now, texts = examine_evaluation(now, one, one + 500.0, SETTING)
        assert texts == ()


@pytest.mark.fast
def test_likely_actions_are_compared_seed_by_seed():
    seeds = dataclasses.replace(SETTING, num_seeds=3)
    ((_, text),) = missed([[200.0, 500.0, 480.0]] * 3, [[500.0, 500.0, 500.0]] * 3, seeds)
    assert text.startswith("seed 0: the most likely")


@pytest.mark.fast
def test_rare_evaluations_show_more_steps_but_not_more_than_the_run_has():
    rarely = dataclasses.replace(SETTING, eval_every=2, total_steps=300_000)
    ((number, text),) = missed([200.0] * 10, [500.0] * 10, rarely)
    assert number == 3 and "60,000 environment steps" in text
    thrice = dataclasses.replace(SETTING, eval_every=7, total_steps=200_000)
    ((_, text),) = missed([200.0] * 3, [500.0] * 3, thrice)  # after 7, 14 and 20
    assert "for 200,000 environment steps" in text


@pytest.mark.fast
def test_a_phase_compares_evaluations_with_its_own_first():
    now = Health(first_return=(20.0,), best_return=(460.0,), first_sampled=(10.0,))
    assert missed([200.0] * 10, [500.0] * 10, first=500.0, start=now.in_next_phase()) == []


@pytest.mark.fast
def test_warnings_name_the_seeds():
    seeds = dataclasses.replace(SETTING, num_seeds=3)
    ((number, text),) = told(rows(explained_variance=[[0.0, 0.9, 0.02]] * 6), seeds)
    assert number == 3 and text.startswith("seeds 0, 2: the values")
    late = [[0.9, 0.9, 0.0]] * 3 + [[0.9, 0.0, 0.0]] * 5  # others that follow are not told
    ((number, text),) = told(rows(explained_variance=late), seeds)
    assert number == 3 and text.startswith("seed 2: the values")


@pytest.mark.fast
def test_health_is_kept_as_json_between_any_two_outer_iterations():
    table = rows(entropy=[0.69, *[0.001] * 9])
    for cut in range(len(table)):
        now = Health()
        for metrics in table[:cut]:
            now, _ = examine(now, metrics, SETTING)
        text = json.dumps(dataclasses.asdict(now))
        read = TypeAdapter(Health).validate_json(text, strict=True)
        rest = [(number + cut, text) for number, text in told(table[cut:], start=read)]
        assert rest == [each for each in told(table) if each[0] > cut]


@pytest.mark.fast
@pytest.mark.parametrize("return_now", [460.0, 20.0])
def test_a_phase_that_begins_with_what_was_learned_has_risen(return_now):
    """Nothing more can rise where the first phase reached nearly all."""
    learning = rows(returns=[20.0, 200.0, 460.0], explained_variance=[0.0, 0.5, 0.5])
    now = Health()
    for metrics in learning:
        now, _ = examine(now, metrics, SETTING)
    solved = rows(returns=[return_now] * 10, explained_variance=[0.0] * 10)
    warnings = told(solved, start=now.in_next_phase())
    assert len(warnings) == (0 if return_now > 25 else 1)


@pytest.mark.fast
def test_episodes_that_do_not_end_in_a_later_phase_are_told():
    now, _ = examine(Health(), rows()[0], SETTING)
    endless = rows(episodes=[0.0] * 10, returns=[0.0] * 10, explained_variance=[0.9] * 10)
    ((_, text),) = told(endless, start=now.in_next_phase())
    assert "no episode has ended" in text


@pytest.mark.fast
def test_modules_without_such_metrics_are_left_alone():
    known = dataclasses.replace(SETTING, action_space=None, hyperparameters=None)
    table = [{"loss": np.asarray(1.0), "sum/episodes": np.asarray(1.0)}] * 10
    assert when(table, known) == []


UNEXPLAINED = {"UNEXPLAINED": 2.0, "RISE": 1e9}, "seeds 0, 1: the values explain"
MISSED = (
    {"MISSED": -1e9, "RISE": -1e9, "STANDARD_ERRORS": -1e9},
    "seeds 0, 1: the most likely actions",
)


@pytest.mark.full
@pytest.mark.parametrize(
    ("limits", "on_host", "stops"),
    [
        (UNEXPLAINED, False, (2, 4)),
        in_full((UNEXPLAINED, True, (2, 4))),
        in_full((UNEXPLAINED, False, (3,))),
        (MISSED, False, (2, 4)),
        in_full((MISSED, True, (2, 4))),
    ],
)
def test_a_run_warns_once_also_if_it_is_resumed(
    tiny, tmp_path, monkeypatch, limits, on_host, stops
):
    """Every run has these signs here; after the third of five outer iterations."""
    changed, begins = limits
    for name, value in {**changed, "LEAST_STEPS": 0}.items():
        monkeypatch.setattr(health, name, value)
    run = tmp_path / "run"
    settings = {"num_checkpoints": 5, "epochs_per_checkpoint": 1, "num_seeds": 2, "max_queued": 1}
    for stop in (*stops, 5):
        env = GymnasiumAdapter(HostCounter, 2) if on_host else tiny.env()
        callbacks = [StopAt(stop)]
        with tiny.trainer(
            env=env,
            share=False,
            run_dir=str(run),
            restore_checkpoint="auto",
            evaluation_episodes=2,
            skip_initial_evaluation=True,
            callbacks=callbacks,
            **settings,
        ) as trainer:
            trainer.run(0)
        env.close()
    warned = [
        (record.kind, record.env_steps)
        for record in read_records(run / "metrics.jsonl")
        if record.text and record.text.startswith(begins)
    ]
    assert warned == [("warning", 48)]
