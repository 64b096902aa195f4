"""What a run reports: records, scores and warnings of outer iterations; announcements; errors."""

import dataclasses
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax
import numpy as np
from gymnasium.spaces import Box

from rlkit.agents.base import remembers
from rlkit.agents.configs import NetworkConfig
from rlkit.agents.encoding import encoding_note
from rlkit.agents.torso import image_notes
from rlkit.algorithms.metrics import SKIPPED, split_each
from rlkit.algorithms.replay_buffer import ReplaySettings
from rlkit.envs.base import env_name
from rlkit.errors import RlkitError, require
from rlkit.spaces import has_floats, leaves
from rlkit.training.compile.devices import DATA
from rlkit.training.core.module import Module, RLModule
from rlkit.training.files.checkpoint_items import without_replay
from rlkit.training.files.checkpoint_leaves import tree_digest
from rlkit.training.files.checkpointer import Checkpointer
from rlkit.training.fingerprint import fingerprint, versions
from rlkit.training.finite_checks import (
    EVALUATION,
    TRAINING,
    check_evaluation,
    check_metrics,
    check_skipped,
    resets_in_evaluation,
    resets_in_training,
    skipped_in,
    skipped_in_a_row,
)
from rlkit.training.health import examine, examine_evaluation
from rlkit.training.logs.announcements import (
    announcement,
    replay_left_out,
    replay_memory,
    unused_settings,
)
from rlkit.training.logs.logger import Logger
from rlkit.training.logs.metrics import (
    HostMetrics,
    Moment,
    episode_returns,
    eval_records,
    exact_counts,
    seed_returns,
    train_records,
)
from rlkit.training.logs.records import Kind, Record
from rlkit.training.logs.statistics import standard_deviation
from rlkit.training.programs.protocol import Results
from rlkit.training.run import Run
from rlkit.training.run_progress import RunProgress
from rlkit.types import Measurements, PyTree, TrainState
from rlkit.validation import PlainData

EvalFn = Callable[[PyTree], str | dict[str, float] | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finished:
    """The results of an outer iteration, on the host."""

    iteration: int
    metrics: HostMetrics | None  # None before the first outer iteration
    each: HostMetrics  # of its single iterations, [K] or [S, K]; {}: not kept
    counts: tuple[int, int] | None  # (environment steps, updates), None: the module counts nothing
    evaluation: Measurements | None  # None: not evaluated


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pending:
    """An outer iteration that the device may still be working on."""

    iteration: int
    results: Results | None  # None before the first outer iteration
    evaluation: Measurements | None  # None: not evaluated
    state: PyTree  # a copy that no later call donates; None: not needed
    is_saved: bool  # whether its checkpoint is due

    def wait(self) -> Finished:
        """Returns once the device has finished it."""
        results, evaluation = jax.device_get((self.results, self.evaluation))
        metrics, counters = results or (None, None)
        metrics, each = (None, {}) if metrics is None else split_each(metrics)
        return Finished(
            iteration=self.iteration,
            metrics=metrics,
            each=each,
            counts=exact_counts(counters),
            # what `device_get` returns keeps the buffers of the device alive
            evaluation=jax.tree.map(np.array, evaluation),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reporter:
    """Logs what happens in a run, updates the run's progress, and calls callbacks."""

    run: Run
    logger: Logger
    call: Callable[..., None]  # (name of a `Callback` method, its arguments after the trainer)
    eval_fn: EvalFn | None

    def queue(
        self,
        results: Results | None,
        evaluate: Callable[[PyTree], Measurements],
        checkpointer: Checkpointer | None,
    ) -> Pending:
        """Starts evaluating and copying the current state, if these are due.

        Must be called before the next outer iteration donates the state. `results` are None before
        the first.
        """
        run, config = self.run, self.run.config
        is_skipped = results is None and config.skip_initial_evaluation
        is_evaluated = config.enable_evaluation and not is_skipped and run.is_due(config.eval_every)
        is_saved = checkpointer is not None and run.is_due(config.checkpoint_every)
        is_seen = self.eval_fn is not None and is_evaluated
        # What is not saved is not copied either, unless the user's `eval_fn` gets to see it.
        is_partial = self.eval_fn is None and run.leaves_out_replay(checkpointer)
        copied = without_replay(run.state) if is_partial else run.state
        return Pending(
            iteration=run.progress.outer_iteration,
            results=results,
            evaluation=evaluate(run.state) if is_evaluated else None,
            state=run.program.copy(copied) if is_saved or is_seen else None,
            is_saved=is_saved,
        )

    def log(self, text: str) -> None:
        """Logs a sentence."""
        self._log_text("event", text, self.run.now())

    def warn(self, text: str) -> None:
        """Logs a sentence about what is not as it should be."""
        self._log_text("warning", text, self.run.now())

    def log_user(self, what: str | Mapping[str, float]) -> None:
        """Logs a user's sentence or numbers, at what is being reported, else now."""
        moment = self.run.reported or self.run.now()
        if isinstance(what, str):
            self._log_text("text", what, moment)
            return
        fix = 'pass text, or numbers by name: {"temperature": 0.5}'
        require(isinstance(what, Mapping), f"cannot log {what!r}", fix)
        for name, value in what.items():
            known = isinstance(name, str) and _is_real(value)
            require(known, f"cannot log {name!r}: {value!r}", fix)
        metrics = {f"user/{name}": float(value) for name, value in what.items()}
        self.logger.log(Record(kind="user", metrics=metrics, **dataclasses.asdict(moment)))

    def outer_iteration(self, pending: Pending) -> Measurements | None:
        """Waits for an outer iteration, logs it, then calls callbacks; returns its evaluation.

        All of its rows are there before a callback may fail: the state may be saved all the same.

        Raises `NonFiniteError` or `EnvFailedError` if it met NaN or infinity, see `finite_checks`.
        """
        finished = pending.wait()
        moment = self.run.reported = self._moment_of(finished)  # until it is saved as well
        evaluation, training = finished.evaluation, None
        if finished.metrics is not None:
            training = self._training(finished, finished.metrics, moment)
        try:
            if evaluation is not None:
                self._evaluation(pending, evaluation, moment)
        finally:  # also if `eval_fn` fails: what callbacks count is saved with the state
            if training is not None:
                self.call("on_iteration_end", finished.iteration, training)
        if evaluation:
            self.call("on_evaluation", finished.iteration, _at(moment, evaluation))
        return evaluation

    def crash(self, error: BaseException) -> None:
        """Logs what ended the run, with its traceback unless it is an `RlkitError`."""
        is_bug = not isinstance(error, RlkitError)  # their messages are complete
        text = f"{type(error).__name__}: {error}"
        text = "".join(traceback.format_exception(error)) if is_bug else text
        try:
            self._log_text("error", text, self.run.now())
            self.logger.flush()
        except Exception as failure:  # a failed log must not hide `error`
            error.add_note(f"and the crash could not be logged: {failure}")

    def wind_down(self, ends: Sequence[Callable[[], None]], error: BaseException | None) -> None:
        """Calls all `ends` of a run, even if one fails.

        Raises the first error, unless `error` already ended the run and takes precedence.
        """
        first = error
        for end in ends:
            try:
                end()
            except Exception as failure:
                if first is None:
                    first = failure
                    self.crash(failure)
                else:
                    text = f"and at the end of the run: {type(failure).__name__}: {failure}"
                    first.add_note(text)
        if error is None and first is not None:
            raise first

    def _training(
        self, finished: Finished, metrics: HostMetrics, moment: Moment
    ) -> dict[str, float]:
        """Logs the training of an outer iteration; returns what callbacks are told of it."""
        run, num_seeds, iteration = self.run, self.run.config.num_seeds, finished.iteration
        is_logged = iteration % run.config.log_every == 0 or iteration == run.plan.num_checkpoints
        speed = run.clock.lap(run.plan.steps_per_checkpoint, is_logged=is_logged) * num_seeds
        records = train_records(metrics, moment, num_seeds=num_seeds, steps_per_second=speed)
        phase = {} if run.phases.curriculum is None else {"train/phase": run.phases.index + 1.0}
        records[-1].metrics.update(phase)
        run.metrics = run.metrics | records[-1].metrics
        rows = [records]
        if finished.each:
            rows = [
                train_records(each, when, num_seeds=num_seeds, steps_per_second=speed)
                for each, when in self._iterations(finished.each, moment)
            ]
            for row in rows:
                row[-1].metrics.update(phase)
        training = (_unprefixed(row[-1]) for row in rows)
        run.history.add(training, _at(moment, finished.evaluation))
        if is_logged:
            for row in rows:
                self._log_records(row)
        updates = moment.updates - run.progress.updates
        run.progress = dataclasses.replace(run.progress, updates=moment.updates)
        self._require_finite(iteration, metrics, updates, moment)
        run.count_resets(metrics)
        self._tell_of_resets(moment)
        if isinstance(run.parts.module, RLModule):
            run.health, warnings = examine(run.health, metrics, run.setting)
            for text in warnings:
                self._log_text("warning", text, moment)
        return _unprefixed(records[-1])

    def _require_finite(
        self, iteration: int, metrics: HostMetrics, updates: int, moment: Moment
    ) -> None:
        """Warns of skipped updates, or raises; see `finite_checks`."""
        run, saved = self.run, self.run.last_saved
        check_metrics(f"outer iteration {iteration}", metrics, saved)
        if SKIPPED not in metrics:
            return
        skipped = np.atleast_1d(metrics[SKIPPED])
        before = np.array(run.progress.skipped_in_a_row or 0.0)
        in_a_row = skipped_in_a_row(before, skipped, updates)
        run.progress = dataclasses.replace(run.progress, skipped_in_a_row=tuple(in_a_row.tolist()))
        warning = skipped_in(iteration, skipped, updates)
        if warning is not None:
            self._log_text("warning", warning, moment)
            most = run.progress.skipped_updates + int(skipped.max())
            run.progress = dataclasses.replace(run.progress, skipped_updates=most)
        check_skipped(in_a_row, run.config.max_skipped_updates, saved)

    def _tell_of_resets(self, moment: Moment) -> None:
        """Warns once in a run, or in a phase of a curriculum."""
        run, count = self.run, self.run.untold_resets
        run.untold_resets = 0
        if count > 0 and TRAINING not in run.health.told:
            run.health = run.health.telling(TRAINING)
            self._log_text("warning", resets_in_training(_env_of(run), count), moment)

    def _iterations(
        self, each: HostMetrics, moment: Moment
    ) -> Iterator[tuple[HostMetrics, Moment]]:
        """The metrics of single iterations, with when they ended; `moment` is that of the last.

        Updates are spread evenly, to within one where iterations take different numbers of them.
        All have the wall time of the outer iteration.
        """
        count, size = self.run.plan.epochs_per_checkpoint, self.run.plan.env_steps_per_iteration
        before = self.run.progress.updates
        for index in range(count):
            when = dataclasses.replace(
                moment,
                env_steps=moment.env_steps - (count - 1 - index) * size,
                updates=before + (index + 1) * (moment.updates - before) // count,
            )
            yield {name: x[..., index] for name, x in each.items()}, when

    def _evaluation(self, pending: Pending, evaluation: Measurements, moment: Moment) -> None:
        num_seeds = self.run.config.num_seeds
        is_trained = pending.iteration > 0
        if isinstance(self.run.parts.module, RLModule):  # others may measure anything
            when = f"after outer iteration {pending.iteration}" if is_trained else "before training"
            check_evaluation(when, evaluation, self.run.last_saved)
        progress = _with_returns(self.run.progress, evaluation, num_seeds)
        self.run.progress = _with_peaks(progress) if is_trained else progress
        records = eval_records(evaluation, moment, num_seeds=num_seeds)
        broken = int(np.sum(evaluation.get("non_finite_episodes", 0)))
        if broken > 0 and EVALUATION not in self.run.health.told:
            self.run.health = self.run.health.telling(EVALUATION)
            self._log_text("warning", resets_in_evaluation(_env_of(self.run), broken), moment)
        self._examine(evaluation, moment)
        try:
            extra = None if self.eval_fn is None else self._seen_by(self.eval_fn, pending.state)
            if isinstance(extra, dict):
                records[-1].metrics.update(_added(extra, records[-1].metrics))
        finally:  # also if the user's function fails: the state may be saved all the same
            self._log_records([record for record in records if record.metrics])
            self.run.metrics |= records[-1].metrics
        if isinstance(extra, str):
            self._log_text("text", extra, moment)

    def _examine(self, evaluation: Measurements, moment: Moment) -> None:
        """Warns if the most likely actions are far worse than sampled ones."""
        run, num_seeds = self.run, self.run.config.num_seeds
        greedy = episode_returns(evaluation, num_seeds)
        sampled = episode_returns(evaluation, num_seeds, name="sampled_return")
        if greedy is None or sampled is None or not isinstance(run.parts.module, RLModule):
            return
        run.health, warnings = examine_evaluation(run.health, greedy, sampled, run.setting)
        for text in warnings:
            self._log_text("warning", text, moment)

    def _seen_by(self, eval_fn: EvalFn, state: PyTree) -> str | dict[str, float] | None:
        """What the user's function says of a state, which it gets whole: in process 0 alone."""
        whole = self.run.gathered(state)
        found = eval_fn(whole) if self.run.processes.is_main else None
        require(
            found is None or isinstance(found, str | dict),
            f"eval_fn returned {found!r}",
            'return text, numbers by name such as {"distance": 0.5}, or None',
        )
        return found

    def _moment_of(self, finished: Finished) -> Moment:
        """When the outer iteration ended, by the module's own exact counters if it has any."""
        env_steps, updates = finished.counts or (
            self.run.steps_at(finished.iteration),
            finished.iteration * self.run.plan.epochs_per_checkpoint,
        )
        return dataclasses.replace(self.run.now(), env_steps=env_steps, updates=updates)

    def _log_records(self, records: list[Record]) -> None:
        for record in records:
            self.logger.log(record)

    def _log_text(self, kind: Kind, text: str, moment: Moment) -> None:
        self.logger.log(Record(kind=kind, text=text, **dataclasses.asdict(moment)))


def announcements(run: Run, checkpointer: Checkpointer | None) -> list[str]:
    """What is about to be trained, and what checkpoints leave out."""
    iteration, env_steps = run.progress.outer_iteration, run.progress.env_steps
    texts = [announcement(run.plan, iteration, env_steps, run.config.num_seeds)]
    asked, planned = run.config.num_checkpoints, run.plan.num_checkpoints
    if run.config.total_steps is not None and asked is not None and planned < asked:
        size = run.plan.env_steps_per_iteration
        texts.append(
            f"num_checkpoints={asked} outer iterations were asked for, but total_steps="
            f"{run.config.total_steps:,} in steps of {size:,} cannot be cut into as many: there are"
            f" {planned}"
        )
    if run.plan.phases and iteration > 0 and not run.is_complete:
        texts.append(f"continuing in {run.phases.title}")
    if not run.is_complete and checkpointer is not None and run.leaves_out_replay(checkpointer):
        is_asked = checkpointer.save_replay is False
        texts.append(replay_left_out(run.replay_bytes, is_asked=is_asked))
    return texts


def memory_announcements(run: Run) -> list[str]:
    """How much memory the replay buffer takes, if there is one."""
    module = run.parts.module
    if not isinstance(module, RLModule) or module.algorithm.replay_buffer is None:
        return []
    capacity, num_seeds = module.algorithm.replay_buffer.capacity, run.config.num_seeds
    return [replay_memory(capacity, num_seeds, run.replay_bytes, run.memory)]


def phase_announcement(run: Run) -> str:
    """Which phase begins, and how large it is after rounding."""
    plan, module = run.plan.phases[run.phases.index], run.parts.module
    assert isinstance(module, RLModule)
    steps = plan.num_checkpoints * plan.steps_per_checkpoint
    steps += run.plan.prefill_steps if run.phases.index == 0 else 0
    where = _env_of(run)
    count = plan.num_checkpoints
    outer = "1 outer iteration" if count == 1 else f"{count} outer iterations"
    early = run.phases.advance_at
    until = "" if early is None else f", or up to a return of {early:g}"
    return (
        f"{run.phases.title} begins: {steps:,} environment steps in {module.env.num_envs} x {where}"
        f" ({outer} of {plan.epochs_per_checkpoint} x {plan.env_steps_per_iteration:,} steps)"
        f"{until}"
    )


def _env_of(run: Run) -> str:
    """What the environment is called."""
    module = run.parts.module
    return env_name(module.env) if isinstance(module, RLModule) else "the module's own"


def device_announcements(run: Run) -> list[str]:
    """What each of several devices trains, if there are several."""
    devices, module, num_seeds = run.devices, run.parts.module, run.config.num_seeds
    if devices is None or len(devices.all) == 1:
        return []
    shares = []
    if devices.of_seeds > 1:
        shares.append(f"{num_seeds // devices.of_seeds} of the {num_seeds} seeds")
    if devices.per_seed > 1:
        assert isinstance(module, RLModule)
        num_envs = module.env.num_envs
        shares.append(f"{num_envs // devices.per_seed} of the {num_envs} environments")
    kind, count = devices.all[0].device_kind, len(devices.all)
    where = "" if devices.num_processes == 1 else f" of {devices.num_processes} processes"
    told = f"{count} devices{where} ({kind}): each trains {', in '.join(shares)}"
    return [told, *_sequences_announcement(module, devices.per_seed)]


def _sequences_announcement(module: Module, num_devices: int) -> list[str]:
    """That batches hold more sequences than on one device, if they do."""
    if not isinstance(module, RLModule) or not remembers(module.agent):
        return []
    buffer = module.algorithm.replay_buffer
    if num_devices == 1 or not isinstance(buffer, ReplaySettings):
        return []
    alone = buffer.num_sequences
    together = num_devices * buffer.divided(num_devices, DATA).num_sequences
    if together == alone:
        return []
    size = buffer.sequence_length * num_devices
    fewer, more = alone // num_devices * size, together // num_devices * size
    choices = f"{fewer} or {more}" if fewer else f"{more}"
    return [
        f"each gradient step learns from {together} sequences, where one device learns from"
        f" {alone}: {alone} cannot be divided among {num_devices} devices; batch_size={choices} can"
    ]


def settings_announcements(run: Run) -> list[str]:
    """Which settings change nothing."""
    module = run.parts.module
    if not isinstance(module, RLModule):
        return []
    algorithm, agent = module.algorithm, module.agent
    told = []
    if algorithm.normalize_observations and not has_floats(module.env.observation_space):
        told.append(
            "normalize_observations=True changes nothing here: observations are integers, which"
            " are not standardised but encoded by the networks"
        )
    _, hyperparameters = algorithm.spec or ("", None)
    _, network = agent.spec or ("", None)
    acts_in_box = any(isinstance(leaf, Box) for leaf in leaves(module.env.action_space))
    return [*told, *unused_settings(hyperparameters, network, acts_in_box=acts_in_box)]


def encoding_announcements(run: Run) -> list[str]:
    """Which integers the agent reads from tables, and images that may be meant otherwise."""
    module = run.parts.module
    if not isinstance(module, RLModule) or "torso" in getattr(module.agent, "custom", ()):
        return []
    _, config = module.agent.spec or ("", None)
    if not isinstance(config, NetworkConfig):
        return []
    space = module.env.observation_space
    note = encoding_note(space, config)
    return [*([] if note is None else [note]), *image_notes(space, config)]


def _added(extra: Mapping[str, float], own: Mapping[str, float]) -> dict[str, float]:
    """The numbers that `eval_fn` returned, as metrics beside the evaluation's `own`."""
    for name, value in extra.items():
        known = isinstance(name, str) and (isinstance(value, bool) or _is_real(value))
        fix = "return numbers by name, such as the .mean() of an array"
        require(known, f"eval_fn returned {name!r}: {value!r}, which is not a number", fix)
        taken = f"eval_fn returned {name!r}, which evaluations measure themselves"
        require(f"eval/{name}" not in own, taken, "choose another name")
    return {f"eval/{name}": float(value) for name, value in extra.items()}


def _is_real(value: object) -> bool:
    """Whether it is a number, or an array that is one, of whatever precision."""
    is_array = isinstance(value, np.ndarray | np.generic | jax.Array)
    if is_array and (np.ndim(value) > 0 or np.iscomplexobj(value)):
        return False
    return is_array or (isinstance(value, int | float) and not isinstance(value, bool))


def _at(moment: Moment, found: Measurements | None) -> Measurements:
    """What was found, with its own environment steps and updates; {} if nothing was.

    Names that a module uses itself keep its values.
    """
    when = {"env_steps": moment.env_steps, "updates": moment.updates}
    return when | found if found else {}


def _unprefixed(record: Record) -> dict[str, float]:
    """The metrics of a training record without `train/`, with its steps; see `_at`."""
    when = {"env_steps": record.env_steps, "updates": record.updates}
    return when | {name.removeprefix("train/"): x for name, x in record.metrics.items()}


def _with_returns(progress: RunProgress, evaluation: Measurements, num_seeds: int) -> RunProgress:
    returns = seed_returns(evaluation, num_seeds)
    if returns is None:
        return dataclasses.replace(progress, seed_returns=None, return_std=None)
    averaged = returns if num_seeds > 1 else evaluation["return"]
    return dataclasses.replace(
        progress, seed_returns=tuple(returns.tolist()), return_std=standard_deviation(averaged)
    )


def _with_peaks(progress: RunProgress) -> RunProgress:
    """With the peaks of seeds, if their last evaluation is higher."""
    returns = progress.seed_returns
    if returns is None:
        return progress
    peaks = np.fmax(returns, progress.seed_peaks or returns)  # ignores NaN where it can
    return dataclasses.replace(progress, seed_peaks=tuple(peaks.tolist()))


def summary(run: Run, stop_reason: str | None) -> PlainData:
    """The contents of `summary.json`."""
    progress, num_seeds = run.progress, run.config.num_seeds
    returns = None if progress.seed_returns is None else list(progress.seed_returns)
    peaks = progress.seed_peaks
    speed = run.clock.steps_per_second * num_seeds
    learner = run.state.learner if isinstance(run.state, TrainState) else run.state
    return {
        "env_steps": progress.env_steps,
        "updates": progress.updates,
        "skipped_updates": progress.skipped_updates,
        "non_finite_steps": progress.non_finite_steps,
        "outer_iterations": progress.outer_iteration,
        "num_seeds": num_seeds,
        "devices": 1 if run.devices is None else len(run.devices.all),
        "processes": run.processes.count,
        "wall_seconds": round(run.wall_seconds, 3),
        "part_seconds": round(run.clock.call_seconds, 3),
        "compile_seconds": round(run.compiler.seconds, 3),
        "env_steps_per_second": round(speed, 1),
        "eval_return_mean": None if returns is None else float(np.mean(returns)),
        "eval_return_std": progress.return_std,
        "eval_return_per_seed": returns,
        "eval_return_peak_per_seed": None if peaks is None else list(peaks),
        "stop_reason": stop_reason,
        "parent": None if progress.parent is None else dataclasses.asdict(progress.parent),
        "versions": versions(),
        "fingerprint": fingerprint(),
        "params_sha256": tree_digest(learner),
    }
