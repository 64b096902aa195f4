"""Callbacks: user code between outer iterations, on the host."""

import inspect
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import tqdm.asyncio
import tqdm.auto

from rlkit.errors import (
    ConfigError,
    did_you_mean,
    require,
    require_positive_integer,
    shown,
)
from rlkit.signatures import require_takes
from rlkit.training.config import Plan, TrainerConfig
from rlkit.training.history import History
from rlkit.training.logs.human_units import human_seconds
from rlkit.training.logs.metrics import score
from rlkit.training.logs.multi_logger import by_class
from rlkit.types import Measurements, PyTree
from rlkit.validation import PlainData


class RunView(Protocol):
    """What a callback can see of the run and do to it: a part of `Trainer`."""

    @property
    def config(self) -> TrainerConfig:
        """The settings of the run."""
        ...

    @property
    def plan(self) -> Plan:
        """The run in numbers."""
        ...

    @property
    def state(self) -> PyTree:
        """The newest state; the next outer iteration donates its buffers."""
        ...

    @property
    def history(self) -> History:
        """Training metrics and evaluations reported so far."""
        ...

    @property
    def stop_reason(self) -> str | None:
        """Why the run ends early; None: it does not."""
        ...

    @property
    def outer_iteration(self) -> int:
        """Outer iterations started so far; fewer may have been reported."""
        ...

    @property
    def env_steps(self) -> int:
        """Environment steps of one seed after `outer_iteration` outer iterations.

        Later than what a callback is told about: metrics and evaluations hold their own steps.
        """
        ...

    def steps_at(self, iteration: int) -> int:
        """Environment steps of one seed after `iteration` outer iterations."""
        ...

    @property
    def keeps_best(self) -> bool:
        """Whether the run evaluates, saves checkpoints, and keeps the best one."""
        ...

    def request_stop(self, reason: str) -> None:
        """Ends the run after the outer iteration in progress."""
        ...

    def log(self, what: str | Mapping[str, float]) -> None:
        """See `Trainer.log`."""
        ...

    def evaluate(self, episodes: int | None = None) -> Measurements:
        """See `Trainer.evaluate`."""
        ...

    def save_checkpoint(
        self, path: str | os.PathLike[str] | None = None, *, evaluation_score: float | None = None
    ) -> int:
        """See `Trainer.save_checkpoint`."""
        ...

    @property
    def best_checkpoint(self) -> int | None:
        """See `Trainer.best_checkpoint`."""
        ...

    def export_policy(self, directory: str | os.PathLike[str]) -> PlainData:
        """See `Trainer.export_policy`."""
        ...

    def record_video(
        self,
        path: str | os.PathLike[str],
        *,
        episodes: int = 1,
        seed_index: int = 0,
        overwrite: bool = False,
    ) -> object:
        """See `Trainer.record_video`."""
        ...

    def summary(self) -> PlainData:
        """See `Trainer.summary`."""
        ...


class Callback:
    """Override what you need; every method does nothing by default.

    A callback that counts something returns it from `state`, which checkpoints hold, and takes it
    back in `restore`. Then a resumed run continues as if it had not been stopped.

    Of several processes (`start_processes`), process 0 alone calls them.

    To end training early, call `trainer.request_stop("reason")`. It takes effect at most one outer
    iteration late (in general `max_queued - 1`), because the next one is already running when
    results arrive.
    """

    def check_config(self, config: TrainerConfig) -> None:
        """When the Trainer is made; raises `RlkitError` if it does not suit the run."""

    def on_warm_up(self, trainer: RunView, done: int, total: int) -> None:
        """While random steps fill the replay memory, or steps of the policy after a resume.

        `done` of `total` environment steps of one seed are taken: none at first. On the host it is
        called after each rollout, otherwise once more at the end.
        """

    def on_run_start(self, trainer: RunView) -> None:
        """Before the first outer iteration of a `run`."""

    def on_iteration_end(self, trainer: RunView, iteration: int, metrics: dict[str, float]) -> None:
        """After outer iteration `iteration` (from 1).

        `metrics` are those of its training record, without prefix, with its `env_steps` and
        `updates`.
        """

    def on_evaluation(self, trainer: RunView, iteration: int, evaluation: Measurements) -> None:
        """After an evaluation; `evaluation` as in `Trainer.run`."""

    def on_checkpoint(self, trainer: RunView, iteration: int) -> None:
        """After a checkpoint was handed to the checkpointer."""

    def on_error(self, trainer: RunView, error: BaseException) -> None:
        """After an error or interruption that ends the run, before `on_run_end`."""

    def on_run_end(self, trainer: RunView) -> None:
        """After the last outer iteration, even if the run stops early or fails."""

    def state(self) -> PlainData:
        """What `restore` needs to continue from here, as plain data."""
        return {}

    def restore(self, state: PlainData) -> None:
        """Goes back to `state`; {}: the run starts, or its checkpoint was saved without this."""


def check_callbacks(callbacks: object) -> None:
    """Raises `ConfigError` unless these are `Callback`s."""
    fix = "pass a list of instances of subclasses of rlkit.Callback"
    if not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
        fix = "put it into a list: callbacks=[...]" if isinstance(callbacks, Callback) else fix
        raise ConfigError(f"callbacks must be a list, got {callbacks!r}; {fix}")
    for callback in callbacks:
        if isinstance(callback, type) and issubclass(callback, Callback):
            name = callback.__name__
            raise ConfigError(
                f"callbacks must be instances, got the class {name}; add parentheses: {name}()"
            )
        if not isinstance(callback, Callback) and callable(callback):
            fix = "wrap a function: rlkit.log_callback(function)"
        if not isinstance(callback, Callback):
            raise ConfigError(f"{callback!r} is not a Callback; {fix}")
        _check_hooks(callback)


def _check_hooks(callback: Callback) -> None:
    """Raises `ConfigError` for methods that would never be called, or could not be."""
    hooks = [name for name in vars(Callback) if name.startswith("on_")]
    for name in dir(type(callback)):  # what an instance has of its own, it calls itself
        if not name.startswith("on_") or not callable(method := getattr(callback, name)):
            continue
        own = f"{type(callback).__name__}.{name}"
        fix = f"{did_you_mean(name, hooks)} Rename it if it is a method of your own"
        require(name in hooks, f"rlkit never calls {own}", fix)
        _check_signature(callback, name, method)
    for name in vars(Callback).keys() - set(hooks):
        if name.startswith("_"):
            continue
        method = getattr(callback, name)
        require(
            callable(method),
            f"{type(callback).__name__}.{name} is {shown(method)}, but {name} is a method of every"
            " callback, which rlkit calls",
            f"give what you keep there another name, such as own_{name}",
        )
        _check_signature(callback, name, method)


def _check_signature(callback: Callback, name: str, method: Callable[..., object]) -> None:
    """Raises `ConfigError` unless a method takes the arguments of that of `Callback`."""
    names = list(inspect.signature(getattr(Callback, name)).parameters)  # self, and others
    what, fix = f"{type(callback).__name__}.{name}", f"write def {name}({', '.join(names)})"
    require_takes(method, names[1:], what, fix)


def callback_states(callbacks: Sequence[Callback]) -> PlainData:
    """The states of callbacks that have any, by the names of their classes."""
    states = {}
    for name, callback in by_class(callbacks).items():
        if state := callback.state():
            try:
                json.dumps(state)
            except (TypeError, ValueError) as error:
                raise ConfigError(
                    f"the state of the callback {name} is not plain data ({error}); return numbers,"
                    " text, lists and dicts"
                ) from None
            for key in _keys(state):
                require(
                    isinstance(key, str),
                    f"the state of the callback {name} has the key {key!r}, which a checkpoint"
                    " holds as text",
                    f"use text as a key, such as {str(key)!r}, and convert it in restore",
                )
            states[name] = state
    return states


def _keys(state: object) -> Iterator[object]:
    """The keys of all dicts within it."""
    if isinstance(state, dict):
        yield from state
        state = list(state.values())
    if isinstance(state, list | tuple):
        for item in state:
            yield from _keys(item)


def restore_callbacks(callbacks: Sequence[Callback], states: PlainData) -> None:
    """The inverse of `callback_states`."""
    for name, callback in by_class(callbacks).items():
        callback.restore(states.get(name, {}))


def _require_number(name: str, value: object, *, example: float) -> None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    require(known, f"{name} must be a number, got {value!r}", f"pass {example}")


class EarlyStopping(Callback):
    """Ends the run once evaluations are good enough, or no longer improve.

    The evaluations are compared by their mean over episodes and seeds. The one before training does
    not count. A stop takes effect as `Callback` says. A run that was ended stays so when it is
    resumed; to train on, change the arguments, or leave the callback out. A resumed run goes on
    counting, unless another measurement is compared.

    Args:
        threshold: ends the run at a value of at least this. None: no threshold.
        patience: ends the run after so many evaluations in a row without a new best value. None:
            never.
        min_improvement: how much better than the best value a new best value must be.
        measurement: what is compared, by its name in the evaluations; higher is better.

    Raises `ConfigError` for other arguments, for a run that evaluates nothing, and at the first
    evaluation if it lacks the measurement.
    """

    def __init__(
        self,
        *,
        threshold: float | None = None,
        patience: int | None = None,
        min_improvement: float = 0.0,
        measurement: str = "return",
    ):
        if threshold is not None:
            _require_number("EarlyStopping threshold", threshold, example=475.0)
        _require_number("EarlyStopping min_improvement", min_improvement, example=1.0)
        require(
            threshold is not None or patience is not None,
            "EarlyStopping needs a threshold or a patience",
            "pass threshold=475.0, patience=5, or both",
        )
        require_positive_integer(
            "EarlyStopping patience", patience, example=5, none="no patience limit"
        )
        require(
            min_improvement >= 0,
            f"EarlyStopping min_improvement must not be negative, got {min_improvement!r}",
            "pass 0.0 or more",
        )
        self.threshold = threshold
        self.patience = None if patience is None else int(patience)  # NumPy's are no plain data
        self.min_improvement, self.measurement = min_improvement, measurement
        self.restore({})

    def check_config(self, config: TrainerConfig) -> None:
        """Raises `ConfigError` unless there will be evaluations."""
        require(
            config.enable_evaluation,
            "EarlyStopping needs evaluations, but enable_evaluation=False",
            "leave it out of the TrainerConfig",
        )

    def on_run_start(self, trainer: RunView) -> None:
        """A run that was stopped here stays stopped."""
        if self.reason is not None:
            trainer.request_stop(self.reason)

    def on_evaluation(self, trainer: RunView, iteration: int, evaluation: Measurements) -> None:
        """Compares the evaluation with the best one."""
        when = ("env_steps", "updates")
        known = [n for n, x in evaluation.items() if n not in when and not isinstance(x, Mapping)]
        require(
            self.measurement in known,
            f"evaluations have no measurement {self.measurement!r}",
            f"choose the measurement of EarlyStopping among {', '.join(known)}",
        )
        if iteration == 0:
            return
        value = score(evaluation, trainer.config.num_seeds, name=self.measurement)
        if value is not None and (self.best is None or value > self.best + self.min_improvement):
            self.best, self.since = value, 0
        else:
            self.since += 1
        if self.threshold is not None and value is not None and value >= self.threshold:
            self.reason = f"{self.measurement} {value:.4g} reached {self.threshold:.4g}"
        elif self.patience is not None and self.since >= self.patience:
            best = "none" if self.best is None else f"{self.best:.4g}"
            count = "1 evaluation" if self.since == 1 else f"{self.since} evaluations"
            self.reason = f"{self.measurement} did not improve in {count} (best: {best})"
        if self.reason is not None:
            trainer.request_stop(self.reason)

    def state(self) -> PlainData:
        """The best value, the number of evaluations since, and why the run was ended, if it was."""
        counted = {"best": self.best, "since": self.since, "reason": self.reason}
        return counted | {"arguments": self._arguments}

    def restore(self, state: PlainData) -> None:
        """Continues from there, as far as it was counted for the same purpose."""
        before = state.get("arguments", self._arguments)
        if before["measurement"] != self.measurement:
            state = {}
        self.best: float | None = state.get("best")
        self.since: int = state.get("since", 0)
        self.reason: str | None = state.get("reason") if before == self._arguments else None

    @property
    def _arguments(self) -> PlainData:
        names = ("threshold", "patience", "min_improvement", "measurement")
        return {name: getattr(self, name) for name in names}


class WallTimeLimit(Callback):
    """Ends the run, as `Trainer.request_stop` does, once it takes more than `seconds`.

    They begin with the steps that fill the replay memory, if there are any, else with the first
    outer iteration of this call of `Trainer.run`. Leave time for what comes before, such as reading
    a checkpoint, and for one or two outer iterations: the one in progress is finished first.
    """

    def __init__(self, seconds: float):
        _require_number("WallTimeLimit seconds", seconds, example=3600.0)
        require(seconds > 0, f"WallTimeLimit needs seconds, got {seconds!r}", "pass 3600.0")
        self.seconds = seconds
        self._warm_up = 0.0  # seconds

    def on_warm_up(self, trainer: RunView, done: int, total: int) -> None:
        """Counts the seconds of a warm-up."""
        now = time.monotonic()
        if done == 0:
            self._warm_up_began = now
        self._warm_up = now - self._warm_up_began

    def on_run_start(self, trainer: RunView) -> None:
        """Starts the clock."""
        self._start, self._warm_up = time.monotonic() - self._warm_up, 0.0

    def on_iteration_end(self, trainer: RunView, iteration: int, metrics: dict[str, float]) -> None:
        """Looks at the clock."""
        if time.monotonic() - self._start > self.seconds:
            trainer.request_stop(f"the time limit of {human_seconds(self.seconds)} is over")


class LogCallback(Callback):
    """Calls a function with the training metrics of each outer iteration, see `log_callback`."""

    def __init__(self, function: Callable[[int, dict[str, float]], object]):
        self.function = function

    def on_iteration_end(self, trainer: RunView, iteration: int, metrics: dict[str, float]) -> None:
        """Calls it."""
        self.function(iteration, metrics)


def log_callback(function: Callable[[int, dict[str, float]], object]) -> LogCallback:
    """A callback that calls `function(iteration, metrics)` after each outer iteration.

    `metrics` are those of `Callback.on_iteration_end`.
    """
    require(callable(function), f"{function!r} is not a function", "pass print, for instance")
    return LogCallback(function)


class ProgressBar(Callback):
    """A bar over environment steps, with the latest return, in a terminal or a notebook.

    Before it, one over those that fill the replay memory. Elsewhere, as in a file or a pipe, there
    is none.
    """

    def __init__(self) -> None:
        self._bar: tqdm.auto.tqdm | None = None

    def on_warm_up(self, trainer: RunView, done: int, total: int) -> None:
        """Opens a bar, moves it, and closes it."""
        if done == 0:
            self._close()
            self._bar = _bar("warming up", total=total, initial=0)
            return
        if self._bar is not None:
            self._bar.update(done - self._bar.n)
        if done >= total:
            self._close()

    def on_run_start(self, trainer: RunView) -> None:
        """Opens the bar at the current step of the run."""
        total = trainer.steps_at(trainer.plan.num_checkpoints)
        self._bar = _bar("training", total=total, initial=trainer.env_steps)

    def on_iteration_end(self, trainer: RunView, iteration: int, metrics: dict[str, float]) -> None:
        """Moves the bar."""
        if self._bar is not None:
            self._bar.update(trainer.steps_at(iteration) - self._bar.n)

    def on_evaluation(self, trainer: RunView, iteration: int, evaluation: Measurements) -> None:
        """Shows the mean evaluation return."""
        if self._bar is not None and "return" in evaluation:
            self._bar.set_postfix(eval_return=f"{evaluation['return'].mean():.1f}", refresh=False)

    def on_run_end(self, trainer: RunView) -> None:
        """Closes the bar."""
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _bar(what: str, *, total: int, initial: int) -> tqdm.auto.tqdm:
    in_notebook = tqdm.auto.tqdm is not tqdm.asyncio.tqdm_asyncio
    return tqdm.auto.tqdm(
        disable=False if in_notebook else None,  # None: unless it is a terminal
        total=total,
        initial=initial,
        unit="step",
        unit_scale=True,
        desc=what,
        smoothing=0.1,
    )
