"""What a sweep varies: read from text and plain data, drawn, and its mistakes."""

import pathlib

import numpy as np
import pytest

from rlkit.errors import ConfigError
from rlkit.training.config import TrainerConfig
from rlkit.training.run_config import EnvConfig, RunConfig
from rlkit.training.sweeps.config import SweepConfig, check
from rlkit.training.sweeps.space import (
    Range,
    draw_trials,
    from_plain,
    parse_grid,
    parse_random,
    to_plain,
)

pytestmark = pytest.mark.fast


def test_a_grid_is_read_from_text():
    texts = [
        "learning_rate=1e-4,3e-4",
        "--hidden-sizes=[64,64],[128]",
        "optimizer=adam, lion",
        "max_grad_norm=0.5,null",
        "double=true,false",
    ]
    assert parse_grid(texts) == {
        "learning_rate": (1e-4, 3e-4),
        "hidden_sizes": ((64, 64), (128,)),
        "optimizer": ("adam", "lion"),
        "max_grad_norm": (0.5, None),
        "double": (True, False),
    }


def test_ranges_are_read_from_text():
    texts = ["gamma=0.95..0.999", "learning_rate=1e-5..1e-2:log", "batch_size=32..256", "loss=a,b"]
    assert parse_random(texts) == {
        "gamma": Range(low=0.95, high=0.999),
        "learning_rate": Range(low=1e-5, high=1e-2, log=True),
        "batch_size": Range(low=32, high=256),
        "loss": ("a", "b"),
    }


MISTAKES = [
    (lambda: parse_grid(["gamma"]), "cannot read 'gamma'; write NAME=VALUE"),
    (lambda: parse_grid(["gamma="]), "cannot read 'gamma='"),
    (lambda: parse_grid(["gamma=0.9..0.99"]), "is a range.*use --random gamma=0.9..0.99"),
    (lambda: parse_grid(["gamma=0.9,0.9"]), "the value 0.9 twice"),
    (lambda: parse_grid(["gamma=0.9", "gamma=0.8"]), "gamma is given twice"),
    (lambda: parse_grid(["gamma=[0.9"]), "cannot read the values of gamma"),
    (lambda: parse_grid(["n=64,1,024"]), "commas separate values, so 1,024 is 2 .* write 1024"),
    (lambda: parse_random(["n=1,000,000"]), "so 1,000,000 is 3 of them; write 1000000"),
    (lambda: parse_random(["gamma=0.99..0.9"]), "empty; write the smaller number first"),
    (lambda: parse_random(["gamma=0..1:log"]), "has no logarithms"),
    (lambda: parse_random(["gamma=1e-4:1e-2"]), "one value, of .*; write gamma=LOW..HIGH, or"),
    (lambda: parse_random(["gamma=0..1:ln"]), "ends with 'ln'"),
    (lambda: parse_random(["gamma=a..b"]), "needs numbers as limits, got 'a'"),
    (lambda: parse_random([f"num_steps=1..{10**19}"]), r"limits below 2\*\*63, got 10000"),
    (lambda: parse_random([f"num_steps=1..{10**400}"]), r"limits below 2\*\*63, got 10000"),
    (lambda: parse_random(["gamma=1..2..3"]), "is no range"),
    (lambda: draw_trials({}, {}, None, 0), "varies nothing; add --grid"),
    (lambda: draw_trials({}, {"a": Range(low=0.1, high=1.0)}, None, 0), "add --trials 4"),
    (lambda: draw_trials({"a": (1, 2, 3)}, {}, 2, 0), "2 trials are fewer than the 3"),
    (lambda: draw_trials({"a": (1, 2, 3)}, {}, 4, 0), "4 trials are more than the 3"),
    (lambda: from_plain([1], where="grid"), "grid must map names to values"),
    (lambda: from_plain({"a": 1}, where="grid"), "grid.a must be a list, got 1"),
    (lambda: from_plain({"a": []}, where="grid"), "grid.a must be a list"),
    (lambda: from_plain({"a": {"low": 1}}, where="random"), "random.a is no range"),
]


@pytest.mark.parametrize(("call", "said"), MISTAKES)
def test_mistakes_are_told_with_their_cure(call, said):
    with pytest.raises(ConfigError, match=said):
        call()


def test_a_grid_alone_is_every_combination_once():
    trials = draw_trials({"a": (1, 2), "b": ("x", "y", "z")}, {}, None, 0)
    assert len(trials) == 6
    assert {(trial["a"], trial["b"]) for trial in trials} == {(a, b) for a in (1, 2) for b in "xyz"}


def test_the_grid_comes_in_turn_while_others_are_drawn():
    random = {"gamma": Range(low=0.95, high=0.999), "optimizer": ("adam", "lion")}
    trials = draw_trials({"a": (1, 2, 3)}, random, 16, 0)
    assert [trial["a"] for trial in trials] == [1, 2, 3] * 5 + [1]
    assert len({trial["gamma"] for trial in trials}) == 16
    assert {trial["optimizer"] for trial in trials} == {"adam", "lion"}
    assert trials == draw_trials({"a": (1, 2, 3)}, random, 16, 0)
    assert trials != draw_trials({"a": (1, 2, 3)}, random, 16, 1)


@pytest.mark.parametrize("log", [False, True])
def test_draws_fill_their_range_evenly(log):
    space, dice = Range(low=1e-4, high=1e-1, log=log), np.random.default_rng(0)
    draws = np.array([space.draw(dice) for _ in range(4000)])
    assert draws.min() >= 1e-4 and draws.max() <= 1e-1
    place = np.log10(draws / 1e-4) / 3 if log else draws / 1e-1
    counts = np.histogram(place, bins=8, range=(0, 1))[0]
    chi_square = ((counts - 500) ** 2 / 500).sum()
    assert chi_square < 24.3  # the 99.9 % point of 7 degrees of freedom


def test_whole_limits_give_whole_numbers_both_limits_included():
    dice = np.random.default_rng(0)
    draws = {Range(low=1, high=4).draw(dice) for _ in range(200)}
    assert draws == {1, 2, 3, 4} and all(isinstance(draw, int) for draw in draws)
    draws = [Range(low=8, high=512, log=True).draw(dice) for _ in range(200)]
    assert all(isinstance(draw, int) and 8 <= draw <= 512 for draw in draws)


def test_drawn_numbers_are_short():
    draw = Range(low=0.9, high=0.999).draw(np.random.default_rng(0))
    assert draw == float(f"{draw:.4g}")


@pytest.mark.parametrize(
    "space", [Range(low=0.9999, high=0.99999), Range(low=-1e5, high=-99_999.0)]
)
def test_draws_from_a_narrow_range_differ(space):
    dice = np.random.default_rng(0)
    draws = [space.draw(dice) for _ in range(1000)]
    assert len(set(draws)) > 500 and min(draws) >= space.low and max(draws) <= space.high


def test_whole_numbers_are_drawn_from_all_of_a_narrow_range():
    space, dice = Range(low=1_000_000, high=1_000_100, log=True), np.random.default_rng(0)
    assert len({space.draw(dice) for _ in range(3000)}) == 101


def test_plain_data_gives_the_same_space_back():
    grid = {"a": np.linspace(0.5, 1.0, 3), "b": [np.float64(0.5), 1], "c": [np.arange(2)]}
    plain = from_plain(grid, where="grid")
    assert plain == {"a": (0.5, 0.75, 1.0), "b": (0.5, 1), "c": ((0, 1),)}
    assert all(type(value) is float for value in plain["a"])
    space = {"a": (1, 2), "b": Range(low=0.1, high=1.0, log=True), "sizes": ((64, 64), (8,))}
    assert from_plain(to_plain(space), where="random") == space


def test_settings_of_a_sweep_become_those_of_python():
    run = RunConfig(
        algorithm="ppo",
        env=EnvConfig(id="gymnax/CartPole-v1"),
        trainer=TrainerConfig(total_steps=np.int32(1000), warm_start=pathlib.Path("runs/a")),
    )
    grid = {"gamma": (0.9, 0.99)}
    config = check(SweepConfig(run=run, grid=grid, halving=np.int64(2)))
    assert type(config.halving) is type(config.run.trainer.total_steps) is int
    assert config.run.trainer.warm_start == "runs/a" and config.grid == grid
