"""What a run says: the results of outer iterations as records, announcements, warnings, errors."""

import dataclasses
import traceback
from typing import Any

import jax
import numpy as np

from rlkit.errors import RlkitError
from rlkit.training.config import REPLAY_LIMIT, Plan
from rlkit.training.logs.loggers import Logger, human_bytes
from rlkit.training.logs.metrics import (
    Moment,
    eval_records,
    exact_counts,
    seed_returns,
    train_records,
)
from rlkit.training.logs.records import Kind, Record
from rlkit.training.run_progress import RunProgress
from rlkit.types import PyTree


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finished:
    """The results of an outer iteration, on the host."""

    iteration: int
    metrics: dict[str, Any] | None  # None before the first outer iteration
    counts: tuple[int, int] | None  # (environment steps, updates), None: the module counts nothing
    evaluation: dict[str, Any] | None  # None: not evaluated


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pending:
    """An outer iteration that the device may still be working on."""

    iteration: int
    results: Any  # (metrics, counters), None before the first outer iteration
    evaluation: Any  # None: not evaluated
    state: PyTree  # a copy that no later call takes over, None where it is not needed
    is_saved: bool  # whether a checkpoint of it is due

    def wait(self) -> Finished:
        """Returns once the device has finished it."""
        results, evaluation = jax.device_get((self.results, self.evaluation))
        metrics, counters = results or (None, None)
        return Finished(
            iteration=self.iteration,
            metrics=metrics,
            counts=exact_counts(counters),
            evaluation=evaluation,
        )


def with_returns(progress: RunProgress, evaluation: dict[str, Any], num_seeds: int) -> RunProgress:
    """The progress with the returns of an evaluation."""
    returns = seed_returns(evaluation, num_seeds)
    return dataclasses.replace(
        progress,
        seed_returns=None if returns is None else tuple(returns.tolist()),
        return_std=None if returns is None else float(np.std(evaluation["return"])),
    )


@dataclasses.dataclass(frozen=True)
class Reporter:
    """Writes to the logger of a run; of several seeds, each one's metrics and their mean."""

    logger: Logger
    num_seeds: int

    def text(self, text: str, moment: Moment, kind: Kind = "event") -> None:
        """Logs a sentence."""
        self.logger.log(Record(kind=kind, text=text, **dataclasses.asdict(moment)))

    def training(
        self, metrics: dict[str, Any], moment: Moment, *, steps_per_second: float, is_logged: bool
    ) -> dict[str, float]:
        """Logs the metrics of an outer iteration, if `is_logged`; returns their means over seeds by
        plain names.
        """
        records = train_records(
            metrics, moment, num_seeds=self.num_seeds, steps_per_second=steps_per_second
        )
        for record in records if is_logged else []:
            self.logger.log(record)
        return {name.removeprefix("train/"): x for name, x in records[-1].metrics.items()}

    def evaluation(
        self, evaluation: dict[str, Any], moment: Moment, extra: str | dict[str, float] | None
    ) -> None:
        """Logs an evaluation, with the measures or the text `extra` that a user's function adds."""
        records = eval_records(evaluation, moment, num_seeds=self.num_seeds)
        if isinstance(extra, dict):
            added = {f"eval/{name}": float(value) for name, value in extra.items()}
            records[-1].metrics.update(added)
        for record in records:
            if record.metrics:
                self.logger.log(record)
        if isinstance(extra, str):
            self.text(extra, moment, "text")

    def crash(self, error: BaseException, moment: Moment) -> None:
        """Logs what ended the run, with its traceback unless it is an `RlkitError`."""
        is_bug = not isinstance(error, RlkitError)  # those say all there is to say
        text = f"{type(error).__name__}: {error}"
        text = "".join(traceback.format_exception(error)) if is_bug else text
        try:
            self.text(text, moment, "error")
            self.logger.flush()
        except (
            Exception
        ) as failure:  # the log may be what failed; the first error is the one to see
            error.add_note(f"and the crash could not be logged: {failure}")


def announcement(plan: Plan, outer_iteration: int, env_steps: int, num_seeds: int) -> str:
    """What is about to be trained, in a sentence."""
    left = plan.num_checkpoints - outer_iteration
    if left <= 0:
        return f"this run is finished: {env_steps:,} environment steps; raise total_steps to go on"
    is_new = outer_iteration == 0
    warm_up = (
        f", of them {plan.prefill_steps:,} random ones to warm up"
        if plan.prefill_steps and is_new
        else ""
    )
    each = f" for each of {num_seeds} seeds" if num_seeds > 1 else ""
    start = "" if is_new else f" from step {env_steps:,}"
    return (
        f"training{start} to {env_steps + left * plan.steps_per_checkpoint:,} environment"
        f" steps{each}{warm_up}: {left} outer iterations of {plan.epochs_per_checkpoint} x"
        f" {plan.env_steps_per_iteration:,} steps"
    )


def replay_memory(capacity: int, num_seeds: int, needed: int, available: int | None) -> str:
    """The size of a replay buffer of `capacity` transitions: the bytes `needed` over all seeds, and
    those `available` (None: not known).
    """
    of_seeds = f" of each of {num_seeds} seeds" if num_seeds > 1 else ""
    of_all = f" of the {human_bytes(available)} of memory here" if available else ""
    return f"replay buffer: {capacity:,} transitions{of_seeds}, {human_bytes(needed)}{of_all}"


def replay_left_out(replay_bytes: int, *, is_asked: bool) -> str:
    """Why checkpoints do not hold the replay memory (`is_asked`: a setting says so), and what
    follows from it.
    """
    size, limit = human_bytes(replay_bytes), human_bytes(REPLAY_LIMIT)
    reason = (
        "as save_replay=False says"
        if is_asked
        else f"for its {size} are more than {limit}; save_replay=True saves it too"
    )
    return (
        f"checkpoints leave out the replay buffer, {reason} (a resumed run fills it anew by its"
        " policy)"
    )


def refill(env_steps: int) -> str:
    """That a replay memory is filled before training goes on, and what follows from it."""
    return (
        f"the replay buffer was not saved: {env_steps:,} steps by the restored policy fill it anew,"
        " on top of total_steps; the run does not equal an uninterrupted one bit for bit"
    )
