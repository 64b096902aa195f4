"""`OuterLoop`: the outer iterations of a run, each reported and saved in turn."""

import collections
import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from rlkit.errors import EnvFailedError, NonFiniteError
from rlkit.training.evaluations import Evaluations
from rlkit.training.files.checkpointer import Checkpointer
from rlkit.training.finite_checks import resets_in_all, skipped_in_all
from rlkit.training.interrupts import deferred_interrupts
from rlkit.training.logs.metrics import score
from rlkit.training.reporting import Pending, Reporter, phase_announcement
from rlkit.training.run import Run
from rlkit.types import PyTree

LONG_ITERATION = 1.0  # seconds; the host needs milliseconds between two outer iterations


class Save(Protocol):
    """Saves the state after `iteration` outer iterations, which may be an earlier one."""

    def __call__(
        self,
        checkpointer: Checkpointer,
        iteration: int,
        state: PyTree,
        *,
        rank: float | None = None,
        seed_scores: Sequence[float] | None = None,
    ) -> None:
        """`rank` is what the best checkpoint is chosen by, `seed_scores` [S] that of each seed."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Scores:
    """The scores of the outer iteration that was reported last.

    None: it was not evaluated, or is not to be ranked.
    """

    iteration: int | None = None
    env_steps: int | None = None  # by then; a state that was cut short has trained on since
    rank: float | None = None
    of_seeds: Sequence[float] | None = None


class OuterLoop:
    """Outer iterations from where a run is to the end of its plan, or until it is to stop.

    The device works ahead: up to `max_in_progress` of them were started and wait for the host,
    which reports them in order (records, checks for NaN, callbacks) and saves those that are due.
    `reporter` gives the run's reporter, which opens its files when it is first asked for.
    """

    def __init__(self, run: Run, reporter: Callable[[], Reporter], save: Save):
        self._run, self._reporter, self._save = run, reporter, save
        self._pending: collections.deque[Pending] = collections.deque()
        self._half_reported: int | None = None  # the outer iteration that is being reported
        self._evaluations: dict[int, Evaluations] = {}  # by their environments
        self._scores = _Scores()  # of the outer iteration that was reported last
        self.stop_reason: str | None = None
        """Why the last run ended early, or is to end; see `request_stop`."""
        self._is_requested = False  # by someone whom no run has obeyed yet

    @property
    def max_in_progress(self) -> int:
        """Outer iterations that may be in progress at once, all of which a stop waits for.

        On the host an outer iteration is over when it returns, and the next one may fail: queueing
        gains nothing. Nor does it where one takes more than a second, and a stop would wait for it.
        Several processes must start and save the same ones, whatever their clocks say.
        """
        run = self._run
        if run.processes.count > 1:
            return 1
        is_long = (run.clock.lap_seconds or 0.0) > LONG_ITERATION
        waits = is_long or run.phases.advance_at is not None  # for an evaluation
        return run.config.max_queued if run.parts.is_compiled and not waits else 1

    @property
    def evaluations(self) -> Evaluations:
        """The evaluations in the environments of the current phase, kept from phase to phase."""
        parts = self._run.parts
        key = id(parts.eval_env)
        if key not in self._evaluations:
            self._evaluations[key] = Evaluations(parts, self._run.compiler.for_evaluation)
        return self._evaluations[key]

    def close(self) -> None:
        """Frees the environments made for evaluations."""
        for evaluations in self._evaluations.values():
            evaluations.close()

    def request_stop(self, reason: str) -> None:
        """Stops the run after the outer iteration in progress; between two, the next one."""
        self.stop_reason, self._is_requested = reason, True

    def begin(self) -> None:
        """Forgets why the last run ended, but not what was requested since."""
        self._scores = _Scores()
        if not self._is_requested:
            self.stop_reason = None

    def end(self) -> None:
        """Whoever requested a stop was obeyed."""
        self._is_requested = False

    def run(self, checkpointer: Checkpointer | None) -> None:
        """Trains; raises what the training, a report or a callback raises."""
        run, first, pending = self._run, self._iteration, self._pending
        queue = partial(self._reporter().queue, checkpointer=checkpointer)
        report = partial(self._report_next, checkpointer)
        if first == 0 and not run.has_started:
            self._log_phase()
            pending.append(queue(None, self.evaluations.planned))
            report()
        run.clock.start_laps()
        while not run.is_complete and not self._must_stop():
            if run.is_phase_over and pending:
                report()  # first, since it may stop the run
                continue
            self.enter_next_phase()
            with deferred_interrupts():
                results = run.outer_iteration()
                self._half_reported = self._iteration
                pending.append(queue(results, self.evaluations.planned))
                self._half_reported = None
            while len(pending) >= self.max_in_progress:
                report()
        while pending:
            report()
        if checkpointer is not None and self._iteration > max(first, run.saved_iteration):
            self._save_current(checkpointer)
        self._tell_of_the_end()

    def enter_next_phase(self) -> None:
        """Goes on to the next phase of the curriculum, if the one before is over."""
        if self._run.is_phase_over:
            last, eval_env = self.evaluations, self._run.parts.eval_env
            self._run.enter_next_phase()
            if self.evaluations is not last:
                last.close()
                self._run.phases.close_env(eval_env)
            self._log_phase()

    def save_what_is_sound(self, checkpointer: Checkpointer | None, error: BaseException) -> None:
        """Reports and saves what was trained before an error or interruption.

        Not what led to NaN or infinity, nor an outer iteration that failed to be reported if it is
        the only one to lose: a resumed run trains and reports it again. A failure here is noted in
        `error`, which takes precedence.
        """
        run, half = self._run, self._half_reported
        is_broken = isinstance(error, NonFiniteError) or (
            isinstance(error, EnvFailedError) and run.parts.is_compiled
        )
        self._half_reported = None
        try:
            is_lost = is_broken or (half is not None and half - 1 <= run.saved_iteration)
            while self._pending and not is_lost and run.processes.count == 1:
                self._report_next(checkpointer)
            has_more = run.state is not None and self._iteration > run.saved_iteration
            saves = not is_lost and not self._pending and has_more and run.has_started
            said = run.processes.agree([saves, self._iteration])
            if checkpointer is not None and saves and all(x == said[0] for x in said):
                self._save_current(checkpointer)
        except BaseException as failure:
            error.add_note(f"and saving on the way out failed: {failure}")
        finally:
            self._pending.clear()

    @property
    def _iteration(self) -> int:
        return self._run.progress.outer_iteration

    def _must_stop(self) -> bool:
        """Whether the run ends here; several processes end together, for the first one's reason."""
        reason = next(filter(None, self._run.processes.agree(self.stop_reason)), None)
        if reason is not None:  # else one that came meanwhile is told the next time
            self.stop_reason = reason
        return reason is not None

    def _report_next(self, checkpointer: Checkpointer | None) -> None:
        """Waits for the oldest pending outer iteration, then logs and saves it, uninterrupted."""
        with deferred_interrupts():
            pending = self._pending.popleft()
            self._half_reported = pending.iteration
            try:
                self._report_and_save(checkpointer, pending)
            finally:
                self._run.reported = None
            self._half_reported = None

    def _report_and_save(self, checkpointer: Checkpointer | None, pending: Pending) -> None:
        run = self._run
        if checkpointer is not None and pending.iteration > 0 and run.saved_iteration == 0:
            checkpointer.wait()  # so that a run with rows of training has a checkpoint
        evaluation = self._reporter().outer_iteration(pending)
        run.has_started = True
        is_new = pending.iteration > run.saved_iteration
        # Which phase is over is decided by one process: others may have evaluated to the last bit.
        found = score(evaluation or {}, run.config.num_seeds)
        found = run.processes.agree(found)[0]
        self._advance_if_reached(pending.iteration, found)
        # The untrained networks are never the best, however lucky they were.
        is_ranked = found is not None and pending.iteration > 0 and run.phases.ranks_checkpoints
        self._scores = _Scores(
            iteration=pending.iteration,
            env_steps=run.steps_at(pending.iteration),
            rank=found if is_ranked else None,
            of_seeds=run.progress.seed_returns if is_ranked else None,
        )
        if checkpointer is not None and pending.is_saved and is_new:
            self._save_scored(checkpointer, pending.iteration, pending.state)

    def _save_current(self, checkpointer: Checkpointer) -> None:
        self._save_scored(checkpointer, self._iteration, self._run.state)

    def _save_scored(self, checkpointer: Checkpointer, iteration: int, state: PyTree) -> None:
        """Saves the state after `iteration` outer iterations, with its scores if it has some."""
        scores = self._scores
        if (scores.iteration, scores.env_steps) != (iteration, self._run.steps_at(iteration)):
            scores = _Scores()
        self._save(checkpointer, iteration, state, rank=scores.rank, seed_scores=scores.of_seeds)

    def _advance_if_reached(self, iteration: int, value: float | None) -> None:
        """Ends the phase if its mean evaluation return is high enough; checkpoints record it."""
        run = self._run
        plan = run.phases.after_evaluation(run.plan, iteration, value)
        if plan != run.plan:
            run.plan = plan
            reached = f"{value:.4g} reached {run.phases.advance_at:.4g}"
            self._reporter().log(f"{run.phases.title} ends early: the return {reached}")

    def _log_phase(self) -> None:
        if self._run.phases.title is not None:
            self._reporter().log(phase_announcement(self._run))

    def _tell_of_the_end(self) -> None:
        """Warns of what was skipped or reset in all, and says why the run stopped early."""
        run, reporter = self._run, self._reporter()
        skipped, resets = run.progress.skipped_updates, run.progress.non_finite_steps
        steps = run.progress.env_steps
        if skipped > 0:
            reporter.warn(skipped_in_all(skipped, run.progress.updates))
        if resets > 0:
            reporter.warn(resets_in_all(resets, steps * run.config.num_seeds))
        if self.stop_reason is not None and not run.is_complete:
            reporter.log(f"stopped after {steps:,} environment steps: {self.stop_reason}")
