"""How the trials of a group are trained up to a rung: by one program, or each as a run."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rlkit.training.callbacks import Callback, RunView
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.config import CheckpointerConfig, LoggerConfig, Plan
from rlkit.training.files.checkpointer import holds_checkpoints
from rlkit.training.from_config import build
from rlkit.training.logs.announcements import announcement
from rlkit.training.logs.human_units import human_count, human_seconds
from rlkit.training.logs.records import Record, read_records
from rlkit.training.logs.statistics import standard_deviation
from rlkit.training.run_config import RunConfig
from rlkit.training.run_progress import RunProgress
from rlkit.training.sweeps.joint_records import logged_records
from rlkit.training.sweeps.launchers.protocol import Say, Watch
from rlkit.training.sweeps.population import Population
from rlkit.training.sweeps.shapes import joint_parts, require_seed, with_equal_shares
from rlkit.training.trainer import Trainer
from rlkit.types import Key, Measurements, PyTree
from rlkit.validation import PlainData

END_OF_RUNG = "the end of a rung"


class Interrupted(Exception):
    """A trainer was asked to stop before the end of its stage."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained:
    """The seeds of one or several trials, trained up to a rung."""

    state: PyTree  # leaves [L, ...]
    progress: RunProgress
    records: Sequence[Record]
    num_lanes: int
    is_population: bool

    def values_of(self, lane: int) -> PlainData:
        """The hyperparameters of a lane that changed during training; {} if none may."""
        if not self.is_population:
            return {}
        values = self.state.learner.hyperparameters
        return {name: float(f"{float(x[lane]):.6g}") for name, x in values.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Carried:
    """What trials bring along from the rung before."""

    state: PyTree  # leaves [L, ...]
    progress: RunProgress


@contextlib.contextmanager
def train_jointly(
    configs: Sequence[RunConfig],
    names: Sequence[int],
    traced: Sequence[str],
    directory: Path,
    until: int,
    *,
    carried: Callable[[], Carried] | None,
    population: Population | None,
    callbacks: Sequence[Callback],
    watch: Watch,
    say: Say,
) -> Iterator[Trained]:
    """Trains the seeds of all these trials by one program, for `until` outer iterations in all.

    Continues what `directory` holds, or else what was `carried` over (None: a fresh start). `names`
    are the numbers of the trials. A `population` learns from itself meanwhile. Raises
    `Interrupted` if it was asked to stop.
    """
    parts = joint_parts(configs, traced)
    until = min(until, parts.plan.num_checkpoints)  # others of the sweep may have more
    first, num_lanes = configs[0], len(configs) * configs[0].trainer.num_seeds
    plan: Plan = dataclasses.replace(parts.plan, num_checkpoints=until)
    own, checkpoints = first.trainer, first.trainer.checkpointer_config
    assert checkpoints is not None  # `check` saw to it
    trainer_config = dataclasses.replace(
        own,
        num_seeds=num_lanes,
        run_dir=os.fspath(directory),
        restore_checkpoint="auto",
        total_steps=None,
        num_checkpoints=until,
        epochs_per_checkpoint=plan.epochs_per_checkpoint,
        log_every=1,  # so that each trial's skipped updates are counted; see `write_trial`
        max_queued=own.max_queued if population is None else 1,  # to pause in time
        logger_config=LoggerConfig(console=False),
        checkpointer_config=CheckpointerConfig(
            max_to_keep=1,
            keep_best=False,
            save_replay=checkpoints.save_replay,
        ),
    )
    trainer_config = with_equal_shares(trainer_config)
    if trainer_config.devices < own.devices:
        say(
            f"{num_lanes} seeds can be divided equally among {trainer_config.devices} of"
            f" {own.devices} devices: the others are idle"
        )
    length = parts.plan.num_checkpoints  # schedules end with the last rung
    parts = dataclasses.replace(parts, plan=plan, schedule_length=length)
    pause = PauseAt(until)
    unused: Any = None  # `_parts` has them
    with contextlib.ExitStack() as stack:
        for env in parts.own_envs:
            stack.callback(env.close)
        trainer = stack.enter_context(
            Trainer(
                *(unused, unused, unused, unused),
                trainer_config,
                callbacks=[Report(names, say), pause, *callbacks],
                _parts=parts,
            )
        )
        watch(trainer)
        keys = _keys(require_seed(first), own.num_seeds, len(configs))
        if carried is not None and not holds_checkpoints(os.fspath(directory / "checkpoints")):
            source = carried()
            progress = dataclasses.replace(
                source.progress, seed=None, keys=jax.random.key_data(keys).tolist()
            )
            trainer.take_over(_axis_as_needed(source.state, num_lanes), progress)
        else:
            trainer.init(keys)
        if population is None:
            _train_until(trainer, until)
        else:
            _train_population(trainer, until, population, pause, names)
        state = trainer.state
        yield Trained(
            state=jax.tree.map(lambda x: x[None], state) if num_lanes == 1 else state,
            progress=trainer.progress,
            records=read_records(directory / "metrics.jsonl"),
            num_lanes=num_lanes,
            is_population=population is not None,
        )


def _train_until(trainer: Trainer, iteration: int) -> None:
    if trainer.outer_iteration < iteration:
        trainer.run()
    is_asked = trainer.stop_reason not in (None, END_OF_RUNG)
    if is_asked or trainer.outer_iteration < iteration:
        raise Interrupted


def _train_population(
    trainer: Trainer, until: int, population: Population, pause: "PauseAt", names: Sequence[int]
) -> None:
    """Trains to the end, and lets trials copy each other in between.

    A checkpoint holds what was before they did, so that a resumed sweep does the same again.
    """
    while trainer.outer_iteration < until:
        done, every = trainer.outer_iteration, population.every
        if done > 0 and done % every == 0:
            scores = trainer.progress.seed_returns
            assert scores is not None
            trainer.state = population.exploit(trainer.state, scores, done, names)
        pause.iteration = min((done // every + 1) * every, until)
        _train_until(trainer, pause.iteration)


def train_alone(
    config: RunConfig,
    directory: Path,
    until: int,
    *,
    callbacks: Sequence[Callback],
    watch: Watch,
) -> RunProgress:
    """Trains a trial as a run of its own, for `until` outer iterations in all.

    Returns its progress. Continues what `directory` holds. Raises `Interrupted` if it was asked to
    stop.
    """
    settings = dataclasses.replace(
        config.trainer, run_dir=os.fspath(directory), restore_checkpoint="auto", max_queued=1
    )
    config = dataclasses.replace(config, trainer=with_equal_shares(settings))
    with build(config, callbacks=[PauseAt(until), *callbacks]) as trainer:
        watch(trainer)
        trainer.run(config.seed)
        if trainer.outer_iteration < min(until, trainer.plan.num_checkpoints):
            raise Interrupted
        return trainer.progress


def write_trial(
    config: RunConfig, directory: Path, trained: Trained, lanes: range, records: Sequence[Record]
) -> None:
    """Makes a run directory of one of several trials that one program trained.

    It is that of a run that trained these seeds alone, up to rounding: it can be resumed, evaluated
    and plotted. `records` are those of the trial.
    """
    settings = dataclasses.replace(
        config.trainer, run_dir=os.fspath(directory), restore_checkpoint="auto"
    )
    config = dataclasses.replace(config, trainer=with_equal_shares(settings))
    logs = config.trainer.logger_config
    assert logs is not None  # `check` saw to it
    with build(config, logger=dataclasses.replace(logs, console=False)) as trainer:
        progress = own_progress(trained.progress, lanes, records, config)
        plan, num_seeds = trainer.plan, config.trainer.num_seeds
        text = announcement(plan, 0, plan.prefill_steps, num_seeds)
        start = Record(
            kind="event", env_steps=plan.prefill_steps, updates=0, wall_seconds=0.0, text=text
        )
        done, every = progress.outer_iteration, config.trainer.log_every
        kept = logged_records(records, every, done=done, planned=plan.num_checkpoints)
        trainer.take_over(own_state(trained.state, lanes), progress, [start, *kept])
        is_whole = progress.outer_iteration >= plan.num_checkpoints
        trainer.conclude(None if is_whole else "the sweep kept others")


def own_state(state: PyTree, lanes: range | Sequence[int]) -> PyTree:
    """The state of the seeds in `lanes`, with a seed axis if there are several.

    It holds no hyperparameters, like that of a run of its own.
    """
    chosen = np.asarray(lanes)
    part = _axis_as_needed(jax.tree.map(lambda x: x[chosen], state), len(chosen))
    return part.replace(learner=part.learner.replace(hyperparameters={}))


def lanes_subset(trained: Trained, lanes: Sequence[int]) -> Carried:
    """What the seeds in some lanes bring along into a program of their own."""
    chosen, progress = np.asarray(lanes), trained.progress
    in_a_row = progress.skipped_in_a_row
    returns, peaks = progress.seed_returns, progress.seed_peaks
    return Carried(
        state=jax.tree.map(lambda x: x[chosen], trained.state),
        progress=dataclasses.replace(
            progress,
            seed_returns=None if returns is None else tuple(returns[lane] for lane in lanes),
            seed_peaks=None if peaks is None else tuple(peaks[lane] for lane in lanes),
            skipped_in_a_row=tuple(in_a_row[lane] for lane in lanes) if in_a_row else (),
        ),
    )


def own_progress(
    progress: RunProgress, lanes: range, records: Sequence[Record], config: RunConfig
) -> RunProgress:
    """The progress of the seeds in `lanes`."""
    returns, peaks = progress.seed_returns, progress.seed_peaks
    in_a_row = progress.skipped_in_a_row
    returns = None if returns is None else tuple(returns[lane] for lane in lanes)
    keys = Compiler(len(lanes)).keys(require_seed(config))
    return dataclasses.replace(
        progress,
        seed=config.seed,
        keys=jax.random.key_data(keys).tolist(),
        seed_returns=returns,
        return_std=(
            None if returns is None or len(returns) == 1 else standard_deviation(np.array(returns))
        ),
        seed_peaks=None if peaks is None else tuple(peaks[lane] for lane in lanes),
        skipped_updates=skipped_updates(records),
        skipped_in_a_row=tuple(in_a_row[lane] for lane in lanes) if in_a_row else (),
        non_finite_steps=non_finite_steps(records),
    )


def skipped_updates(records: Sequence[Record]) -> int:
    """Updates skipped because something was not finite, of the seed with most in each iteration."""
    name = "train/skipped_updates"
    worst: dict[int, float] = {}
    for record in records:
        if name in record.metrics:
            at = record.env_steps
            worst[at] = max(worst.get(at, 0.0), record.metrics[name])
    return int(sum(worst.values()))


def non_finite_steps(records: Sequence[Record]) -> int:
    """Steps of all seeds in which an environment was reset, from the records of each seed."""
    name = "train/non_finite_steps"
    several = any(record.seed is not None for record in records)
    counted = [r for r in records if name in r.metrics and (r.seed is not None) == several]
    return int(sum(record.metrics[name] for record in counted))


def lanes_of(place: int, num_seeds: int) -> range:
    """The lanes of the trial at `place` among those that one program trains."""
    return range(place * num_seeds, (place + 1) * num_seeds)


def _keys(seed: int, num_seeds: int, num_trials: int) -> Key:
    """The keys of all lanes, [L] ([] for one): each trial has those of the seeds from `seed` on."""
    one = Compiler(num_seeds).keys(seed)
    keys = jax.numpy.tile(jax.numpy.atleast_1d(one), num_trials)
    return keys[0] if keys.shape == (1,) else keys


def _axis_as_needed(state: PyTree, num_lanes: int) -> PyTree:
    """A state [L, ...] as a trainer has it: that of a single seed has no axis."""
    return jax.tree.map(lambda x: x[0], state) if num_lanes == 1 else state


class PauseAt(Callback):
    """Ends a run after so many outer iterations."""

    def __init__(self, iteration: int):
        self.iteration = iteration

    def on_run_start(self, trainer: RunView) -> None:
        """Ends a run that is there already."""
        self._pause(trainer, trainer.outer_iteration)

    def on_iteration_end(self, trainer: RunView, iteration: int, metrics: dict[str, float]) -> None:
        """Ends the run when it is there."""
        self._pause(trainer, iteration)

    def _pause(self, trainer: RunView, iteration: int) -> None:
        if self.iteration <= iteration < trainer.plan.num_checkpoints and not trainer.stop_reason:
            trainer.request_stop(END_OF_RUNG)


class Report(Callback):
    """Prints a line for each evaluation of several trials: the best one, and the median."""

    def __init__(self, names: Sequence[int], say: Say):
        self._names, self._say, self._start = names, say, time.monotonic()

    def on_evaluation(self, trainer: RunView, iteration: int, evaluation: Measurements) -> None:
        """Prints the line."""
        if "return" not in evaluation:
            return
        returns = np.asarray(evaluation["return"], np.float64)
        means = returns.reshape(len(self._names), -1).mean(1)
        best = int(np.nanargmax(means)) if np.isfinite(means).any() else 0
        steps = human_count(int(evaluation["env_steps"]))
        self._say(
            f"{steps:>6} steps | {human_seconds(time.monotonic() - self._start)} | best return"
            f" {means[best]:.4g} (trial {self._names[best]:03d}), median {np.nanmedian(means):.4g}"
            f" of {len(means)} trials"
        )
