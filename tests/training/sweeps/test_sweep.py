"""Sweeps end to end: a trial is its own run, whatever else is trained beside it."""

import bisect
import contextlib
import dataclasses
import json

import jax
import numpy as np
import pytest
from algorithm_rows import NAMES, config_of
from sweep_files import files_of, stops_at
from tiers import in_full

from rlkit.cli.sweep import _report
from rlkit.errors import ConfigError, EnvFailedError, RlkitError, RunDirectoryError
from rlkit.training.files.checkpoint_leaves import tree_digest
from rlkit.training.from_config import reopen
from rlkit.training.logs.loaded_run import load_run
from rlkit.training.run_config import load
from rlkit.training.sweeps import running, shapes
from rlkit.training.sweeps.picture import plot_sweep
from rlkit.training.sweeps.plan import plan_trials
from rlkit.training.sweeps.shapes import Group, group_trials
from rlkit.training.sweeps.stores.directory_store import DirectoryStore
from rlkit.training.sweeps.sweep import Sweep


def assert_close(one, other, tolerance=2e-6):
    """Equal up to rounding; keys and counters to the bit."""

    def compare(a, b):
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=tolerance)

    jax.tree.map(compare, one, other)


@pytest.mark.full
@pytest.mark.parametrize("algorithm", NAMES)
def test_a_trial_is_its_own_run(algorithm, sweeps):
    off_policy = {"warmup_steps": 26, "replay_buffer_capacity": 40}
    more = off_policy if hasattr(config_of(algorithm), "capacity") else {}
    config = sweeps.config(algorithm, num_checkpoints=1, **more)
    sweep = sweeps.run(config)
    assert sweep.is_finished and len(sweep.results) == 4
    assert "4 trials in one program" in sweeps.said[0]
    assert_close(sweeps.state_of(sweep, 2), sweeps.alone(config, 2))
    run, alone = load_run(sweep.trial_directory(2)), load_run(sweeps.root / "alone")
    rows = [[row for row in each.records if row.metrics] for each in (run, alone)]
    for mine, theirs in zip(*rows, strict=True):
        assert (mine.kind, mine.env_steps) == (theirs.kind, theirs.env_steps)
        assert mine.updates == theirs.updates and mine.metrics.keys() == theirs.metrics.keys()
        for name in mine.metrics.keys() - {"train/steps_per_second"}:
            assert mine.metrics[name] == pytest.approx(theirs.metrics[name], rel=1e-4, abs=1e-5)
    assert run.status == "finished" and run.summary["eval_return_mean"] is not None


@pytest.mark.full
def test_trials_differ_in_what_they_learn(sweeps):
    sweep = sweeps.run(sweeps.config(grid={"learning_rate": (1e-3, 1e-2)}))
    params = [sweeps.state_of(sweep, trial).learner.params for trial in (0, 1)]
    assert tree_digest(params[0]) != tree_digest(params[1])


@pytest.mark.full
def test_seeds_are_those_of_a_run_with_several(sweeps):
    config = sweeps.config(num_seeds=3, num_checkpoints=1)
    sweep = sweeps.run(config)
    state = sweeps.state_of(sweep, 1)
    assert_close(state, sweeps.alone(config, 1))
    result = next(each for each in sweep.results if each.trial == 1)
    low, high = result.interval
    assert len(result.scores) == 3 and low <= result.score <= high
    summary = load_run(sweep.trial_directory(1)).summary
    assert summary["eval_return_per_seed"] == pytest.approx(list(result.scores))


@pytest.mark.full
def test_a_deterministic_trial_is_its_own_run_to_the_bit(sweeps, monkeypatch):
    monkeypatch.setenv("NPROC", "1")
    config = sweeps.config(grid={"learning_rate": (1e-3, 1e-2)}, deterministic=True)
    sweep = sweeps.run(config)
    assert "2 trials one by one" in sweeps.said[0]
    assert tree_digest(sweeps.state_of(sweep, 1)) == tree_digest(sweeps.alone(config, 1))


@pytest.mark.full
def test_what_changes_shapes_takes_turns(sweeps):
    grid = {"hidden_sizes": ((8,), (4,)), "learning_rate": (1e-3, 1e-2), "num_epochs": (1, 2)}
    config = sweeps.config(grid=grid)
    changes = config.trial_settings()
    configs = [config.trial(each) for each in changes]
    groups = group_trials(configs, changes)
    assert [group.trials for group in groups] == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert {group.traced for group in groups} == {("learning_rate",)}
    sweep = sweeps.run(config)
    assert len(sweep.results) == 8 and sweep.is_finished


def test_a_trial_that_devices_cannot_share_is_told_before_any_is_trained(sweeps):
    config = sweeps.config(grid={"num_envs": (4, 6)}, devices=4)
    with pytest.raises(ConfigError, match="num_envs=6 cannot be divided among 4 devices"):
        plan_trials(config, config.trial_settings())
    config = sweeps.config(grid={"num_envs": (4, 6)}, devices=4, shard="seeds")
    assert len(plan_trials(config, config.trial_settings()).groups) == 2


@pytest.mark.parametrize(
    ("algorithm", "name", "values", "is_traced"),
    [
        ("ppo", "entropy_coef", (0.0, 0.1), True),
        ("ppo", "max_grad_norm", (0.5, 1.0), True),
        ("ppo", "max_grad_norm", (0.5, None), False),
        ("ppo", "num_steps", (8, 16), False),
        ("dqn", "updates_per_step", (0.25, 0.5), False),  # counted exactly, in Python
        ("sac", "tau", (0.005, 0.01), True),
        ("sac", "temperature", (0.1, 0.2), True),
        ("dqn", "priority_exponent", (0.4, 0.6), True),
    ],
)
def test_numbers_are_inputs_of_a_program_where_they_can_be(
    algorithm, name, values, is_traced, sweeps
):
    config = sweeps.config(algorithm, grid={name: values})
    changes = config.trial_settings()
    configs = [config.trial(each) for each in changes]
    joint = [Group(trials=(0, 1), traced=(name,))]
    apart = [Group(trials=(0,)), Group(trials=(1,))]
    assert group_trials(configs, changes) == (joint if is_traced else apart)


def test_names_in_wandb_are_no_reason_for_a_program_of_its_own(sweeps):
    logs = {"console": False, "wandb": "offline"}
    config = sweeps.config(grid={"learning_rate": (1e-3, 1e-2)}, logger_config=logs)
    assert [group.trials for group in plan_trials(config, config.trial_settings()).groups] == [
        (0, 1)
    ]


@pytest.mark.parametrize(
    ("num_trials", "factor", "rungs"),
    [(27, 3, [3, 8, 22, 64]), (16, 3, [8, 22, 64]), (5, 4, [16, 64]), (2, 3, [22, 64])],
)
def test_halving_ends_with_the_rung_that_leaves_one(num_trials, factor, rungs, sweeps):
    """Each rung keeps one trial in `factor`, rounded down: 16, 5, 1."""
    grid = {"learning_rate": tuple(np.linspace(1e-3, 1e-2, num_trials))}
    halving = {"halving": factor}
    config = sweeps.config("ppo", grid=grid, num_checkpoints=64, sweep=halving)
    assert plan_trials(config, config.trial_settings()).rungs == rungs


@pytest.mark.full
def test_each_trial_ends_with_its_own_plan(sweeps):
    """32 environments collect 512 steps at once, and overshoot in fewer outer iterations."""
    grid = {"num_envs": (2, 32), "learning_rate": (1e-3, 1e-2)}
    asked = {"total_steps": 512, "num_checkpoints": 8, "epochs_per_checkpoint": None}
    sweep = sweeps.run(sweeps.config(grid=grid, **asked))
    for trial in range(4):
        run = load_run(sweep.trial_directory(trial))
        assert run.status == "finished" and run.summary["env_steps"] == 512


@pytest.mark.full
def test_one_program_trains_all_trials_of_a_shape(sweeps):
    counts = []
    for name, values in (("few", (1e-3, 1e-2)), ("more", tuple(np.linspace(1e-3, 1e-2, 3)))):
        trainers = []
        config = sweeps.config(grid={"learning_rate": values}, num_checkpoints=1)
        sweeps.run(config, name, watch=trainers.append)
        [trainer] = trainers
        counts.append(trainer.compiler.count)
    assert counts[0] == counts[1]


def test_trials_that_do_not_fit_into_memory_are_split(sweeps, monkeypatch):
    config = sweeps.config("dqn", grid={"learning_rate": tuple(np.linspace(1e-3, 1e-2, 10))})
    one = needed(config, monkeypatch)
    assert sizes(config, one * 4, monkeypatch) == [4, 3, 3]
    assert sizes(config, one, monkeypatch) == [1] * 10
    with pytest.raises(ConfigError, match="memory"):
        sizes(config, one // 4, monkeypatch)


def test_devices_have_their_memory_together(sweeps, monkeypatch):
    rates = {"learning_rate": (1e-3, 1e-2)}
    one = needed(sweeps.config("dqn", grid=rates), monkeypatch)
    for shard, available in (("seeds", one), ("data", one * 1.5)):  # with the networks on both
        asked = {"grid": rates, "devices": 2, "shard": shard}
        assert sizes(sweeps.config("dqn", **asked), available, monkeypatch) == [2]
        large = sweeps.config("dqn", **asked, num_seeds=2)
        assert sizes(large, available / 2, monkeypatch) == [1, 1]
    odd = sweeps.config("dqn", grid={"learning_rate": (1e-3, 3e-3, 1e-2)})
    odd = dataclasses.replace(odd, run=sweeps.run_config("dqn", devices=2, shard="seeds"))
    assert sizes(odd, one * 2, monkeypatch) == [2, 1]  # one device would train all three


def needed(config, monkeypatch):
    """Bytes that one trial needs, to the next thousand."""
    trial = config.trial(config.trial_settings()[0])
    parts = shapes.joint_parts([trial], ("learning_rate",))

    def is_enough(memory):
        monkeypatch.setattr(shapes, "memory_of_several", lambda count: memory)
        with contextlib.suppress(ConfigError):
            shapes._check_fits(parts, trial.trainer, 1)
            return True
        return False

    sizes = range(0, 10**7, 1000)
    return sizes[bisect.bisect_left(sizes, True, key=is_enough)]


def sizes(config, available, monkeypatch):
    """The sizes of the groups, on devices that each have so much memory for a sweep."""
    memory = int(available / shapes.SHARE)
    monkeypatch.setattr(shapes, "memory_of_several", lambda count: count * memory)
    changes = config.trial_settings()
    groups = group_trials([config.trial(each) for each in changes], changes)
    assert sum((group.trials for group in groups), ()) == tuple(range(len(changes)))
    return [len(group.trials) for group in groups]


@pytest.mark.full
def test_environments_on_the_host_train_one_by_one(sweeps):
    config = sweeps.config(
        grid={"learning_rate": (1e-3, 1e-2)}, env="gymnasium/CartPole-v1", max_evaluation_steps=20
    )
    sweep = sweeps.run(config)
    assert "2 trials one by one" in sweeps.said[0] and sweep.is_finished
    assert_close(sweeps.state_of(sweep, 1).learner.params, sweeps.alone(config, 1).learner.params)


@pytest.mark.full
def test_a_trial_that_diverges_harms_no_other(sweeps):
    """With so much weight on the entropy, no gradient has a finite norm."""
    wild = sweeps.run(sweeps.config(grid={"entropy_coef": (0.0, 1e38, 0.1)}), "wild")
    calm = sweeps.run(sweeps.config(grid={"entropy_coef": (0.0, 0.1)}), "calm")
    assert_close(sweeps.state_of(wild, 2), sweeps.state_of(calm, 1))
    skipped = {result.trial: result.skipped_updates for result in wild.results}
    assert skipped == {0: 0, 1: 4, 2: 0}
    assert "diverged: 4 updates skipped" in wild.table()
    assert load_run(wild.trial_directory(1)).summary["skipped_updates"] == 4


@pytest.mark.full
def test_a_group_that_fails_is_trained_one_by_one(sweeps, monkeypatch):
    """Whichever trial made an environment fail, the others still count."""
    failed, train = [], running.train_alone

    def fails(*arguments, **named):
        raise EnvFailedError("the rewards of outer iteration 1 are not finite; repair it")

    def second_fails(config, directory, until, **named):
        progress = train(config, directory, until, **named)
        if directory.name == "001":
            failed.append(directory)
            raise EnvFailedError("not finite; repair it")
        return progress

    monkeypatch.setattr(running, "train_jointly", fails)
    monkeypatch.setattr(running, "train_alone", second_fails)
    sweep = sweeps.run(sweeps.config(grid={"learning_rate": (1e-3, 1e-2, 2e-2)}))
    assert any("a trial failed" in text for text in sweeps.said) and len(failed) == 1
    last = sweep.results[-1]
    assert (last.trial, last.failure, last.score) == (1, "not finite", -np.inf)
    assert "failed: not finite" in sweep.table() and sweep.best.trial in (0, 2)
    # Done is done: what failed is not trained again.
    monkeypatch.setattr(running, "train_alone", fails)
    assert sweeps.run(None).table() == sweep.table() and len(failed) == 1


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_sweep_that_was_stopped_ends_like_any_other(algorithm, sweeps):
    config = sweeps.config(algorithm, num_checkpoints=3, num_seeds=2, max_queued=1)
    whole = sweeps.run(config, "whole")
    part = sweeps.run(config, "part", watch=stops_at(1))
    assert not part.is_finished and not (part.directory / "best.yaml").exists()
    rest = sweeps.run(None, "part")
    assert rest.is_finished and files_of(rest) == files_of(whole)


@pytest.mark.full
@pytest.mark.parametrize("grid", [{"gamma": (0.9, 0.99)}, in_full({"num_steps": (8, 16)})])
def test_a_stop_that_comes_before_training_is_obeyed(grid, sweeps):
    """As a signal does, while the first program compiles."""
    config = sweeps.config(grid=grid)
    assert not sweeps.run(config, watch=lambda trainer: trainer.request_stop("SIGINT")).is_finished
    assert sweeps.run(None).is_finished


@pytest.mark.full
def test_a_sweep_one_by_one_that_was_stopped_ends_like_any_other(sweeps, monkeypatch):
    monkeypatch.setenv("NPROC", "1")
    grid = {"learning_rate": (1e-3, 1e-2)}
    config = sweeps.config(grid=grid, num_checkpoints=3, deterministic=True)
    whole = sweeps.run(config, "whole")
    assert not sweeps.run(config, "part", watch=stops_at(1)).is_finished
    rest = sweeps.run(None, "part")
    assert files_of(rest) == files_of(whole)


@pytest.mark.full
def test_a_trial_that_was_half_written_is_written_again(sweeps):
    sweep = sweeps.run(sweeps.config(), "whole")
    before = files_of(sweep)
    (sweep.trial_directory(3) / "summary.json").unlink()
    (sweep.directory / "results.jsonl").unlink()
    again = sweeps.run(None, "whole")
    assert files_of(again) == before


@pytest.mark.full
def test_a_finished_sweep_trains_nothing_again(sweeps, monkeypatch):
    sweep = sweeps.run(sweeps.config())
    monkeypatch.setattr(running, "train_jointly", None)
    assert sweeps.run(None).results == sweep.results


@pytest.mark.full
def test_halving_trains_the_best_longest(sweeps):
    grid = {"learning_rate": (1e-3, 3e-3, 1e-2), "gamma": (0.9, 0.95, 0.99)}
    config = sweeps.config(grid=grid, num_checkpoints=9, sweep={"halving": 3})
    sweep = sweeps.run(config)
    assert sweep.num_rungs == 3
    rungs = [result.rung for result in sweep.results]
    assert rungs == [2, 1, 1, 0, 0, 0, 0, 0, 0]
    ends = [
        load_run(sweep.trial_directory(r.trial)).summary["outer_iterations"] for r in sweep.results
    ]
    assert ends == [9, 3, 3] + [1] * 6
    by_rung = {}
    for row in (sweep.directory / "results.jsonl").read_text().splitlines():
        values = json.loads(row)
        by_rung.setdefault(values["rung"], {})[values["trial"]] = np.mean(values["scores"])
    best = sorted(by_rung[0], key=lambda trial: -by_rung[0][trial])[:3]
    assert set(by_rung[1]) == set(best)
    assert "stopped at rung 1 of 3" in sweep.table()
    assert any("rung 1 of 3: 3 of 9 trials go on" in text for text in sweeps.said)


@pytest.mark.full
def test_the_winner_of_halving_is_the_trial_of_a_whole_sweep(sweeps):
    grid = {"learning_rate": (1e-3, 3e-3, 1e-2)}
    config = sweeps.config(grid=grid, num_checkpoints=3, sweep={"halving": 3})
    sweep = sweeps.run(config)
    trial = sweep.best.trial
    alone = sweeps.alone(config, trial)
    assert_close(sweeps.state_of(sweep, trial).learner, alone.learner, 1e-4)
    mine, theirs = load_run(sweep.trial_directory(trial)), load_run(sweeps.root / "alone")
    steps = [[r.env_steps for r in run.records if r.kind == "eval"] for run in (mine, theirs)]
    assert steps[0] == steps[1]
    kinds = [[r.kind for r in run.records if r.text is None] for run in (mine, theirs)]
    assert kinds[0] == kinds[1]


@pytest.mark.full
def test_schedules_end_with_the_last_rung_though_replay_memory_is_filled_again(sweeps):
    grid = {"learning_rate": (1e-3, 3e-3, 1e-2, 2e-2)}
    unsaved = {"save_replay": False}
    config = sweeps.config(
        "dqn", grid=grid, num_checkpoints=4, checkpointer_config=unsaved, sweep={"halving": 2}
    )
    sweep = sweeps.run(config)
    assert sorted(result.rung for result in sweep.results) == [0, 0, 1, 2]
    for result in sweep.results:
        with reopen(sweep.trial_directory(result.trial)) as trainer:
            counts = trainer.state.learner
            left = trainer.plan.num_checkpoints - trainer.outer_iteration
            left *= trainer.plan.steps_per_checkpoint
            assert float(counts.total_steps) == trainer.env_steps + left


@pytest.mark.full
def test_halving_that_was_stopped_ends_like_any_other(sweeps):
    grid = {"learning_rate": (1e-3, 3e-3, 1e-2, 2e-2)}
    config = sweeps.config(grid=grid, num_checkpoints=4, max_queued=1, sweep={"halving": 2})
    whole = sweeps.run(config, "whole")
    for iteration in (1, 3):
        assert not sweeps.run(config, "part", watch=stops_at(iteration)).is_finished
    assert files_of(sweeps.run(None, "part")) == files_of(whole)


@pytest.mark.full
def test_trials_are_runs(sweeps):
    sweep = sweeps.run(sweeps.config(num_seeds=2))
    directory = sweep.trial_directory(sweep.best.trial)
    with reopen(directory, total_steps=96) as trainer:
        before = trainer.env_steps
        trainer.run()
        assert before == 32 and trainer.env_steps == 96
    assert load_run(directory).extended_at == [32]


@pytest.mark.full
def test_the_best_settings_are_a_file_of_settings(sweeps):
    sweep = sweeps.run(sweeps.config())
    best = load(sweep.directory / "best.yaml")
    changes = sweep.best.settings
    assert {name: getattr(best.hyperparameters, name) for name in changes} == changes
    assert best.trainer.run_dir is None


@pytest.mark.full
def test_the_table_has_a_row_for_each_trial(sweeps):
    sweep = sweeps.run(sweeps.config(num_seeds=2))
    rows = (sweep.directory / "results.csv").read_text().splitlines()
    assert rows[0].startswith("trial,learning_rate,gamma,return,low,high,return_seed_0")
    assert len(rows) == 5 and len(sweep.table().splitlines()) == 5
    scores = [float(row.split(",")[3]) for row in rows[1:]]
    assert scores == sorted(scores, reverse=True)
    assert not (sweep.directory / "together").exists()


@pytest.mark.full
def test_area_ranks_by_all_evaluations(sweeps):
    sweep = sweeps.run(sweeps.config(num_checkpoints=3, sweep={"rank": "area"}))
    for result in sweep.results:
        found = load_run(sweep.trial_directory(result.trial)).arrays("eval/avg_return")[1]
        assert result.scores == pytest.approx(found[:, 1:].mean(1))


@pytest.mark.fast
@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.read("plan.json"),
        lambda store: store.read_from("results.jsonl", 0),
        lambda store: store.write("plan.json", "{}"),
        lambda store: store.hold("plan", "it").__enter__(),
        lambda store: store.remove("plan.json"),
    ],
)
def test_what_the_disk_refuses_is_a_sentence(use, tmp_path):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(RunDirectoryError, match=r"cannot .*/notes/.*; check its permissions"):
        use(DirectoryStore(tmp_path / "notes" / "sweep"))
    with pytest.raises(RunDirectoryError, match="File name too long; check its permissions"):
        DirectoryStore(tmp_path / ("n" * 300)).has("sweep.yaml")


@pytest.mark.full
def test_a_directory_belongs_to_one_sweep(sweeps):
    sweeps.run(sweeps.config(grid={"gamma": (0.9, 0.99)}))
    with pytest.raises(RunDirectoryError, match="holds a sweep with other settings"):
        sweeps.run(sweeps.config(grid={"gamma": (0.9, 0.98)}))
    (sweeps.root / "mine").mkdir()
    (sweeps.root / "mine" / "notes.txt").write_text("keep me")
    with pytest.raises(RunDirectoryError, match="already exists, and holds no sweep"):
        sweeps.run(sweeps.config(), "mine")
    with pytest.raises(RunDirectoryError, match="holds no sweep; name a directory"):
        sweeps.run(None, "nothing")


@pytest.mark.full
def test_two_processes_do_not_train_one_sweep(sweeps):
    def again(trainer):
        with pytest.raises(RunDirectoryError, match="in use by this process"):
            sweeps.run(None)

    assert sweeps.run(sweeps.config(grid={"gamma": (0.9, 0.99)}), watch=again).is_finished


MISTAKES = [
    ({"grid": {"lerning_rate": (1e-3, 1e-2)}}, "cannot vary 'lerning_rate'; did you mean"),
    ({"grid": {"gamma": (0.9, 1.5)}}, r"gamma: .*got 1.5 \(in the trial gamma=1.5\)"),
    ({"grid": {"total_steps": (10, 20)}}, "cannot vary 'total_steps'"),
    (
        {"algorithm": "dqn", "grid": {"target_period": (1, 10**6)}},
        "target_period=1000000 is longer than the run",
    ),
    (
        {"algorithm": "dqn", "grid": {"capacity": (500, 4)}},
        "the replay buffer has a capacity of 4, less than",
    ),
    (
        {"grid": {"gamma": (0.9, 0.99)}, "sweep": {"random": {"gamma": (0.8, 0.7)}, "trials": 4}},
        "gamma is in the grid and drawn at random; leave it in one",
    ),
    (
        {"sweep": {"halving": 2}, "num_checkpoints": 4, "eval_every": 4},
        "after 1 outer iterations, which eval_every=4 does not evaluate; use --eval-every 1",
    ),
    ({"restore_checkpoint": "auto"}, "=auto: each trial of a sweep begins anew; leave it out"),
    ({"sweep": {"halving": 3}, "num_checkpoints": 2}, "has no rung before its end; raise"),
    (
        {
            "sweep": {"halving": 2},
            "grid": {"num_steps": (8, 16)},
            "total_steps": 64,
            "num_checkpoints": None,
        },
        "compares trials after the same outer iterations, but these have 2 to 4",
    ),
    ({"sweep": {"trials": 0}}, "trials: .*got 0"),
    ({"sweep": {"rank": "best"}}, "rank: .*got 'best'"),
    (
        {"enable_evaluation": False},
        "a sweep ranks trials by evaluations, but enable_evaluation=False turns",
    ),
    ({"logger_config": None}, "a sweep ranks trials by their logs, .* leave it out"),
    (
        {"logger_config": {"jsonl": "all.jsonl"}},
        "jsonl=all.jsonl: .*; leave jsonl out",
    ),
    (
        {"checkpointer_config": None},
        "a sweep continues trials from checkpoints, but",
    ),
    (
        {"checkpointer_config": {"directory": "all"}},
        "each trial of a sweep has its own run",
    ),
]


@pytest.mark.parametrize(("asked", "said"), MISTAKES)
def test_mistakes_are_told_before_anything_is_trained(asked, said, sweeps):
    with pytest.raises(ConfigError, match=said):
        sweeps.run(sweeps.config(**asked))
    left = sweeps.root / "sweep"  # in which the sweep can be started again, put right
    assert not left.exists() or [path.name for path in left.iterdir()] == [".lock"]


@pytest.mark.fast
def test_a_sweep_without_scores_has_no_best(sweeps):
    config = sweeps.config(grid={"gamma": (0.9, 0.99)})
    sweep = Sweep(directory=sweeps.root, config=config, results=(), num_rungs=1, is_finished=True)
    with pytest.raises(RlkitError, match="no trial of this sweep has a score"):
        _ = sweep.best
    assert _report(sweep, "runs/x").endswith("has a score; see the failures in results.csv")
    stopped = dataclasses.replace(sweep, is_finished=False)
    assert _report(stopped, "my runs/x").endswith("rlkit resume 'my runs/x'")  # to be copied


@pytest.mark.full
@pytest.mark.usefixtures("real_curves")
def test_pictures_are_a_table_where_they_can_be(sweeps, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "rlkit.training.sweeps.picture.save_figure", lambda figure, output: drawn.append(figure)
    )
    sweep = sweeps.run(
        sweeps.config(grid={"gamma": (0.9, 0.99), "learning_rate": (1e-3, 1e-2, 2e-2)})
    )
    axes = drawn[0].axes[0]
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("gamma", "learning rate")
    assert len(axes.texts) == 6
    some = [dataclasses.replace(result) for result in sweep.results[:5]]
    plot_sweep(some, sweep.directory / "some.png", title="")
    assert [axes.get_xlabel() for axes in drawn[1].axes] == ["gamma", "learning rate"]
