"""Searches that learn from trials: Optuna in batches, populations; W&B for sweeps."""

import dataclasses
import json
import sys

import jax
import numpy as np
import pytest
import yaml
from flax import struct
from stopping import StopAt
from wandb_files import wandb_files, wandb_labels

from rlkit.errors import ConfigError
from rlkit.training.logs.loaded_run import load_run
from rlkit.training.sweeps.config import check
from rlkit.training.sweeps.population import Population
from rlkit.training.sweeps.results import TrialResult
from rlkit.training.sweeps.search import batches_of
from rlkit.training.sweeps.space import Range
from rlkit.training.sweeps.stages import PauseAt
from rlkit.training.sweeps.stores.store import open_store
from rlkit.training.sweeps.wandb_sweep import wandb_sweep, write_wandb_sweep

RATES = {"learning_rate": Range(low=1e-4, high=1e-1, log=True), "gamma": Range(low=0.5, high=0.99)}


def scored(config, score):
    """All settings that a search chooses if trials reach `score(settings)`."""
    results, found = {}, []
    for batch in batches_of(config, lambda: results):
        for settings in batch:
            trial = len(found)
            scores = score(settings)
            results[0, trial] = TrialResult(
                trial=trial, rung=0, settings=settings, scores=scores, env_steps=1
            )
            found.append(settings)
    return found


def closeness(settings):
    return (-abs(np.log10(settings["learning_rate"] / 1e-2)) - abs(settings["gamma"] - 0.9),)


def test_optuna_comes_nearer_than_dice(sweeps):
    asked = {"random": RATES, "trials": 48, "search": "optuna", "batch": 8}
    config = sweeps.config(grid={}, sweep=asked)
    found = [closeness(settings)[0] for settings in scored(config, closeness)]
    dice = dataclasses.replace(config, search="random", batch=None)
    drawn = [closeness(settings)[0] for settings in scored(dice, closeness)]
    assert len(found) == len(drawn) == 48
    assert np.mean(found[-16:]) > np.mean(drawn) + 0.3 and max(found) > max(drawn) - 0.05


def test_optuna_asks_the_same_again(sweeps):
    random = RATES | {"optimizer": ("adam", "lion"), "num_steps": Range(low=4, high=16)}
    asked = {"random": random, "trials": 10, "search": "optuna", "batch": 4, "search_seed": 3}
    config = sweeps.config(grid={"hidden_sizes": ((8,), (4,))}, sweep=asked)
    found = scored(config, closeness)
    assert found == scored(config, closeness)
    assert {settings["optimizer"] for settings in found} == {"adam", "lion"}
    assert all(isinstance(settings["num_steps"], int) for settings in found)
    assert {settings["hidden_sizes"] for settings in found} == {(8,), (4,)}
    failed = scored(config, lambda settings: ())
    assert len(failed) == 10 and failed[:4] == found[:4]


def test_without_optuna_its_name_says_what_to_install(sweeps, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    config = sweeps.config(grid={}, sweep={"random": RATES, "trials": 4, "search": "optuna"})
    with pytest.raises(ConfigError, match=r"pip install 'rlkit-jax\[search\]'"):
        sweeps.run(config)


@pytest.mark.full
def test_a_sweep_of_optuna_goes_on_where_it_stopped(sweeps):
    asked = {"random": RATES, "trials": 4, "search": "optuna", "batch": 2}
    config = sweeps.config(grid={}, sweep=asked, max_queued=1)
    whole = sweeps.run(config, "whole")
    assert [result.trial for result in sorted(whole.results, key=lambda x: x.trial)] == [0, 1, 2, 3]
    trainers = []

    def watch(trainer):
        trainers.append(trainer)
        if len(trainers) == 2:
            trainer._callbacks.append(PauseAt(1))

    assert not sweeps.run(config, "part", watch=watch).is_finished
    assert sweeps.run(None, "part").results == whole.results


class Learner(struct.PyTreeNode):
    params: jax.Array
    hyperparameters: dict


class Local(struct.PyTreeNode):
    key: jax.Array


class State(struct.PyTreeNode):
    learner: Learner
    local: Local


def population_state(count):
    values = {"gamma": np.linspace(0.6, 0.9, count, dtype=np.float32)}
    learner = Learner(params=jax.numpy.arange(count), hyperparameters=values)
    return State(learner=learner, local=Local(key=jax.random.split(jax.random.key(0), count)))


def test_the_worst_quarter_copies_the_best(tmp_path):
    population = Population(
        every=2,
        ranges={"gamma": Range(low=0.5, high=0.99)},
        seed=0,
        store=open_store(tmp_path),
        rows="rows",
    )
    state, names = population_state(8), [10, 11, 12, 13, 14, 15, 16, 17]
    scores = [5.0, np.nan, 3.0, 9.0, 4.0, 8.0, 1.0, 2.0]
    after = population.exploit(state, scores, 2, names)
    params = np.asarray(after.learner.params)
    assert set(params[[1, 6]]) <= {3, 5}  # NaN and 1 are the worst, 9 and 8 the best
    untouched = [0, 2, 3, 4, 5, 7]
    assert params[untouched].tolist() == untouched
    before, now = state.learner.hyperparameters["gamma"], after.learner.hyperparameters["gamma"]
    assert now[untouched].tolist() == before[untouched].tolist()
    rows = [json.loads(row) for row in (tmp_path / "rows").read_text().splitlines()]
    assert [row["trial"] for row in rows] == [11, 16]
    for row in rows:
        lane, source = row["trial"] - 10, row["copies"] - 10
        value, copied = row["settings"]["gamma"], float(before[source])
        assert value == float(now[lane]) and params[lane] == source
        assert 0.5 <= value <= 0.99 and value != copied
    keys = [jax.random.key_data(x.local.key).tolist() for x in (state, after)]
    assert keys[0] == keys[1]
    again = population.exploit(state, scores, 2, names)
    assert np.array_equal(again.learner.hyperparameters["gamma"], now)
    assert len((tmp_path / "rows").read_text().splitlines()) == 2  # not twice


def test_copied_numbers_are_multiplied_or_drawn_anew(tmp_path):
    population = Population(
        every=1,
        ranges={"gamma": Range(low=1e-3, high=10.0)},
        seed=0,
        store=open_store(tmp_path),
        rows="rows",
    )
    ratios = []
    for iteration in range(1, 60):
        state = population_state(8)
        after = population.exploit(state, range(8), iteration, range(8))
        source = int(after.learner.params[0])
        values = [
            float(x.learner.hyperparameters["gamma"][i]) for x, i in ((after, 0), (state, source))
        ]
        ratios.append(round(values[0] / values[1], 3))
    assert 10 <= ratios.count(0.8) <= 35 and 10 <= ratios.count(1.2) <= 35
    others = [ratio for ratio in ratios if ratio not in (0.8, 1.2)]
    assert 5 <= len(others) <= 27  # a quarter of 59


def test_copied_numbers_stay_in_their_range(tmp_path):
    best = 0.9  # of the best trial, and the end of the range
    population = Population(
        every=1,
        ranges={"gamma": Range(low=0.6, high=best)},
        seed=0,
        store=open_store(tmp_path),
        rows="rows",
    )
    found = []
    for iteration in range(1, 20):
        after = population.exploit(population_state(4), range(4), iteration, range(4))
        found.append(float(after.learner.hyperparameters["gamma"][0]))
    assert max(found) == pytest.approx(best) and min(found) >= 0.6 and len(set(found)) > 2


POPULATION = {"random": RATES, "trials": 8, "exploit_every": 1}


@pytest.mark.full
def test_a_population_trains_copies_further(sweeps):
    config = sweeps.config(grid={}, sweep=POPULATION, num_checkpoints=3)
    sweep = sweeps.run(config)
    rows = [
        json.loads(row) for row in (sweep.directory / "population.jsonl").read_text().splitlines()
    ]
    assert [row["outer_iteration"] for row in rows] == [1, 1, 2, 2]
    last = {row["trial"]: row["settings"] for row in rows}
    for result in sweep.results:
        drawn = config.trial_settings()[result.trial]
        wanted = last.get(result.trial, drawn)
        assert result.settings == pytest.approx(wanted, rel=1e-5)
        run = load_run(sweep.trial_directory(result.trial))
        own = {name: run.config["hyperparameters"][name] for name in RATES}
        assert own == pytest.approx(wanted, rel=1e-5)


@pytest.mark.full
def test_a_population_that_was_stopped_ends_like_any_other(sweeps):
    config = sweeps.config(
        "sac",
        grid={},
        sweep=POPULATION | {"random": {"tau": Range(low=0.1, high=0.9)}},
        num_checkpoints=3,
    )
    whole = sweeps.run(config, "whole")

    def watch(trainer):
        trainer._callbacks.append(PauseAt(2))

    assert not sweeps.run(config, "part", watch=watch).is_finished
    rest = sweeps.run(None, "part")
    assert rest.results == whole.results
    texts = [(sweep.directory / "population.jsonl").read_text() for sweep in (whole, rest)]
    assert texts[0] == texts[1]
    digests = [
        [load_run(x.trial_directory(trial)).summary["params_sha256"] for trial in range(8)]
        for x in (whole, rest)
    ]
    assert digests[0] == digests[1]


@pytest.mark.full
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_population_stops_where_it_is_asked_to(at, sweeps):
    """Also at the end of a stretch, after which trials would copy each other."""
    config = sweeps.config(grid={}, sweep=POPULATION, num_checkpoints=4)
    stopped = []

    def watch(trainer):
        trainer._callbacks.insert(0, StopAt(at))
        stopped.append(trainer)

    assert not sweeps.run(config, watch=watch).is_finished
    [trainer] = stopped
    assert trainer.outer_iteration == at and trainer.stop_reason == "asked to"


MISTAKES = [
    ({"num_seeds": 2}, {}, "each of 2 seeds would be a population of its own; leave out"),
    ({}, {"trials": 3}, "at least 4 trials in one program; raise --trials"),
    ({}, {"random": RATES | {"optimizer": ("adam", "lion")}}, "but optimizer has none"),
    ({}, {"exploit_every": 2}, "is not within the 2 outer iterations"),
    ({"eval_every": 2, "num_checkpoints": 4}, {}, "use --exploit-every 2"),
    ({}, {"random": {"gamma": Range(low=0.9, high=1.2)}}, r"gamma: .*got 1\.2 \(in the trial"),
    ({}, {"halving": 2}, "neither halved nor searched"),
    ({}, {"search": "optuna"}, "neither halved nor searched"),
]


@pytest.mark.parametrize(("trainer", "asked", "said"), MISTAKES)
def test_a_population_says_what_it_needs(trainer, asked, said, sweeps):
    with pytest.raises(ConfigError, match=said):
        sweeps.run(sweeps.config(grid={}, sweep=POPULATION | asked, **trainer))


@pytest.mark.parametrize(
    ("random", "said"),
    [
        ({"gamma": Range(low=0.9, high=1.5)}, r"gamma: .*got 1\.5"),
        ({"gama": Range(low=0.9, high=0.99)}, "cannot vary 'gama'; did you mean 'gamma'"),
        ({"optimizer": ("adam", "adams")}, "optimizer: .*adams"),
    ],
)
def test_what_optuna_may_choose_is_looked_at_first(random, said, sweeps):
    asked = {"search": "optuna", "trials": 8, "random": random}
    with pytest.raises(ConfigError, match=said):
        check(sweeps.config(grid={}, sweep=asked))


def test_settings_that_depend_on_each_other_are_looked_at_together(sweeps):
    grid = {"memory": ("gru", "lstm"), "memory_size": (64, 128)}
    assert check(sweeps.config(grid=grid, sweep={"search": "optuna", "trials": 8}))


def test_numbers_of_numpy_are_numbers(sweeps):
    """They are written to sweep.yaml as Python's."""
    asked = {"trials": np.int64(1), "random": {"gamma": Range(low=0.5, high=0.9)}}
    assert sweeps.run(sweeps.config(grid={}, sweep=asked)).is_finished
    assert (sweeps.root / "sweep" / "sweep.yaml").is_file()


def test_a_batch_needs_a_search(sweeps):
    with pytest.raises(ConfigError, match="batch is for --search optuna"):
        sweeps.run(sweeps.config(sweep={"batch": 2}))


@pytest.mark.fast
def test_a_sweep_for_wandb_agents_says_what_ours_tries(sweeps, tmp_path):
    random = RATES | {
        "num_steps": Range(low=8, high=16),
        "num_epochs": Range(low=1, high=8, log=True),
        "optimizer": ("adam", "lion"),
    }
    config = sweeps.config(
        grid={"hidden_sizes": ((8,), (4, 4))}, sweep={"random": random, "trials": 8}
    )
    found = wandb_sweep(config, ["ppo", "gymnax/CartPole-v1", "--num-envs", "4"])
    assert found["method"] == "random" and found["run_cap"] == 8
    assert found["parameters"] == {
        "hidden_sizes": {"values": [[8], [4, 4]]},
        "learning_rate": {"distribution": "log_uniform_values", "min": 1e-4, "max": 1e-1},
        "gamma": {"distribution": "uniform", "min": 0.5, "max": 0.99},
        "num_steps": {"distribution": "int_uniform", "min": 8, "max": 16},
        "num_epochs": {"distribution": "q_log_uniform_values", "q": 1, "min": 1, "max": 8},
        "optimizer": {"values": ["adam", "lion"]},
    }
    command = "${env} rlkit train ppo gymnax/CartPole-v1 --num-envs 4 --wandb ${args}"
    assert found["command"] == command.split()
    write_wandb_sweep(config, tmp_path / "agents.yaml", [])
    assert yaml.safe_load((tmp_path / "agents.yaml").read_text())["method"] == "random"
    with pytest.raises(ConfigError, match="it already exists"):
        write_wandb_sweep(config, tmp_path / "agents.yaml", [])


@pytest.mark.full
@pytest.mark.parametrize("deterministic", [False, True])
def test_each_trial_is_a_run_of_weights_and_biases(deterministic, sweeps, monkeypatch):
    monkeypatch.setenv("NPROC", "1")
    monkeypatch.setenv("WANDB_DIR", str(sweeps.root))
    log = {"console": False, "wandb": "offline"}
    grid = {"learning_rate": (1e-3, 1e-2)}
    sweeps.run(sweeps.config(grid=grid, logger_config=log, deterministic=deterministic))
    found = [wandb_labels(path) for path in wandb_files(sweeps.root)]
    assert len(found) == 2
    assert sorted(labels["name"] for labels, _ in found) == ["sweep-000", "sweep-001"]
    assert {labels["group"] for labels, _ in found} == {"sweep"}
    assert sorted(config["hyperparameters.learning_rate"] for _, config in found) == [1e-3, 1e-2]
