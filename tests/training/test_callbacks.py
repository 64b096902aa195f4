"""Callbacks know a small view of the run, which need not be a Trainer."""

import io
import json
import math
import sys
import types

import jax.numpy as jnp
import numpy as np
import pytest
from host_twins import HostCounter
from tiers import in_full

from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.errors import ConfigError
from rlkit.training.callbacks import (
    Callback,
    EarlyStopping,
    ProgressBar,
    WallTimeLimit,
    callback_states,
    check_callbacks,
    log_callback,
    restore_callbacks,
)
from rlkit.training.config import CheckpointerConfig, Plan, TrainerConfig
from rlkit.training.files.checkpointer import holds_checkpoints
from rlkit.training.logs.records import read_records
from rlkit.training.run_progress import RunProgress

PLAN = Plan(
    num_checkpoints=3, epochs_per_checkpoint=2, env_steps_per_iteration=16, prefill_steps=20
)


def a_view():
    progress = RunProgress.start(PLAN)
    return types.SimpleNamespace(
        plan=PLAN, env_steps=progress.env_steps, steps_at=lambda i: progress.steps_at(i, PLAN)
    )


@pytest.mark.fast
def test_nothing_is_drawn_into_a_pipe(monkeypatch):
    monkeypatch.setattr("sys.stderr", io.StringIO())
    bar, view = ProgressBar(), a_view()
    bar.on_run_start(view)
    bar.on_iteration_end(view, 2, {})
    bar.on_evaluation(view, 2, {"return": np.array([1.0, 2.0])})
    bar.on_run_end(view)
    assert sys.stderr.getvalue() == ""


@pytest.mark.fast
def test_the_progress_bar_asks_for_steps_alone(terminal):
    written = terminal()
    view = a_view()
    bar = ProgressBar()
    bar.on_iteration_end(view, 1, {})  # before the run: nothing to show
    bar.on_run_start(view)
    assert (bar._bar.initial, bar._bar.total) == (20, PLAN.total_steps)
    bar.on_iteration_end(view, 2, {})
    bar.on_evaluation(view, 2, {"return": np.array([1.0, 2.0])})
    assert bar._bar.n == 20 + 2 * 32 and "eval_return=1.5" in bar._bar.postfix
    bar.on_run_end(view)
    assert bar._bar is None and "eval_return=1.5" in written.getvalue()


def test_the_bar_shows_how_the_memory_warms_up(terminal):
    written, bar = terminal(), ProgressBar()
    for done in (0, 40, 100):
        bar.on_warm_up(a_view(), done, 100)
        assert (bar._bar is None) == (done == 100)
    assert "warming up" in written.getvalue() and "100/100" in written.getvalue()


@pytest.mark.full
@pytest.mark.parametrize("kind", [in_full("jittable"), "host"])
def test_callbacks_hear_of_the_warm_up(tiny, tmp_path, kind):
    """Of the prefill, and of the refill of a memory that no checkpoint holds."""

    class Diary(Callback):
        def __init__(self):
            self.calls = []

        def on_warm_up(self, trainer, done, total):
            self.calls.append((done, total))

    def heard(**settings):
        env = GymnasiumAdapter(HostCounter, 2) if kind == "host" else None
        diary = Diary()
        keep = CheckpointerConfig(save_replay=False)
        with tiny.trainer(
            "dqn",
            env=env,
            callbacks=[diary],
            run_dir=str(tmp_path / kind),
            checkpointer_config=keep,
            num_checkpoints=1,
            **settings,
        ) as trainer:
            trainer.run(0)
        return diary.calls

    parts = [(0, 32), (32, 32)] if kind == "jittable" else [(0, 32), (16, 32), (32, 32)]
    assert heard() == parts
    assert heard(restore_checkpoint="latest") == parts


class View(types.SimpleNamespace):
    """As much of a run as a callback needs."""

    def __init__(self, num_seeds=1, **config):
        settings = {"num_seeds": num_seeds, "enable_evaluation": True} | config
        super().__init__(config=types.SimpleNamespace(**settings), reason=None)

    def request_stop(self, reason):
        self.reason = reason


def stopped_at(callback, values, view=None):
    """(index of the first of these evaluations that ends the run, why); the untrained one is 0."""
    view = view or View()
    callback.on_run_start(view)
    for iteration, value in enumerate(values):
        callback.on_evaluation(view, iteration, {"return": np.array(value)})
        if view.reason is not None:
            return iteration, view.reason
    return None


@pytest.mark.fast
@pytest.mark.parametrize(
    ("arguments", "values", "stop"),
    [
        ({"threshold": 5.0}, [9.0, 1.0, 4.9, 5.0, 6.0], (3, "return 5 reached 5")),
        ({"threshold": 5.0}, [9.0, 1.0, 4.9], None),
        ({"patience": 2}, [9.0, 1.0, 2.0, 2.0, 3.0, 3.0, 2.0], (6, "in 2 evaluations (best: 3)")),
        ({"patience": 1}, [0.0, 1.0, 1.0], (2, "in 1 evaluation (best: 1)")),
        ({"patience": 2, "min_improvement": 1.0}, [0.0, 1.0, 1.9, 2.0], (3, "(best: 1)")),
        ({"patience": 2}, [0.0, math.nan, math.nan], (2, "(best: none)")),
        ({"patience": 2}, [0.0, 1.0, math.nan, 2.0, math.nan], None),
    ],
)
def test_early_stopping(arguments, values, stop):
    found = stopped_at(EarlyStopping(**arguments), values)
    assert (found and found[0]) == (stop and stop[0])
    assert found is None or found[1].endswith(stop[1])


@pytest.mark.fast
def test_early_stopping_takes_the_mean_over_episodes_and_finite_seeds():
    seeds = [[1.0, 3.0], [4.0, 6.0], [math.nan, 1.0]]  # means 2, 5 and none
    assert stopped_at(EarlyStopping(threshold=3.5), [seeds, seeds], View(num_seeds=3))[0] == 1
    assert stopped_at(EarlyStopping(threshold=3.6), [seeds, seeds], View(num_seeds=3)) is None


@pytest.mark.fast
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "needs a threshold or a patience; pass threshold="),
        ({"patience": 0}, "patience must be a positive integer or None, got 0"),
        ({"patience": 1, "min_improvement": -1.0}, "min_improvement must not be negative"),
        ({"patience": 1, "min_improvement": "a"}, "min_improvement must be a number, got 'a'"),
        ({"threshold": "475"}, "threshold must be a number, got '475'; pass 475.0"),
        ({"threshold": math.nan}, "threshold must be a number, got nan"),
    ],
)
def test_early_stopping_with_other_arguments(arguments, said):
    with pytest.raises(ConfigError, match=said):
        EarlyStopping(**arguments)


@pytest.mark.fast
def test_early_stopping_with_a_patience_of_numpy_goes_into_checkpoints():
    states = callback_states([EarlyStopping(patience=np.int64(3))])
    assert states == callback_states([EarlyStopping(patience=3)])


@pytest.mark.fast
def test_early_stopping_needs_what_it_compares():
    with pytest.raises(ConfigError, match="needs evaluations, but enable_evaluation=False"):
        EarlyStopping(patience=1).check_config(TrainerConfig(enable_evaluation=False))
    evaluation = {"return": np.ones(2), "length": np.ones(2), "env_steps": 5, "info": {"x": 1.0}}
    for name in ("won", "env_steps", "info"):
        with pytest.raises(
            ConfigError, match=rf"no measurement '{name}'; .* among return, length$"
        ):
            EarlyStopping(patience=1, measurement=name).on_evaluation(View(), 1, evaluation)


@pytest.mark.fast
def test_time_limit(monkeypatch):
    clock, view = iter([100.0, 109.9, 110.1]), View()
    monkeypatch.setattr("rlkit.training.callbacks.time.monotonic", lambda: next(clock))
    limit = WallTimeLimit(10)
    limit.on_run_start(view)
    limit.on_iteration_end(view, 1, {})
    assert view.reason is None
    limit.on_iteration_end(view, 2, {})
    assert view.reason == "the time limit of 10s is over"
    with pytest.raises(ConfigError, match="WallTimeLimit needs seconds, got 0"):
        WallTimeLimit(0)
    with pytest.raises(ConfigError, match="WallTimeLimit seconds must be a number, got '1h'"):
        WallTimeLimit("1h")


@pytest.mark.fast
def test_the_time_limit_counts_the_filling_of_the_replay_memory_once(monkeypatch):
    """Not the hour between `init` and `run`; a second `run` has the whole time."""
    now, limit = 0.0, WallTimeLimit(10)
    monkeypatch.setattr("rlkit.training.callbacks.time.monotonic", lambda: now)

    def stops_at(moment):
        nonlocal now
        now, view = moment, View()
        limit.on_iteration_end(view, 1, {})
        return view.reason is not None

    limit.on_warm_up(View(), 0, 100)
    now = 4.0
    limit.on_warm_up(View(), 100, 100)
    now = 3600.0
    limit.on_run_start(View())
    assert not stops_at(3605.9) and stops_at(3606.1)
    now = 5000.0
    limit.on_run_start(View())
    assert not stops_at(5009.9) and stops_at(5010.1)


@pytest.mark.fast
def test_states_belong_to_classes_in_order():
    ours = [EarlyStopping(patience=3), ProgressBar(), EarlyStopping(threshold=1.0)]
    ours[0].best, ours[2].since = 4.0, 7
    states = json.loads(json.dumps(callback_states(ours)))
    for state in states.values():
        del state["arguments"]  # the test below has them
    assert states == {
        "EarlyStopping": {"best": 4.0, "since": 0, "reason": None},
        "EarlyStopping#1": {"best": None, "since": 7, "reason": None},
    }
    ours[0].best = np.float32(4.0)
    with pytest.raises(ConfigError, match="state of the callback EarlyStopping is not plain data"):
        callback_states(ours)
    others = [EarlyStopping(patience=3), EarlyStopping(threshold=1.0)]
    restore_callbacks(others, states)
    assert (others[0].best, others[1].since) == (4.0, 7)
    restore_callbacks(others, {})
    assert (others[0].best, others[1].since) == (None, 0)


@pytest.mark.fast
def test_early_stopping_with_other_arguments_does_not_end_a_resumed_run_for_the_old_reason():
    ended = EarlyStopping(threshold=5.0, patience=3)
    assert stopped_at(ended, [9.0, 6.0]) is not None
    state = json.loads(json.dumps(ended.state()))
    for arguments, values, stop in [
        ({"threshold": 5.0, "patience": 3}, [], "return 6 reached 5"),
        ({"threshold": 8.0, "patience": 3}, [9.0, 7.0, 8.0], "return 8 reached 8"),
        ({"patience": 2}, [9.0, 5.0, 5.0], "return did not improve in 2 evaluations (best: 6)"),
        ({"patience": 1, "measurement": "length"}, [9.0, 1.0, 0.5], "(best: 1)"),
    ]:
        resumed, view = EarlyStopping(**arguments), View()
        resumed.restore(state)
        resumed.on_run_start(view)
        for iteration, value in enumerate(values):
            assert view.reason is None
            name = resumed.measurement
            resumed.on_evaluation(view, iteration, {name: np.array([value])})
        assert view.reason.endswith(stop)


@pytest.mark.fast
@pytest.mark.parametrize("state", [{3: 1}, {"counts": [{"a": 1}, {3: 1}]}])
def test_keys_that_would_come_back_as_text_are_refused(state):
    class Counter(Callback):
        def state(self):
            return state

    with pytest.raises(ConfigError, match=r"callback Counter has the key 3, .* such as '3', and"):
        callback_states([Counter()])


@pytest.mark.full
def test_a_stopped_and_resumed_run_ends_where_the_whole_one_does(tiny, tmp_path):
    def returns(trainer):
        return [record["env_steps"] for record in trainer.history.evaluations]

    settings = {"num_checkpoints": 9, "max_queued": 1}
    stop_early = {"patience": 5, "min_improvement": 1e9}  # the first one stays the best
    with tiny.trainer(callbacks=[EarlyStopping(**stop_early)], **settings) as whole:
        whole.run(0)
        assert "did not improve in 5 evaluations" in whole.stop_reason
        end = whole.env_steps

    class Pause(Callback):
        def on_iteration_end(self, trainer, iteration, metrics):
            if iteration == 3:
                trainer.request_stop("pause")

    settings |= {"run_dir": str(tmp_path / "run")}
    with tiny.trainer(callbacks=[EarlyStopping(**stop_early), Pause()], **settings) as first:
        first.run(0)
        assert first.stop_reason == "pause" and first.outer_iteration == 3
    early = EarlyStopping(**stop_early)
    with tiny.trainer(callbacks=[early], restore_checkpoint="auto", **settings) as second:
        second.run(0)
        assert (second.env_steps, early.since) == (end, 5)
        assert returns(whole) == [*returns(first), *returns(second)]
    early = EarlyStopping(**stop_early)
    with tiny.trainer(callbacks=[early], restore_checkpoint="auto", **settings) as third:
        assert third.run(0) == [] and third.env_steps == end  # it stays stopped
        assert "did not improve in 5 evaluations" in third.stop_reason
    with tiny.trainer(restore_checkpoint="auto", **settings) as last:
        last.run(0)  # without the callback it goes on, and says so
        assert last.env_steps == last.plan.total_steps
    texts = [record.text for record in read_records(tmp_path / "run" / "metrics.jsonl")]
    said = [text for text in texts if text and "this run had been stopped (" in text]
    assert "did not improve in 5 evaluations" in said[-1]


@pytest.mark.full
def test_a_callback_may_save_a_copy_whenever_a_checkpoint_is_saved(tiny, tmp_path):
    class Copies(Callback):
        def __init__(self):
            self.saved = []

        def on_checkpoint(self, trainer, iteration):
            self.saved.append(iteration)
            trainer.save_checkpoint(tmp_path / f"copy{iteration}")

    copies = Copies()
    with tiny.trainer(run_dir=str(tmp_path / "run"), max_queued=1, callbacks=[copies]) as trainer:
        trainer.run(0)
    assert copies.saved == [0, 1, 2, 3]
    assert all(holds_checkpoints(str(tmp_path / f"copy{iteration}")) for iteration in copies.saved)


def test_what_users_log_has_the_steps_of_what_is_reported(tiny, tmp_path):
    class Diary(Callback):
        def on_iteration_end(self, trainer, iteration, metrics):
            trainer.log({"iteration": iteration, "half": np.float32(iteration / 2)})

        def on_evaluation(self, trainer, iteration, evaluation):
            trainer.log(f"evaluated {iteration}")

        def on_checkpoint(self, trainer, iteration):
            if iteration > 0:
                trainer.log({"saved": jnp.bfloat16(iteration)})

    told = []
    callbacks = [Diary(), log_callback(lambda *arguments: told.append(arguments))]
    with tiny.trainer(run_dir=str(tmp_path / "run"), callbacks=callbacks) as trainer:
        with pytest.raises(ConfigError, match="there is no run to log to yet; call init"):
            trainer.log("too early")
        trainer.run(0)
        trainer.log("the end")
        for wrong in ("y", True, 1j, np.complex64(1), np.ones(2), None):
            with pytest.raises(ConfigError, match=r"cannot log 'x': .*; pass text, or numbers"):
                trainer.log({"x": wrong})
        with pytest.raises(ConfigError, match=r"cannot log 3; pass text, or numbers"):
            trainer.log(3)
    records = read_records(tmp_path / "run" / "metrics.jsonl")
    ours = [(record.env_steps, record.metrics) for record in records if record.kind == "user"]
    assert ours == [
        row
        for i in (1, 2, 3)
        for row in (
            (32 * i, {"user/iteration": i, "user/half": i / 2}),
            (32 * i, {"user/saved": i}),
        )
    ]
    texts = [(record.env_steps, record.text) for record in records if record.kind == "text"]
    assert texts == [*((32 * i, f"evaluated {i}") for i in range(4)), (96, "the end")]
    assert [iteration for iteration, _ in told] == [1, 2, 3]
    assert [metrics["env_steps"] for _, metrics in told] == [32, 64, 96]


def test_errors_are_told_before_the_end(tiny):
    told = []

    class Fails(Callback):
        def on_iteration_end(self, trainer, iteration, metrics):
            raise KeyError("mine")

    class Diary(Callback):
        def on_error(self, trainer, error):
            told.append(error)

        def on_run_end(self, trainer):
            told.append("end")

    trainer = tiny.trainer(callbacks=[Fails(), Diary()])
    with pytest.raises(KeyError, match="mine") as caught:
        trainer.run(0)
    assert told == [caught.value, "end"]
    trainer = tiny.trainer(callbacks=[Diary()])
    trainer.run(0)
    assert told[2:] == ["end"]


class Misspelt(Callback):
    def on_eval(self, trainer, iteration, evaluation):
        pass


class TakesMore(Callback):
    def on_evaluation(self, trainer, iteration, evaluation, score):
        pass


class KeepsState(Callback):
    def __init__(self):
        self.state = {"best": 0.0}


class TakesNoState(Callback):
    def restore(self):
        pass


class Attributes(Callback):
    on_gpu = True
    on_run_end = staticmethod(dict)  # has no signature

    def __init__(self):
        self.on_done = print

    def on_checkpoint(self, *arguments):
        pass


@pytest.mark.fast
def test_hooks_that_would_not_be_called_are_refused():
    with pytest.raises(ConfigError, match=r"never calls Misspelt.on_eval; .* 'on_evaluation'"):
        check_callbacks([Misspelt()])
    told = r"TakesMore.on_evaluation cannot be called .*'score'\); write def on_evaluation\(self, t"
    with pytest.raises(ConfigError, match=told):
        check_callbacks([TakesMore()])
    told = r"KeepsState.state is \{'best': 0.0\}, but state is a method .* such as own_state"
    with pytest.raises(ConfigError, match=told):
        check_callbacks([KeepsState()])
    told = r"TakesNoState.restore cannot be called .*; write def restore\(self, state\)"
    with pytest.raises(ConfigError, match=told):
        check_callbacks([TakesNoState()])
    check_callbacks([Attributes()])
