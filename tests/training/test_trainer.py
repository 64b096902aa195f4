"""What `Trainer` promises to those who call it: results, counters, callbacks, logs,
files, errors.
"""

import collections
import dataclasses
import itertools
import json
import math
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from gymnasium import spaces
from host_twins import HostCounter
from small_trainers import trainer_of
from stopping import StopAt
from tiers import in_full

import rlkit
from rlkit.cli.main import main
from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.errors import (
    CheckpointError,
    ConfigError,
    NonFiniteError,
    RunDirectoryError,
    SpaceError,
)
from rlkit.ops.counters import StepCounter
from rlkit.training import outer_loop, reporting, run_config
from rlkit.training.callbacks import Callback
from rlkit.training.config import CheckpointerConfig, LoggerConfig
from rlkit.training.files.checkpoint_leaves import tree_digest
from rlkit.training.files.checkpointer import Checkpointer
from rlkit.training.files.run_description import hparams_to_dict
from rlkit.training.files.run_files import open_checkpoints
from rlkit.training.logs.records import read_records
from rlkit.training.policy import load_policy


class Diary(Callback):
    """Writes down every call; `at` maps an iteration to what is done at its end."""

    def __init__(self, at=None):
        self.calls, self.metrics, self.ahead, self.at = [], [], [], at or {}

    def on_run_start(self, trainer):
        self.calls.append("start")

    def on_iteration_end(self, trainer, iteration, metrics):
        self.calls.append(("iteration", iteration))
        self.metrics.append(metrics)
        self.ahead.append(trainer.outer_iteration - iteration)
        if iteration in self.at:
            self.at[iteration](trainer)

    def on_evaluation(self, trainer, iteration, evaluation):
        self.calls.append(("evaluation", iteration))

    def on_checkpoint(self, trainer, iteration):
        self.calls.append(("checkpoint", iteration))

    def on_run_end(self, trainer):
        self.calls.append("end")


class Memory:
    """A logger of the user's own."""

    def __init__(self):
        self.records, self.closed, self.info = [], False, None

    def start(self, run_info, /):
        self.info = run_info

    def log(self, record, /):
        self.records.append(record)

    def state(self):
        return {}

    def restore(self, state, /): ...
    def flush(self): ...
    def close(self):
        self.closed = True

    def of(self, kind, seed=None):
        return [record for record in self.records if record.kind == kind and record.seed == seed]


@pytest.fixture(autouse=True)
def on_a_machine_that_is_never_busy(monkeypatch):
    """Or how many outer iterations are queued would depend on what else it does."""
    monkeypatch.setattr(outer_loop, "LONG_ITERATION", math.inf)


def steps(folder):
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


# Results


def test_run_returns_one_evaluation_per_outer_iteration(tiny):
    logger = Memory()
    trainer = tiny.trainer(logger=logger)
    history = trainer.run(0)
    assert len(history) == 3 and history == trainer.history.evaluations
    for row in history:
        # Counter reports nothing: no done_info.
        assert set(row) == {
            "return",
            "length",
            "sampled_return",
            "sampled_length",
            "env_steps",
            "updates",
        }
        of_episodes = [x for name, x in row.items() if name not in ("env_steps", "updates")]
        assert all(type(x) is np.ndarray and x.shape == (3,) for x in of_episodes)
    assert [row["env_steps"] for row in history] == [32, 64, 96]
    assert (
        history[-1]["updates"]
        == trainer.state.learner.updates.to_int()
        == logger.of("eval")[-1].updates
    )
    evaluated = [record.env_steps for record in logger.of("eval")]
    assert evaluated == [0, 32, 64, 96]  # the initial one is logged, not listed
    assert trainer.env_steps == 96 and trainer.run() == [] and len(trainer.history.evaluations) == 3
    assert "finished" in logger.of("event")[-1].text


def test_results_with_seeds_and_each_seed_is_its_single_run(tiny):
    logger = Memory()
    trainer = tiny.trainer(num_seeds=2, logger=logger)
    state = trainer.init(5)
    firsts = [tree_digest(jax.tree.map(lambda x, i=i: x[i], state)) for i in range(2)]
    history = trainer.run()
    assert [row.pop("env_steps") for row in history] == [32, 64, 96]
    assert len({row.pop("updates") for row in history}) == 3
    assert {x.shape for row in history for x in row.values()} == {(2, 3)}
    for i in range(2):
        single = tiny.trainer()
        assert tree_digest(single.init(5 + i)) == firsts[i]  # equal exactly at the start
        for ours, theirs in zip(history, single.run(), strict=True):
            np.testing.assert_allclose(ours["sampled_return"][i], theirs["sampled_return"])
        ours = jax.tree.map(lambda x, i=i: x[i], trainer.state.learner.params)
        close = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
        jax.tree.map(close, ours, single.state.learner.params)
    mean, rows = logger.of("eval")[-1], [logger.of("eval", seed)[-1] for seed in (0, 1)]
    for name, value in mean.metrics.items():
        assert value == pytest.approx(np.mean([row.metrics[name] for row in rows])), name
    assert trainer.summary()["eval_return_per_seed"] == history[-1]["return"].mean(1).tolist()
    over_seeds = history[-1]["return"].mean(1).std(ddof=1)
    assert trainer.summary()["eval_return_std"] == pytest.approx(over_seeds)


def test_the_untrained_networks_are_never_the_best(tiny, tmp_path, monkeypatch):
    scores = iter([5.0, 4.0, 3.0, 2.0])  # worse and worse
    monkeypatch.setattr("rlkit.training.outer_loop.score", lambda *_: next(scores))
    with tiny.trainer(run_dir=str(tmp_path / "run")) as trainer:
        trainer.run(0)
    assert steps(tmp_path / "run" / "checkpoints") == [1, 2, 3]
    assert load_policy(tmp_path / "run", "best").checkpoint_step == 1


def test_callbacks_see_the_steps_of_what_they_are_told(tiny):
    told = []

    class Diary(Callback):
        def on_iteration_end(self, trainer, iteration, metrics):
            told.append((iteration, metrics["env_steps"], metrics["updates"]))

        def on_evaluation(self, trainer, iteration, evaluation):
            told.append((iteration, evaluation["env_steps"], evaluation["updates"]))

    trainer = tiny.trainer(callbacks=[Diary()], max_queued=2)
    trainer.run(0)
    each = trainer.state.learner.updates.to_int() // 3
    trained = [(i, 32 * i, each * i) for i in (1, 2, 3)]
    assert told == [(0, 0, 0), *(row for row in trained for _ in range(2))]


@pytest.mark.parametrize("enabled", [True, False])
def test_evaluation_off_or_not_due_is_an_empty_dict(tiny, enabled):
    logger = Memory()
    trainer = tiny.trainer(
        enable_evaluation=enabled,
        eval_every=2,
        skip_initial_evaluation=True,
        logger=logger,
        callbacks=[diary := Diary()],
    )
    history = trainer.run(0)
    # The last one is always evaluated.
    assert [bool(row) for row in history] == [
        False,
        enabled,
        enabled,
    ]
    assert [record.env_steps for record in logger.of("eval")] == ([64, 96] if enabled else [])
    assert [call[1] for call in diary.calls if call[0] == "evaluation"] == (
        [2, 3] if enabled else []
    )


@dataclasses.dataclass(frozen=True)
class Telling:
    """Two steps; reports how far it is and a flag."""

    max_episode_steps = 2
    observation_space = spaces.Box(0, 2, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, key):
        return jnp.int32(0), jnp.zeros(1)

    def step(self, key, state, action):
        info = {"p": 0.25 * (state + 1), "odd": (state + 1) % 2 == 1}
        return state + 1, jnp.ones(1), jnp.float32(1.0), state + 1 >= 2, jnp.bool_(False), info


def test_done_info_holds_each_episode_where_the_environment_gives_any(tiny):
    logger = Memory()
    trainer = tiny.trainer(env=vectorize(Telling(), 2), num_checkpoints=1, logger=logger)
    (row,) = trainer.run(0)
    assert {name: values.tolist() for name, values in row["done_info"].items()} == {
        "odd": [False] * len(row["return"]),
        "p": [0.5] * len(row["return"]),
    }
    assert logger.of("eval")[-1].metrics["eval/done_info/p"] == 0.5


def test_run_without_a_state(tiny):
    trainer = tiny.trainer()
    with pytest.raises(ConfigError, match=r"there is none yet; call run\(key\)"):
        trainer.run()
    for call in (
        trainer.train_step,
        trainer.train_epoch,
        trainer.evaluate,
        trainer.save_checkpoint,
    ):
        with pytest.raises(ConfigError, match=r"call init\(key\) or run\(key\) first"):
            call()
    with pytest.raises(ConfigError, match=r"got a legacy key.*pass jax\.random\.key\(0\)"):
        trainer.run(jax.random.PRNGKey(0))
    with pytest.raises(ConfigError, match="must be a typed key or a seed, got 'a'"):
        trainer.run("a")
    with pytest.raises(ConfigError, match="must be a typed key or a seed, got True"):
        trainer.run(True)
    with pytest.raises(ConfigError, match="pass one key, or one per seed"):
        trainer.run(jax.random.split(jax.random.key(0), 3))


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_out_of_range(tiny, seed):
    with pytest.raises(ConfigError, match="seeds must be in"):
        tiny.trainer().init(seed)


def test_the_largest_seed_works(tiny):
    assert tiny.trainer().init(2**32 - 1).learner.params


def test_a_second_run_starts_afresh(tiny):
    trainer = tiny.trainer(logger=(logger := Memory()))
    trainer.run(0)
    first, rows = tree_digest(trainer.state), [(r.env_steps, r.updates) for r in logger.of("train")]
    logger.records.clear()
    trainer.run(0)
    assert tree_digest(trainer.state) == first and rows == [
        (r.env_steps, r.updates) for r in logger.of("train")
    ]
    assert len(trainer.history.evaluations) == 3


# The parts of a loop, by hand


def test_training_by_hand_is_run(tiny):
    trainer = tiny.trainer()
    trainer.run(0)
    whole, last = tree_digest(trainer.state), trainer.history.evaluations[-1]
    assert (last.pop("env_steps"), last.pop("updates") > 0) == (96, True)
    trainer.init(0)
    metrics = [trainer.train_epoch() for _ in range(3)]
    assert trainer.outer_iteration == 3 and trainer.env_steps == 96
    assert tree_digest(trainer.state) == whole and metrics[0]["policy_loss"].shape == ()
    jax.tree.map(np.testing.assert_array_equal, trainer.evaluate(), last)

    trainer.init(0)
    for _ in range(6):
        trainer.train_step()
    counted = trainer.state.learner.env_steps.to_int()
    # Outside the plan, but counted.
    assert trainer.env_steps == counted == 96 and trainer.outer_iteration == 0
    close = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)  # noqa: E731
    jax.tree.map(close, trainer.evaluate(), last)


def test_steps_outside_the_plan_reach_the_logs(tiny):
    trainer = tiny.trainer(logger=(logger := Memory()))
    trainer.init(0)
    trainer.train_step()
    trainer.run()
    assert [record.env_steps for record in logger.of("train")] == [48, 80, 112]
    assert trainer.env_steps == trainer.state.learner.env_steps.to_int() == 112
    assert [record.updates for record in logger.of("train")] == [6, 10, 14]


def test_evaluation_changes_nothing(tiny):
    trainer = tiny.trainer()
    trainer.init(0)
    trainer.train_epoch()
    before = tree_digest(trainer.state)
    first, second = trainer.evaluate(), trainer.evaluate()
    other = trainer.evaluate(episodes=5)
    assert tree_digest(trainer.state) == before and other["return"].shape == (5,)
    jax.tree.map(np.testing.assert_array_equal, first, second)
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x, y[:3]), first, other)
    compiled = trainer.compiler.count
    trainer.evaluate(episodes=5)
    assert trainer.compiler.count == compiled
    with pytest.raises(ConfigError, match="evaluation episodes must be a positive integer"):
        trainer.evaluate(episodes=0)


@pytest.mark.parametrize("num_seeds", [1, in_full(2)])
def test_evaluation_in_another_environment_and_of_other_episodes(tiny, num_seeds):
    trainer = tiny.trainer(num_seeds=num_seeds)
    trainer.init(0)
    usual, num_envs = trainer.evaluate(), trainer.config.evaluation_episodes
    same = trainer.evaluate(env=tiny.env(num_envs=num_envs))
    jax.tree.map(np.testing.assert_array_equal, same, usual)
    host = GymnasiumAdapter(HostCounter, num_envs)
    found = trainer.evaluate(env=host)
    assert found.pop("done_info").keys() == {"total"}  # which the jittable one does not report
    jax.tree.map(np.testing.assert_allclose, found, usual)
    host.close()
    others = [trainer.evaluate(8, seed=seed)["sampled_length"] for seed in (1, 2, 2)]
    assert not np.array_equal(*others[:2]) and np.array_equal(*others[1:])
    with pytest.raises(SpaceError, match=r"trained with the observation_space .*, this env"):
        trainer.evaluate(env=tiny.env("gymnax/CartPole-v1"))
    with pytest.raises(ConfigError, match=r"seed must be an integer in .*, got 'a'"):
        trainer.evaluate(seed="a")


def test_a_module_that_evaluates_itself_takes_no_number_of_episodes():
    class Counting:
        def init_train_state(self, key):
            return {"count": jnp.float32(0)}

        def get_batch(self, ts, i):
            return ts, ()

        def training_step(self, i, ts, batch):
            return {"count": ts["count"] + 1}, {}

        def eval_callback(self, ts):
            return {"return": ts["count"] * jnp.ones(3)}

    config = rlkit.TrainerConfig(num_checkpoints=1, epochs_per_checkpoint=1, logger_config=None)
    trainer = rlkit.Trainer.from_module(Counting(), config)
    trainer.init(0)
    assert trainer.evaluate()["return"].shape == (3,)
    told = r"evaluates itself, and knows nothing of episodes=5; leave it out"
    with pytest.raises(ConfigError, match=told):
        trainer.evaluate(5)


@pytest.mark.full
def test_the_config_of_a_scripts_run_repeats_its_evaluations(tiny, tmp_path):
    """Episodes depend on the number of environments, which nobody chose here."""
    with tiny.trainer(run_dir=str(tmp_path / "script"), share=False) as trainer:
        history = trainer.run(0)
        assert trainer.module.eval_env.num_envs == trainer.config.evaluation_episodes == 3
    config = run_config.load(tmp_path / "script" / "config.yaml")
    with rlkit.build(run_config.for_another_run(config)) as again:
        repeated = again.run(config.seed)
    for name in ("return", "sampled_return", "length"):
        for ours, theirs in zip(history, repeated, strict=True):
            np.testing.assert_array_equal(ours[name], theirs[name])


def test_without_jit_nothing_is_trained(tiny):
    with jax.disable_jit(), pytest.raises(ConfigError, match="JAX_DISABLE_JIT makes programs"):
        tiny.trainer()


@pytest.mark.parametrize("given", [GymnasiumAdapter(HostCounter, 2), HostCounter()])
def test_evaluation_does_not_reset_the_training(tiny, given):
    with tiny.trainer(env=given, enable_evaluation=False) as trainer:
        trainer.init(0)
        with pytest.raises(ConfigError, match="is the environment of the training"):
            trainer.evaluate(env=given)


def test_schedules_end_with_the_run_if_steps_by_hand_came_before_it(tiny):
    trainer = tiny.trainer()
    trainer.init(0)
    for _ in range(4):
        trainer.train_step()
    trainer.run()
    learner = trainer.state.learner
    planned, by_hand = 3 * 2 * 16, 4 * 16
    assert trainer.env_steps == learner.env_steps.to_int() == planned + by_hand
    assert float(learner.total_steps) == planned + by_hand


@pytest.mark.full
def test_a_fresh_start_has_its_own_plan_whatever_was_loaded_before(tiny, tmp_path):
    other = tiny.trainer(total_steps=64, epochs_per_checkpoint=4, checkpointer=tmp_path)
    other.run(0)
    other.close()
    trainer = tiny.trainer(num_checkpoints=2, epochs_per_checkpoint=1)
    trainer.load_checkpoint(tmp_path)
    assert trainer.plan.epochs_per_checkpoint == 4
    loaded = trainer.plan
    trainer.load_checkpoint(tmp_path)
    assert trainer.plan == loaded
    trainer.init(0)
    assert (trainer.plan.num_checkpoints, trainer.plan.epochs_per_checkpoint) == (2, 1)
    assert len(trainer.run()) == 2 and trainer.env_steps == 32


def test_checkpoints_elsewhere_are_found_before_and_after_the_run(tiny, tmp_path):
    source = tmp_path / "source"
    with tiny.trainer(run_dir=str(source)) as trainer:
        trainer.run(1)
    places = {"run_dir": str(tmp_path / "run"), "checkpointer": tmp_path / "saved"}
    trainer = tiny.trainer(**places, warm_start=str(source))
    trainer.run(0)
    best = trainer.best_checkpoint
    trainer.close()
    assert best is not None and trainer.best_checkpoint == best
    source.rename(tmp_path / "gone")  # a resumed run does not start from it again
    with tiny.trainer(**places, warm_start=str(source), restore_checkpoint="auto") as again:
        assert again.best_checkpoint == best and again.run(0) == []


def test_a_run_from_a_seed_goes_on_without_it(tiny, tmp_path):
    """`None` keeps the key that it was started from; another seed is refused."""
    run = {"run_dir": str(tmp_path / "run"), "restore_checkpoint": "auto"}
    with tiny.trainer(**run) as trainer:
        trainer.run(3)
    with tiny.trainer(**run) as again:
        again.init(None)
        assert again.seed == 3 and again.outer_iteration == 3
        assert tree_digest(again.state) == tree_digest(trainer.state)
    with tiny.trainer(**run) as again:
        again.init(jax.random.key(3))  # which is the same
        assert again.seed == 3
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["seed"] == 3
    with tiny.trainer(**run) as other, pytest.raises(RunDirectoryError, match="seed: 3 there, 4"):
        other.init(4)


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_the_last_checkpoint_of_a_stopped_run_may_be_the_best(
    tiny, tmp_path, monkeypatch, num_seeds
):
    """It is not one of every third, but it was evaluated."""
    returns = iter(range(100))
    monkeypatch.setattr(outer_loop, "score", lambda evaluation, num_seeds: float(next(returns)))
    monkeypatch.setattr(reporting, "seed_returns", lambda *_: np.full(num_seeds, next(returns)))
    keep = CheckpointerConfig(keep_seed_bests=True)
    length = {"num_checkpoints": 9, "epochs_per_checkpoint": 1, "checkpoint_every": 3}
    settings = {"num_seeds": num_seeds, "checkpointer_config": keep, **length}
    trainer = tiny.trainer(
        run_dir=str(tmp_path / "run"), max_queued=1, callbacks=[StopAt(5)], **settings
    )
    trainer.run(0)
    assert trainer.outer_iteration == trainer.best_checkpoint == 5
    trainer.close()
    with open_checkpoints(tmp_path / "run") as checkpoints:
        assert checkpoints.all_steps()[-2:] == [3, 5]
        assert [checkpoints.best_step(seed) for seed in range(num_seeds)] == [5] * num_seeds


def test_a_state_that_trained_on_since_its_evaluation_has_no_score(tiny, monkeypatch):
    trainer = tiny.trainer()
    trainer.run(0)
    saved = []
    monkeypatch.setattr(trainer._loop, "_save", lambda *_, rank, seed_scores: saved.append(rank))
    trainer._loop._save_current(None)
    # as Ctrl-C amid the next outer iteration leaves it
    trainer._run.progress = trainer._run.progress.after_steps(16)
    trainer._loop._save_current(None)
    assert saved[0] is not None and saved[1] is None


def test_rollout_plays_whole_episodes(tiny):
    trainer = tiny.trainer()
    trainer.init(0)
    before = tree_digest(trainer.state)
    played = trainer.rollout(3, jax.random.key(1), deterministic=False)
    longest = played["length"].max()
    assert played["obs"].shape == (3, longest, 2) and played["action"].shape == played[
        "reward"
    ].shape == (3, longest)
    for i, length in enumerate(played["length"]):
        done = played["terminated"][i] | played["truncated"][i]
        assert done[length - 1] and not done[: length - 1].any()
        # Counter observes the time
        np.testing.assert_array_equal(played["obs"][i, :length, 0], np.arange(length))
        np.testing.assert_array_equal(
            played["obs"][i, :length, 1],
            np.cumsum(played["action"][i, :length]) - played["action"][i, :length],
        )
        assert not played["reward"][i, length:].any()
    assert tree_digest(trainer.state) == before
    again = trainer.rollout(3, 1, deterministic=False)  # the seed of that key
    np.testing.assert_array_equal(again["obs"], played["obs"])
    with pytest.raises(ConfigError, match="num_episodes must be a positive integer"):
        trainer.rollout(0, jax.random.key(1))


def test_evaluate_and_rollout_use_eval_env_although_evaluation_is_off(tiny):
    from rlkit.envs.probes.value_probes import TimeLimitProbe

    env, eval_env = (vectorize(TimeLimitProbe(max_episode_steps=n), n) for n in (5, 3))
    trainer = tiny.trainer(env=env, eval_env=eval_env, enable_evaluation=False)
    trainer.init(0)
    assert trainer.evaluate()["return"].tolist() == [3.0] * 3
    assert trainer.rollout(2, jax.random.key(0))["length"].tolist() == [3, 3]


# The loop


def test_one_compilation_of_each_function_per_run(tiny, monkeypatch):
    import rlkit.training.programs.jittable_program as program

    traces = collections.Counter()
    original = program.outer_iteration
    monkeypatch.setattr(
        program, "outer_iteration", lambda *a, **k: (traces.update(["outer"]), original(*a, **k))[1]
    )
    trainer = tiny.trainer(share=False, checkpointer=None, num_checkpoints=5)
    trainer.run(0)
    assert traces["outer"] == 1 and trainer.compiler.count == 3  # init, outer, evaluate
    trainer.run(1)
    assert traces["outer"] == 1 and trainer.compiler.count == 3
    trainer.evaluate(trainer.config.evaluation_episodes)
    assert trainer.compiler.count == 3
    assert trainer.compiler.seconds > 0


@pytest.mark.parametrize("max_queued", [1, 2, 3])
def test_a_bounded_number_of_iterations_in_flight(tiny, max_queued):
    trainer = tiny.trainer(num_checkpoints=6, max_queued=max_queued, callbacks=[diary := Diary()])
    trainer.run(0)
    assert max(diary.ahead) == max_queued - 1
    assert [call[1] for call in diary.calls if call[0] == "iteration"] == [1, 2, 3, 4, 5, 6]


def test_long_iterations_are_never_queued(tiny, monkeypatch):
    """A stop would wait for each of them."""
    monkeypatch.setattr(outer_loop, "LONG_ITERATION", 0.0)
    trainer = tiny.trainer(num_checkpoints=6, max_queued=3, callbacks=[diary := Diary()])
    trainer.run(0)
    assert diary.ahead == [2, 1, 0, 0, 0, 0]  # how long they are is known after the first


@pytest.mark.parametrize("max_queued", [in_full(1), 2])
def test_a_stop_ends_one_outer_iteration_late_at_most_and_saves(tiny, tmp_path, max_queued):
    diary = Diary({2: lambda trainer: trainer.request_stop("enough")})
    with tiny.trainer(
        num_checkpoints=9,
        max_queued=max_queued,
        run_dir=str(tmp_path / "run"),
        callbacks=[diary],
        checkpoint_every=5,
    ) as trainer:
        history = trainer.run(0)
        assert len(history) == trainer.outer_iteration == 1 + max_queued
        assert steps(tmp_path / "run" / "checkpoints")[-1] == trainer.outer_iteration
        assert trainer.stop_reason == trainer.summary()["stop_reason"] == "enough"
        diary.at.clear()
        assert len(trainer.run()) == 9 - (1 + max_queued)  # run() goes on
        assert trainer.stop_reason is None


def test_a_run_that_reached_its_end_was_not_stopped(tiny, tmp_path):
    """Though someone asked for it in the last outer iteration."""
    run = tmp_path / "run"
    with tiny.trainer(run_dir=str(run), callbacks=[StopAt(3)]) as trainer:
        trainer.run(0)
        assert trainer.outer_iteration == 3 and trainer.summary()["stop_reason"] is None
    assert json.loads((run / "summary.json").read_text())["stop_reason"] is None
    assert not any("stopped" in (row.text or "") for row in read_records(run / "metrics.jsonl"))


def test_a_start_that_is_replaced_leaves_no_run_of_wandb(tiny, tmp_path):
    """Its id and name would be those of the run that takes its place."""

    class Fails(Callback):
        def on_run_start(self, trainer):
            raise ZeroDivisionError

    run = tmp_path / "run"
    failing = tiny.trainer(run_dir=str(run), callbacks=[Fails()])
    with failing as trainer, pytest.raises(ZeroDivisionError):
        trainer.run(0)
    (run / "wandb_run.json").write_text("{}")
    with tiny.trainer(run_dir=str(run)) as trainer:
        trainer.open(seed=0)
        assert not (run / "wandb_run.json").exists()


def test_a_stop_that_comes_before_the_loop_is_honoured(tiny, monkeypatch):
    trainer = tiny.trainer()
    init = trainer.init
    stop = trainer.request_stop
    monkeypatch.setattr(trainer, "init", lambda key, **_: (init(key), stop("SIGTERM")))
    assert trainer.run(0) == [] and trainer.stop_reason == "SIGTERM"


def test_a_stop_between_two_runs_is_honoured_by_the_next(tiny):
    trainer = tiny.trainer()
    trainer.request_stop("SIGTERM")
    with pytest.raises(ConfigError, match="must be a typed key or a seed"):
        trainer.run("a")  # which never began
    assert trainer.run(0) == [] and trainer.stop_reason == "SIGTERM"
    assert len(trainer.run()) == trainer.plan.num_checkpoints and trainer.stop_reason is None


def test_callbacks_in_order(tiny, tmp_path):
    diary = Diary()
    with tiny.trainer(
        run_dir=str(tmp_path / "run"), callbacks=[diary], checkpoint_every=2
    ) as trainer:
        trainer.run(0)
    names = {
        1: ["iteration", "evaluation"],
        2: ["iteration", "evaluation", "checkpoint"],
        3: ["iteration", "evaluation", "checkpoint"],
    }
    wanted = [
        "start",
        ("evaluation", 0),
        ("checkpoint", 0),
        *((name, i) for i, found in names.items() for name in found),
        "end",
    ]
    assert diary.calls == wanted
    assert {"policy_loss", "avg_return", "steps_per_second"} <= diary.metrics[-1].keys()


def test_log_every_and_checkpoint_every(tiny, tmp_path):
    logger = Memory()
    config = CheckpointerConfig(directory=str(tmp_path / "steps"), max_to_keep=9)
    trainer = tiny.trainer(
        num_checkpoints=5, log_every=2, checkpoint_every=3, logger=logger, checkpointer=config
    )
    trainer.run(0)
    # The last one always
    assert [record.env_steps // 32 for record in logger.of("train")] == [
        2,
        4,
        5,
    ]
    assert steps(tmp_path / "steps") == [0, 3, 5]
    trainer.close()


def test_logged_names(tiny):
    logger = Memory()
    tiny.trainer(logger=logger).run(0)
    names = [
        "policy_loss",
        "value_loss",
        "entropy",
        "approx_kl",
        "clip_fraction",
        "explained_variance",
        "grad_norm",
    ]
    wanted = {
        f"train/{name}"
        for name in [
            *names,
            "learning_rate",
            "steps_per_second",
            "avg_return",
            "avg_length",
            "episodes",
        ]
    }
    assert wanted <= logger.of("train")[-1].metrics.keys()
    assert {"eval/avg_return", "eval/avg_length", "eval/sampled_avg_return"} <= logger.of("eval")[
        -1
    ].metrics.keys()
    assert logger.info["hyperparameters.gamma"] == 0.99 and logger.info["env.id"] == "probe/Counter"
    assert all(np.isfinite(value) for record in logger.records for value in record.metrics.values())
    seconds = [record.wall_seconds for record in logger.records]
    assert seconds == sorted(seconds)


def test_results_are_published_once(tiny):
    """Not again by a call that trains nothing."""

    class Gallery(Memory):
        published = 0

        def publish(self, outcome):
            self.published += 1

    logger = Gallery()
    with tiny.trainer(logger=logger) as trainer:
        trainer.run(0)
        assert trainer.run() == [] and logger.published == 1


def test_a_checkpoint_has_the_latest_metrics(tiny, tmp_path):
    """Of training and evaluation, whichever is older; also after a resume."""
    settings = {"run_dir": str(tmp_path / "run"), "eval_every": 2, "num_checkpoints": 5}

    class Stop(Callback):
        def on_iteration_end(self, trainer, iteration, metrics):
            if iteration == 3:
                trainer.request_stop("enough")

    names = {"train/policy_loss", "eval/avg_return"}
    with tiny.trainer(callbacks=[Stop()], max_queued=1, **settings) as trainer:
        trainer.run(0)
        assert names <= trainer._open().checkpointer.metadata(3)["metrics"].keys()
    with tiny.trainer(restore_checkpoint="auto", **settings) as trainer:
        trainer.init(0)
        assert names <= trainer._run.metrics.keys()


def test_eval_fn(tiny):
    answers = iter(["look", {"extra": 2}, None, "bye"])
    logger, shapes = Memory(), []

    def eval_fn(state):
        shapes.append(state.learner.env_steps.to_int())
        return next(answers)

    tiny.trainer(logger=logger, eval_fn=eval_fn).run(0)
    assert shapes == [0, 32, 64, 96]  # the state of that evaluation, not of the one already running
    assert [(record.text, record.env_steps) for record in logger.of("text")] == [
        ("look", 0),
        ("bye", 96),
    ]
    assert [record.metrics.get("eval/extra") for record in logger.of("eval")] == [
        None,
        2.0,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (3.0, r"eval_fn returned 3.0; return text, numbers by name"),
        ({"error": np.zeros(2)}, r"'error': array\(\[0., 0.\]\), which is not a number; return"),
        ({"avg_return": -1.0}, "'avg_return', which evaluations measure themselves; choose"),
    ],
)
def test_an_eval_fn_that_returns_something_else(tiny, answer, told):
    with pytest.raises(ConfigError, match=told):
        tiny.trainer(logger=Memory(), eval_fn=lambda state: answer).run(0)


def test_counters_are_exact_beyond_their_words(tiny):
    trainer = tiny.trainer(logger=(logger := Memory()))
    state = trainer.init(0)
    far = StepCounter.create(2**32 - 40), StepCounter.create(2**31 - 5)
    trainer.state = state.replace(learner=state.learner.replace(env_steps=far[0], updates=far[1]))
    trainer.run()
    assert [(record.env_steps, record.updates) for record in logger.of("train")] == [
        (2**32 - 40 + 32 * i, 2**31 - 5 + 4 * i) for i in (1, 2, 3)
    ]
    assert all(type(record.env_steps) is int for record in logger.of("train"))


def test_prefill_is_counted_and_announced(tiny):
    trainer = tiny.trainer(
        hyper={"normalize_observations": True},
        env="probe/ValueByObservation",
        max_evaluation_steps=4,
        total_steps=48,
        num_checkpoints=1,
        logger=(logger := Memory()),
    )
    trainer.run(0)
    assert (
        trainer.plan.prefill_steps == 16
        and trainer.env_steps == trainer.state.learner.env_steps.to_int() == 48
    )
    assert logger.of("eval")[0].env_steps == 16
    assert "48 environment steps, including 16 random warm-up" in logger.of("event")[0].text


@pytest.mark.parametrize("name", ["warmup_steps", "replay_buffer_capacity"])
def test_off_policy_settings_on_an_on_policy_algorithm(tiny, name):
    with pytest.raises(ConfigError, match=f"{name}=64 was set, but this algorithm is on-policy"):
        tiny.trainer(**{name: 64})


# Loggers and checkpointers of all kinds


def test_instances_are_the_users_to_close(tiny, tmp_path):
    logger, checkpointer = (
        Memory(),
        Checkpointer(CheckpointerConfig(directory=str(tmp_path / "steps"))),
    )
    with tiny.trainer(
        logger=logger, checkpointer=checkpointer, run_dir=str(tmp_path / "run")
    ) as trainer:
        trainer.run(0)
    assert not logger.closed and checkpointer.latest_step() == 3  # not closed: still answers
    checkpointer.close()
    assert (
        not (tmp_path / "run" / "metrics.jsonl").exists()
        and (tmp_path / "run" / "summary.json").exists()
    )


def test_paths_and_configs(tiny, tmp_path):
    with tiny.trainer(logger=tmp_path / "a.jsonl", checkpointer=tmp_path / "steps") as trainer:
        trainer.run(0)
    assert len(read_records(tmp_path / "a.jsonl")) >= 7 and steps(tmp_path / "steps")[-1] == 3
    files = LoggerConfig(jsonl=str(tmp_path / "b.jsonl"), console=False)
    with tiny.trainer(
        logger=files, checkpointer=CheckpointerConfig(directory=str(tmp_path / "more"))
    ) as trainer:
        trainer.run(0)
    assert len(read_records(tmp_path / "b.jsonl")) >= 7 and steps(tmp_path / "more")[-1] == 3
    with pytest.raises(ConfigError, match="cannot log to 5"):
        tiny.trainer(logger=5).run(0)


def test_checkpoints_of_another_run_are_not_mixed_in(tiny, tmp_path):
    with tiny.trainer(checkpointer=tmp_path / "steps") as trainer:
        trainer.run(0)
        with pytest.raises(
            CheckpointError, match=r"already holds checkpoints of another run \(up to step 3\)"
        ):
            trainer.run(1)


def test_save_and_load_by_hand(tiny, tmp_path):
    trainer = tiny.trainer()
    trainer.init(3)
    trainer.train_epoch()
    assert trainer.save_checkpoint(tmp_path / "mine") == 1
    digest = tree_digest(trainer.state)
    with pytest.raises(CheckpointError, match="this run has no checkpoints; set run_dir"):
        trainer.save_checkpoint()
    with tiny.trainer(run_dir=str(tmp_path / "branch")) as other:
        assert tree_digest(other.load_checkpoint(tmp_path / "mine")) == digest
        assert other.seed == 3 and other.outer_iteration == 1 and other.env_steps == 32
        assert len(other.run()) == 2
        trainer.train_epoch(), trainer.train_epoch()
        assert tree_digest(other.state) == tree_digest(trainer.state)
        assert other.summary()["parent"] == {"directory": str(tmp_path / "mine"), "step": 1}


def test_a_callback_saves_copies_but_not_into_the_run(tiny, tmp_path):
    """The newest state is ahead of what is reported: as a checkpoint of the run it would take the
    place of the scheduled one, with its score.
    """
    diary = Diary({1: lambda trainer: trainer.save_checkpoint(tmp_path / "copy")})
    with tiny.trainer(run_dir=str(tmp_path / "run"), callbacks=[diary]) as trainer:
        trainer.run(0)
    assert steps(tmp_path / "copy") == [2]
    assert set(steps(tmp_path / "run" / "checkpoints")) >= {2, 3}
    diary = Diary({1: lambda trainer: trainer.save_checkpoint()})
    with tiny.trainer(run_dir=str(tmp_path / "other"), callbacks=[diary]) as trainer:
        with pytest.raises(ConfigError, match=r"set checkpoint_every, or save a copy: save_ch"):
            trainer.run(0)
        trainer.save_checkpoint()  # afterwards it can
    assert steps(tmp_path / "other" / "checkpoints")[-1] == 2


# Failures


def test_a_crash_is_logged_with_its_traceback_and_all_is_kept(tiny, tmp_path):
    def fail(trainer):
        raise ZeroDivisionError("in a callback")

    run = tmp_path / "run"
    diary = Diary({2: fail})
    with tiny.trainer(run_dir=str(run), callbacks=[diary]) as trainer:
        with pytest.raises(ZeroDivisionError, match="in a callback"):
            trainer.run(0)
        assert diary.calls[-1] == "end"
        records = read_records(run / "metrics.jsonl")  # before anything is closed
        assert (
            records[-1].kind == "error"
            and 'raise ZeroDivisionError("in a callback")' in records[-1].text
        )
        assert [record.env_steps for record in records if record.kind == "train"] == [32, 64]
        assert steps(run / "checkpoints") == [0, 1] and not (run / "summary.json").exists()
    with tiny.trainer(run_dir=str(run), restore_checkpoint="auto") as trainer:
        assert len(trainer.run(0)) == 2


@pytest.mark.parametrize("elsewhere", [False, True])
def test_files_stay_together_wherever_the_process_goes(elsewhere, tiny, tmp_path, monkeypatch):
    """Its directory may change before the run, and in a callback; the copy goes on with its run."""
    (tmp_path / "away").mkdir()
    leave = Diary({1: lambda trainer: monkeypatch.chdir(tmp_path / "away")})
    logs = [LoggerConfig(jsonl="rows.jsonl", console=False), "more.jsonl"]
    settings = {"checkpointer": "saved"} if elsewhere else {}
    for iterations in (2, 3):
        monkeypatch.chdir(tmp_path)
        best = rlkit.BestModel("best")
        settings |= {"logger": logs, "callbacks": [leave, best], "num_checkpoints": iterations}
        with tiny.trainer(run_dir="run", restore_checkpoint="auto", **settings) as trainer:
            monkeypatch.chdir(tmp_path / "away")
            trainer.run(0)
            assert trainer.best_checkpoint == best.step
        assert trainer.best_checkpoint == best.step  # its files are closed
    assert list((tmp_path / "away").iterdir()) == []
    expected = {"away", "best", "more.jsonl", "rows.jsonl", "run"}
    found = {path.name for path in tmp_path.iterdir()}
    assert found - {"saved"} == expected and ("saved" in found) == elsewhere
    assert yaml.safe_load((tmp_path / "run/config.yaml").read_text())["trainer"]["run_dir"] == "run"


@pytest.mark.full
@pytest.mark.parametrize("where", ["callback", "eval_fn"])
def test_rows_before_a_crash_of_the_users_are_whole_after_the_resume(where, tiny, tmp_path):
    def fail(trainer):
        raise ZeroDivisionError

    evaluations, told = itertools.count(1), []
    failing = {
        "callback": {"callbacks": [Diary({2: fail})]},
        "eval_fn": {
            "callbacks": [Diary({2: told.append})],
            "eval_fn": lambda state: fail(state) if next(evaluations) == 3 else None,
        },
    }[where]
    settings = {"run_dir": str(tmp_path / "run"), "checkpoint_every": 3}  # so that it is saved
    with (
        tiny.trainer(**failing, max_queued=1, **settings) as trainer,
        pytest.raises(ZeroDivisionError),
    ):
        trainer.run(0)
    assert steps(tmp_path / "run" / "checkpoints") == [0, 2]
    assert len(told) == (where == "eval_fn")  # else what callbacks count would lack it
    with tiny.trainer(restore_checkpoint="auto", **settings) as trainer:
        trainer.run(0)
    rows = read_records(tmp_path / "run" / "metrics.jsonl")
    for kind, expected in {"train": [32, 64, 96], "eval": [0, 32, 64, 96]}.items():
        assert [row.env_steps for row in rows if row.kind == kind] == expected


@pytest.mark.parametrize("method", ["close", "run", "init", "load_checkpoint"])
def test_a_callback_cannot_end_or_replace_the_run_while_it_warms_up(method, tiny, tmp_path):
    arguments = {"run": [0], "init": [0], "load_checkpoint": [tmp_path / "run"]}.get(method, [])

    class Meddling(Callback):
        def on_warm_up(self, trainer, done, total):
            getattr(trainer, method)(*arguments)

    with tiny.trainer("dqn", run_dir=str(tmp_path / "run"), callbacks=[Meddling()]) as trainer:
        told = rf"{method}\(\) was called while init\(\) prepares the run; call {method}\(\) after"
        with pytest.raises(ConfigError, match=told):
            trainer.run(0)
        with pytest.raises(ConfigError, match=told):
            trainer.init(0)


@pytest.mark.parametrize("method", ["close", "run", "init", "load_checkpoint"])
def test_a_callback_cannot_end_or_replace_the_run_that_calls_it(method, tiny, tmp_path):
    arguments = {"run": [0], "init": [0], "load_checkpoint": [tmp_path / "run"]}.get(method, [])
    diary = Diary({2: lambda trainer: getattr(trainer, method)(*arguments)})
    with tiny.trainer(run_dir=str(tmp_path / "run"), callbacks=[diary]) as trainer:
        told = rf"{method}\(\) was called while run\(\) trains; end the run with request_stop"
        with pytest.raises(ConfigError, match=told):
            trainer.run(0)
        assert diary.calls[-1] == "end"
    assert json.loads((tmp_path / "run" / "status.json").read_text())["status"] == "failed"
    with tiny.trainer(run_dir=str(tmp_path / "run"), restore_checkpoint="auto") as trainer:
        assert len(trainer.run(0)) == 2


def test_a_crash_at_the_end_does_not_hide_the_first(tiny, tmp_path):
    class Both(Callback):
        def on_run_start(self, trainer):
            raise ZeroDivisionError("first")

        def on_run_end(self, trainer):
            raise ValueError("second")

    with pytest.raises(ZeroDivisionError, match="first") as caught:
        tiny.trainer(callbacks=[Both()]).run(0)
    assert "second" in caught.value.__notes__[0]


def test_a_crash_at_the_end_is_raised_and_logged(tiny):
    class Late(Diary):
        def on_run_end(self, trainer):
            raise ValueError("late")

    logger = Memory()
    with pytest.raises(ValueError, match="late"):
        tiny.trainer(callbacks=[Late()], logger=logger).run(0)
    assert "late" in logger.of("error")[0].text


def test_a_crash_in_init_is_logged(tiny, tmp_path, monkeypatch):
    trainer = tiny.trainer(share=False, run_dir=str(tmp_path / "run"))

    def fail(key):
        raise ZeroDivisionError("in the environment")

    monkeypatch.setattr(trainer.program, "init", fail)
    with pytest.raises(ZeroDivisionError):
        trainer.run(0)
    assert "in the environment" in read_records(tmp_path / "run" / "metrics.jsonl")[-1].text
    trainer.close()


def test_a_failed_init_leaves_no_state_of_the_run_before(tiny, monkeypatch):
    trainer = tiny.trainer(share=False)
    trainer.init(0)

    def fail(key):
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer.program, "init", fail)
    with pytest.raises(KeyboardInterrupt):
        trainer.init(1)
    with pytest.raises(ConfigError, match="there is none yet"):
        trainer.run()
    trainer.close()


def test_a_refused_init_leaves_the_run_before_as_it_is(tiny, tmp_path):
    """Its own seed included: checkpoints name the seed that they were trained from."""
    with tiny.trainer(checkpointer=tmp_path / "steps", num_checkpoints=2) as trainer:
        trainer.run(0)
        before = tree_digest(trainer.state)
        with pytest.raises(CheckpointError, match="already holds checkpoints of another run"):
            trainer.init(1)
        assert trainer.seed == 0 and tree_digest(trainer.state) == before
        trainer.save_checkpoint(tmp_path / "mine")
    with tiny.trainer() as other:
        other.load_checkpoint(tmp_path / "mine")
        assert other.seed == 0


def test_nan_stops_before_a_good_checkpoint_is_replaced(tiny, tmp_path):
    from rlkit.algorithms.a2c import a2c
    from rlkit.algorithms.configs import A2CConfig

    def loss(agent, params, target_params, batch, key):
        value = agent.value(params, batch.obs)
        return jnp.nan * value.mean(), {"policy_loss": jnp.float32(0), "value_loss": value.mean()}

    run = tmp_path / "run"
    trainer = tiny.trainer(
        a2c(A2CConfig(num_steps=4), loss=loss),
        run_dir=str(run),
        epochs_per_checkpoint=1,
        num_checkpoints=3,
        max_skipped_updates=1,
    )
    with pytest.raises(
        NonFiniteError, match="the last update was skipped, because a loss, gradient or new"
    ):
        trainer.run(0)
    trainer.close()
    assert steps(run / "checkpoints") == [0]
    assert "NonFiniteError" in read_records(run / "metrics.jsonl")[-1].text
    # A loss of one's own is no RunConfig.
    assert "custom" in yaml.safe_load((run / "config.yaml").read_text())


# Files


@pytest.mark.full
def test_the_speed_of_a_run_counts_random_steps():
    with trainer_of("dqn", table={"prefill_steps": 64, "capacity": 64}) as trainer:
        trainer.init(0)
        assert trainer.summary()["env_steps_per_second"] == 0  # nothing was timed yet
        trainer.run(0)
        summary, seconds = trainer.summary(), trainer._run.clock.training_seconds
    assert summary["env_steps_per_second"] == pytest.approx(trainer.env_steps / seconds, rel=1e-3)


@pytest.mark.usefixtures("real_curves")
def test_summary_and_config(tiny, tmp_path):
    run = tmp_path / "run"
    with tiny.trainer(run_dir=str(run)) as trainer:
        history = trainer.run(4)
        summary = json.loads((run / "summary.json").read_text())
        wanted = {
            "env_steps": 96,
            "num_seeds": 1,
            "eval_return_mean": float(history[-1]["return"].mean()),
            "eval_return_std": float(history[-1]["return"].std()),
            "params_sha256": tree_digest(trainer.state.learner),
            "outer_iterations": 3,
            "stop_reason": None,
        }
        assert {name: summary[name] for name in wanted} == wanted
        assert {"compile_seconds", "env_steps_per_second"} <= summary.keys()
        assert 0 < summary["part_seconds"] == pytest.approx(summary["wall_seconds"], abs=0.01)
        assert summary["env_steps_per_second"] > 0
        versions = {"rlkit": rlkit.__version__, "jax": jax.__version__}
        assert versions.items() <= summary["versions"].items() and re.fullmatch(
            r"[0-9a-f]{64}", summary["params_sha256"]
        )
        stored = run_config.load(run / "config.yaml")
        assert (stored.seed, stored.algorithm, stored.env.id, stored.env.num_envs) == (
            4,
            "ppo",
            "probe/Counter",
            2,
        )
        assert stored.trainer == trainer.config and stored.network.hidden_sizes == (8,)
        assert yaml.safe_load((run / "config.yaml").read_text()) == run_config.to_dict(stored)
        assert (run / "learning_curve.png").stat().st_size > 1000
        with pytest.raises(RunDirectoryError, match="opened for another seed"):
            trainer.run(5)


def test_another_evaluation_environment_is_no_run_config(tiny):
    from rlkit.envs.probes.value_probes import TimeLimitProbe

    trainer = tiny.trainer(
        env=tiny.env("probe/TimeLimitProbe"),
        eval_env=vectorize(TimeLimitProbe(max_episode_steps=3), 2),
    )
    trainer.init(0)
    assert "custom" in trainer.description()


@pytest.mark.fast
def test_hparams_to_dict(tiny):
    flat = hparams_to_dict(tiny.config(num_checkpoints=7))
    assert flat["num_checkpoints"] == 7 and flat["checkpointer_config.max_to_keep"] == 2
    assert hparams_to_dict({"a": {"b": 1, "c": {}}, "d": None}) == {"a.b": 1, "a.c": {}, "d": None}


@pytest.mark.fast
def test_hparams_of_parts_have_the_names_of_a_run_config(tiny):
    algorithm = rlkit.ppo(rlkit.PPOConfig(gamma=0.5), process_batch=lambda batch: batch)
    found = hparams_to_dict(algorithm)
    assert found["algorithm"] == "ppo" and found["hyperparameters.gamma"] == 0.5
    assert found["custom"] == ["algorithm.process_batch"]
    trainer = tiny.trainer()
    found = hparams_to_dict(trainer.module)
    whole = trainer.hparams()
    same = {name for name in whole if not name.startswith(("trainer.", "seed"))}
    assert set(found) == same and all(found[name] == whole[name] for name in same)
    agent = hparams_to_dict(trainer.module.agent)
    assert agent["agent"] == "actor_critic" and agent["network.hidden_sizes"] == [8]
    assert hparams_to_dict(trainer.module.env)["env.num_envs"] == trainer.module.env.num_envs

    class Mine:
        def __init__(self):
            self.rate, self._hidden = 0.5, 3

    assert hparams_to_dict(Mine())["rate"] == 0.5


@pytest.mark.fast
@pytest.mark.parametrize("what", [3, None, "ppo", rlkit.ppo, rlkit.PPOConfig, np.zeros(3)])
def test_what_has_no_settings_is_refused(what):
    with pytest.raises(ConfigError, match=r"there are no settings in .*; pass a config, an algor"):
        hparams_to_dict(what)


def test_none_switches_logs_and_checkpoints_off(tiny, tmp_path, capsys):
    off = {"logger_config": None, "checkpointer_config": None}
    run = tmp_path / "run"
    with tiny.trainer(run_dir=str(run), logger=None, checkpointer=None, **off) as trainer:
        trainer.run(0)
        with pytest.raises(CheckpointError, match="this run has no checkpoints"):
            trainer.save_checkpoint()
        trainer.save_checkpoint(tmp_path / "copy")
    assert {path.name for path in run.iterdir()} == {
        ".lock",
        "config.yaml",
        "status.json",
        "summary.json",
    }
    assert "return" not in capsys.readouterr().out
    again = tiny.trainer(
        run_dir=str(run), logger=None, checkpointer=None, restore_checkpoint="auto", **off
    )
    with pytest.raises(CheckpointError, match="nowhere to restore from; leave out checkpointer_c"):
        again.run(0)
    own = Memory()  # parts of one's own are on
    with tiny.trainer(logger=own, checkpointer=tmp_path / "steps", **off) as trainer:
        trainer.run(0)
    assert own.of("eval") and trainer._open().checkpointer.latest_step() == 3


@pytest.mark.parametrize(("total_steps", "planned"), [(64, 4), (96, 3)])
def test_fewer_outer_iterations_than_asked_for_are_told(total_steps, planned, tiny, tmp_path):
    """96 steps of 16 are 6 iterations, which cannot be cut into 4 parts but into 3 of 2."""
    run = {"run_dir": str(tmp_path / "run"), "epochs_per_checkpoint": None}
    with tiny.trainer(num_checkpoints=4, total_steps=total_steps, **run) as trainer:
        trainer.run(0)
        assert trainer.plan.num_checkpoints == planned
    texts = [row.text or "" for row in read_records(tmp_path / "run" / "metrics.jsonl")]
    assert any("num_checkpoints=4 outer iterations were asked" in x for x in texts) == (planned < 4)


@pytest.mark.fast
@pytest.mark.parametrize("env", ["probe/Counter", "probe/ValueByObservation"])
def test_integers_are_not_normalised_without_a_word(env, tiny):
    """Networks encode them; normalisation would destroy categories."""
    settings = {"max_evaluation_steps": 4, "logger": (logger := Memory())}
    with tiny.trainer(hyper={"normalize_observations": True}, env=env, **settings) as trainer:
        trainer.init(0)
    told = [row.text for row in logger.of("event")]
    note = "normalize_observations=True changes nothing here"
    assert any(note in (text or "") for text in told) == (env == "probe/Counter")


@pytest.mark.parametrize(
    "flags",
    [
        ["ppo", "gymnax/MountainCarContinuous-v0", "--no-use-sde"],
        ["discrete_sac", "gymnax/CartPole-v1", "--temperature", "0.2"],
    ],
)
def test_flags_may_switch_off_what_a_preset_tuned(flags):
    assert main(["train", *flags, "--dry-run"]) == 0
