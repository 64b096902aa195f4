"""Callbacks: user code between outer iterations, on the host."""

import os
from collections.abc import Sequence
from typing import Protocol

import tqdm.asyncio
import tqdm.auto

from rlkit.errors import ConfigError, require
from rlkit.training.config import Plan, TrainerConfig
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
    def history(self) -> list[Measurements]:
        """The evaluations of the outer iterations reported so far."""
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

    def request_stop(self, reason: str) -> None:
        """Ends the run after the outer iteration in progress."""
        ...

    def evaluate(self, episodes: int | None = None) -> Measurements:
        """See `Trainer.evaluate`."""
        ...

    def save_checkpoint(
        self, path: str | os.PathLike[str] | None = None, *, evaluation_score: float | None = None
    ) -> int:
        """See `Trainer.save_checkpoint`."""
        ...

    def summary(self) -> PlainData:
        """See `Trainer.summary`."""
        ...


class Callback:
    """Override what you need; every method does nothing by default.

    To end training early, call `trainer.request_stop("reason")`. It takes effect at most one outer
    iteration late (in general `max_queued - 1`), because the next one is already running when
    results arrive.
    """

    def on_run_start(self, trainer: RunView) -> None:
        """Before the first outer iteration of a `run`."""

    def on_iteration_end(self, trainer: RunView, iteration: int, metrics: dict[str, float]) -> None:
        """After outer iteration `iteration` (from 1).

        `metrics` are those of its training record, without prefix, with its `env_steps` and
        `updates`.
        """

    def on_evaluation(self, trainer: RunView, iteration: int, evaluation: Measurements) -> None:
        """After an evaluation; `evaluation` as in `trainer.history`."""

    def on_checkpoint(self, trainer: RunView, iteration: int) -> None:
        """After a checkpoint was handed to the checkpointer."""

    def on_run_end(self, trainer: RunView) -> None:
        """After the last outer iteration, even if the run stops early or fails."""


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
        require(isinstance(callback, Callback), f"{callback!r} is not a Callback", fix)


class ProgressBar(Callback):
    """A bar over environment steps, with the latest return, in a terminal or a notebook.

    Elsewhere, as in a file or a pipe, there is none.
    """

    def __init__(self) -> None:
        self._bar: tqdm.auto.tqdm | None = None

    def on_run_start(self, trainer: RunView) -> None:
        """Opens the bar at the current step of the run."""
        in_notebook = tqdm.auto.tqdm is not tqdm.asyncio.tqdm_asyncio
        self._bar = tqdm.auto.tqdm(
            disable=False if in_notebook else None,  # None: unless it is a terminal
            total=trainer.steps_at(trainer.plan.num_checkpoints),
            initial=trainer.env_steps,
            unit="step",
            unit_scale=True,
            desc="training",
            smoothing=0.1,
        )

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
        if self._bar is not None:
            self._bar.close()
            self._bar = None
