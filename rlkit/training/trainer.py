"""`Trainer`: the loop of a run on the host. The class prints it in its docstring."""

import collections
import dataclasses
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import jax
import numpy as np

from rlkit.agents.base import Agent
from rlkit.algorithms.base import Algorithm
from rlkit.errors import CheckpointError, ConfigError, RlkitError, RunDirectoryError, require
from rlkit.training import reporting
from rlkit.training.callbacks import Callback, ProgressBar
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.compile.parallel_seeds import num_groups
from rlkit.training.config import CheckpointerConfig, LoggerConfig, Plan, TrainerConfig
from rlkit.training.core.module import Module, RLModule
from rlkit.training.files.checkpoint_items import (
    lacks_replay,
    leaves_out_replay,
    to_items,
    without_replay,
)
from rlkit.training.files.checkpoint_leaves import tree_digest
from rlkit.training.files.checkpointer import Checkpointer, Which
from rlkit.training.files.replay_size import check_replay, device_memory
from rlkit.training.files.run_description import describe
from rlkit.training.files.run_files import Path, RunFiles
from rlkit.training.fingerprint import fingerprint, versions
from rlkit.training.logs.loggers import Logger
from rlkit.training.logs.metrics import Moment, check_finite, exact_counts, score
from rlkit.training.policy import play_episodes
from rlkit.training.programs.program import Evaluation, Program, make_program
from rlkit.training.reporting import Finished, Pending, Reporter
from rlkit.training.restoring import RestoredRun, caveats, plan_to_go_on, read_run, require_same_run
from rlkit.training.run_clock import RunClock
from rlkit.training.run_config import hparams_to_dict
from rlkit.training.run_parts import EnvSource, RunParts, parts_from_env, parts_from_module
from rlkit.training.run_progress import CheckpointMetadata, RunProgress
from rlkit.types import Key, PyTree, TrainState

EvalFn = Callable[[Any], str | dict[str, float] | None]


class Trainer:
    """Trains an agent with an algorithm, and evaluates, saves and logs after every outer iteration:

        state = init(key)
        report(evaluate(state)), save(state)
        while outer_iteration < plan.num_checkpoints and stop_reason is None:
            state, metrics = program.outer(state)  # epochs_per_checkpoint x (collect, then update)
            evaluation = evaluate(state)           # every eval_every outer iterations
            report(metrics, evaluation)            # records, callbacks, NaN checks
            save(state)                            # every checkpoint_every outer iterations

    On an accelerator `max_queued` outer iterations are computed before the first is reported.

    Args: env, eval_env, agent, algorithm: the parts; `eval_env` may have any number of
        environments, None: it is `env`, or
            on the host one that the Trainer makes and closes. Instead of an adapter, `env` and
            `eval_env` may each be a `gymnasium.Env` class, which gives 4 environments, or one such
            environment. Adapters that you pass in stay open.
        config: length of training, evaluation, checkpoints, logs.
        logger, checkpointer: an instance (yours to close), a config, or a path; None: as `config`
        says.
        callbacks: called between outer iterations, see `Callback`.
        eval_fn: `eval_fn(state)` runs on the host after each evaluation; text that it returns is
        logged, a dict of numbers is added to
            the evaluation record.

    Raises `RlkitError` (with the cure) before anything compiles if the parts or settings do not fit
    together.

    Seeds: with `config.num_seeds` > 1, states and results have a leading axis S. Results are plain
    NumPy.
    """

    def __init__(
        self,
        env: EnvSource,
        eval_env: EnvSource | None,
        agent: Agent,
        algorithm: Algorithm,
        config: TrainerConfig,
        *,
        logger: Logger | LoggerConfig | Path | None = None,
        checkpointer: Checkpointer | CheckpointerConfig | Path | None = None,
        callbacks: Sequence[Callback] = (),
        eval_fn: EvalFn | None = None,
        _parts: RunParts | None = None,  # instead of the first four, see `from_module`
    ):
        self._parts = _parts or parts_from_env(env, eval_env, agent, algorithm, config)
        _require_threads_pinned(config)
        self.module, self.plan, self.config = self._parts.module, self._parts.plan, config
        self._memory = device_memory()
        self._replay_bytes = check_replay(self.module, config.num_seeds, self._memory)
        groups = num_groups(config.num_seeds, replay_bytes=self._replay_bytes, memory=self._memory)
        self.compiler = Compiler(config.num_seeds, groups)
        self.program = self._make_program()
        self._planned_evaluation = Evaluation(self.module, self.compiler)
        self._evaluations: dict[int, Evaluation] = {}  # of `evaluate`, by number of episodes
        self._open_files = partial(RunFiles, logger=logger, checkpointer=checkpointer)
        self._files: RunFiles | None = None
        self._callbacks = [*callbacks, *([ProgressBar()] if config.debug else [])]
        self._eval_fn = eval_fn
        self._clock = RunClock(self.compiler)
        self._keys: Key | None = None  # of all seeds; None: not given
        self.state: PyTree = None
        self.stop_reason: str | None = None
        self._begin(RunProgress.start(self.plan))

    @classmethod
    def from_module(
        cls,
        module: Module,
        config: TrainerConfig,
        *,
        env_steps_per_iteration: int | None = None,
        logger: Logger | LoggerConfig | Path | None = None,
        checkpointer: Checkpointer | CheckpointerConfig | Path | None = None,
        callbacks: Sequence[Callback] = (),
        eval_fn: EvalFn | None = None,
    ) -> Self:
        """A trainer of any `Module`: it gets the same loop, logs and checkpoints.

        `env_steps_per_iteration` is what one training step counts for in `total_steps`; None: 1,
        of an `RLModule` its environment steps. Settings of the replay buffer, warm-up and number of
        evaluation episodes are the module's own business here.
        """
        inside: Any = None  # the module has them
        return cls(
            *(inside, inside, inside, inside),
            config,
            logger=logger,
            checkpointer=checkpointer,
            callbacks=callbacks,
            eval_fn=eval_fn,
            _parts=parts_from_module(module, config, env_steps_per_iteration),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Training

    def init(self, key: Key | int | None) -> PyTree:
        """The state before training, fresh or restored as `config.restore_checkpoint` says; opens
        the run directory.

        `key` is a typed key, a batch of S of them, or a seed; from seed s, the seeds of the run are
        s, s + 1, …, so that each equals the single run of that seed. None: whatever the run was
        started from, for one that is restored. The next training step takes the buffers of the
        state over: copy what you want to keep.
        """
        opened_here = self._files is None
        try:
            self._take_key(key)
            files = self._open()
            require(
                files.run_directory is None or files.description == self.description(),
                "the run directory was opened for another seed, or for none",
                "pass the seed of its config.yaml, or use another run_dir",
                RunDirectoryError,
            )
            self._init(files)
        except RlkitError:
            if opened_here:  # so that the directory is free for another try
                self.close()
            raise
        return self.state

    def open(self, *, seed: int | None = None) -> None:
        """Opens run directory, logs and checkpoints now rather than in `init`, so that errors in
        them are raised at once.
        """
        self._take_key(seed)
        self._open()

    def run(self, key: Key | int | None = None) -> list[dict[str, Any]]:
        """Trains to the end of the plan; returns the evaluation of each outer iteration of this
        call, {} where there was none.

        With a key (or seed): `init(key)` first. Without: goes on from the present state.
        Evaluations hold `return` and `length` [E] ([S, E] with seeds), `sampled_return` and
        `sampled_length`, and `done_info` with averages where the environment gives any. The
        evaluation before the first outer iteration is logged, not listed.
        """
        self.stop_reason = None
        self._clock.start()
        self._init_for_run(key)
        files, before = self._open(), len(self.history)
        try:
            files.logger.start(self.hparams())
            if self.outer_iteration < self.plan.num_checkpoints:
                self._refill()
            self._announce(files.checkpointer)
            self._each("on_run_start")
            self._loop(files.checkpointer)
            files.write_summary(self.summary(), replace=self._clock.env_steps > 0)
        except BaseException as error:
            self._log_crash(error)
            self._wind_down(files, error)
            raise
        self._wind_down(files, None)
        return self.history[before:]

    def train_step(self) -> dict[str, np.ndarray]:
        """One iteration (collect, then update) outside the plan; returns its metrics."""
        self._require_state()
        self._refill()
        results = self._advance(self.program.single)
        self._progress = self._progress.after_steps(self.plan.env_steps_per_iteration)
        return self._fetch(results)

    def train_epoch(self) -> dict[str, np.ndarray]:
        """One outer iteration without evaluation, checkpoint or logs; returns its metrics."""
        self._require_state()
        self._refill()
        return self._fetch(self._outer_iteration())

    def evaluate(self, episodes: int | None = None) -> dict[str, Any]:
        """The evaluation of the present policy over `episodes`, None: as many as the
        config says.
        """
        self._require_state()
        return jax.device_get(self._evaluation_of(episodes)(self.state))

    def rollout(self, num_episodes: int, key: Key, *, deterministic: bool = True) -> dict[str, Any]:
        """Whole episodes of the present policy: obs, action, reward, terminated, truncated [E, L,
        ...] and length [E].

        L is the longest episode's length; shorter ones are padded with zeros. With several seeds, a
        leading axis S.
        """
        self._require_state()
        if not isinstance(self.module, RLModule):
            raise ConfigError(
                "rollout plays episodes of an environment, but this module has none; call its own"
                " methods"
            )
        return play_episodes(
            self._parts.evaluating().evaluator(),
            self.state.learner.policy,
            num_episodes,
            key,
            self.compiler,
            deterministic=deterministic,
        )

    # Saving and restoring

    def save_checkpoint(
        self, path: Path | None = None, *, evaluation_score: float | None = None
    ) -> int:
        """Saves the present state, to the run's own checkpoints or to a directory of its own;
        returns the step it is filed under.
        """
        self._require_state()
        iteration, own = self.outer_iteration, self._open().checkpointer
        if path is not None:
            settings = self.config.checkpointer_config if own is None else own
            config = CheckpointerConfig(directory=str(path), save_replay=settings.save_replay)
            with Checkpointer(config) as checkpointer:
                self._save(checkpointer, iteration, self.state, evaluation_score)
            return iteration
        if own is None:
            raise CheckpointError(
                "this run has no checkpoints; set run_dir, or call save_checkpoint(path)"
            )
        require(
            iteration not in own.all_steps(),
            f"outer iteration {iteration} is saved already, and train_step() does not advance it",
            "use train_epoch(), or save_checkpoint(path) with a directory of its own",
            CheckpointError,
        )
        self._save(own, iteration, self.state, evaluation_score)
        own.wait()
        return iteration

    def load_checkpoint(self, path: Path, which: Which = "latest") -> PyTree:
        """Takes over a checkpoint of a checkpoint directory (or of a run directory), whoever wrote
        it; returns its state.

        `run()` then goes on from there, into this trainer's own logs and checkpoints, which record
        where they come from. Of a checkpoint without the replay memory, the state has none (`()`)
        until training goes on, which first fills one.
        """
        inner = os.path.join(path, "checkpoints")
        directory = inner if os.path.isdir(inner) else os.fspath(path)
        with Checkpointer(CheckpointerConfig(directory=directory), read_only=True) as checkpointer:
            self._restore(checkpointer, which, same_run=False)
        return self.state

    # What one may ask

    @property
    def outer_iteration(self) -> int:
        """Outer iterations so far."""
        return self._progress.outer_iteration

    @property
    def env_steps(self) -> int:
        """Environment steps of one seed so far, prefill included; exact."""
        return self._progress.env_steps

    @property
    def seed(self) -> int | None:
        """The seed that the run was started from; None: a key, or nothing yet."""
        return self._progress.seed

    def steps_at(self, iteration: int) -> int:
        """Environment steps of one seed after that many outer iterations."""
        return self._progress.steps_at(iteration, self.plan)

    @property
    def wall_seconds(self) -> float:
        """Seconds spent in `run`, over all parts of this run."""
        return self._progress.wall_seconds + self._clock.seconds

    def request_stop(self, reason: str) -> None:
        """Ends the run after the outer iteration in progress, saved; safe to call from callbacks,
        threads and signal handlers.
        """
        self.stop_reason = reason

    def hparams(self) -> dict[str, Any]:
        """All settings as one flat dict of plain values, for loggers."""
        return hparams_to_dict(self.description())

    def description(self) -> dict[str, Any]:
        """The run as plain data: a `RunConfig` where every part comes from a registry, else its
        parts as readable data.
        """
        return describe(self.module, self._parts.eval_env, self.config, self.seed)

    def summary(self) -> dict[str, Any]:
        """What `summary.json` holds."""
        progress, num_seeds = self._progress, self.config.num_seeds
        returns = None if progress.seed_returns is None else list(progress.seed_returns)
        speed = self._clock.env_steps * num_seeds / max(self._clock.training_seconds, 1e-9)
        learner = self.state.learner if isinstance(self.state, TrainState) else self.state
        return {
            "env_steps": self.env_steps,
            "outer_iterations": self.outer_iteration,
            "num_seeds": num_seeds,
            "wall_seconds": round(self.wall_seconds, 3),
            "compile_seconds": round(self.compiler.seconds, 3),
            "env_steps_per_second": round(speed, 1),
            "eval_return_mean": None if returns is None else float(np.mean(returns)),
            "eval_return_std": progress.return_std,
            "eval_return_per_seed": returns,
            "stop_reason": self.stop_reason,
            "parent": None if progress.parent is None else dataclasses.asdict(progress.parent),
            "versions": versions(),
            "fingerprint": fingerprint(),
            "params_sha256": tree_digest(learner),
        }

    def close(self) -> None:
        """Finishes writing and closes the files and the environments that this trainer opened;
        those of yours stay open.
        """
        files, self._files = self._files, None
        evaluations = self._planned_evaluation, *self._evaluations.values()
        try:
            if files is not None:
                files.close()
        finally:
            for part in (self.program, self.compiler, *evaluations, *self._parts.own_envs):
                part.close()

    # The loop

    def _loop(self, checkpointer: Checkpointer | None) -> None:
        pending: collections.deque[Pending] = collections.deque()
        # On the host an outer iteration is over when it returns, and the next one may fail: nothing
        # is gained by waiting.
        most_pending = self.config.max_queued if self._parts.is_compiled else 1
        first = self.outer_iteration
        if first == 0 and not self._is_begun:
            is_evaluated = not self.config.skip_initial_evaluation
            self._report(self._queue(None, checkpointer, is_evaluated=is_evaluated), checkpointer)
            self._is_begun = True
        self._clock.start_laps()
        while self.outer_iteration < self.plan.num_checkpoints and self.stop_reason is None:
            results = self._outer_iteration()
            is_evaluated = self._is_due(self.config.eval_every)
            pending.append(self._queue(results, checkpointer, is_evaluated=is_evaluated))
            while len(pending) >= most_pending:
                self._report(pending.popleft(), checkpointer)
        while pending:
            self._report(pending.popleft(), checkpointer)
        if checkpointer is not None and self.outer_iteration > max(first, self._saved_iteration):
            self._save(checkpointer, self.outer_iteration, self.state, None)
        if self.stop_reason is not None:
            self._log(f"stopped after {self.env_steps:,} environment steps: {self.stop_reason}")

    def _outer_iteration(self) -> Any:
        results = self._advance(self.program.outer)
        self._progress = self._progress.after_outer_iteration(self.plan)
        return results

    def _advance(self, step: Callable[[PyTree], tuple[PyTree, Any]]) -> Any:
        """Takes a step of the program, which takes the state over; returns its results.

        After an error or an interruption, the state is the one of the last update that was
        finished, if the program kept it.
        """
        state, self.state = self.state, None
        try:
            self.state, results = step(state)
        except BaseException:
            unfinished = getattr(self.program, "unfinished", None)
            self._is_lost = unfinished is None
            if unfinished is not None:
                self.state, iterations = unfinished
                steps = iterations * self.plan.env_steps_per_iteration
                self._progress = self._progress.after_steps(steps)
            raise
        return results

    def _queue(
        self, results: Any, checkpointer: Checkpointer | None, *, is_evaluated: bool
    ) -> Pending:
        """Starts the evaluation and the copy of the present state, before the next outer iteration
        takes it over. `results` are None before the first.
        """
        is_evaluated = is_evaluated and self.config.enable_evaluation
        is_saved = checkpointer is not None and (
            results is None or self._is_due(self.config.checkpoint_every)
        )
        is_seen = self._eval_fn is not None and is_evaluated
        # What is not saved is not copied either, unless a function of the user's gets to see it.
        is_partial = self._eval_fn is None and self._leaves_out_replay(checkpointer)
        copied = without_replay(self.state) if is_partial else self.state
        return Pending(
            iteration=self.outer_iteration,
            results=results,
            evaluation=self._planned_evaluation(self.state) if is_evaluated else None,
            state=self.program.copy(copied) if is_saved or is_seen else None,
            is_saved=is_saved,
        )

    def _is_due(self, every: int) -> bool:
        iteration = self.outer_iteration
        return iteration % every == 0 or iteration == self.plan.num_checkpoints

    def _report(self, pending: Pending, checkpointer: Checkpointer | None) -> None:
        """Waits for an outer iteration, then logs and saves it."""
        finished = pending.wait()
        moment = self._moment_of(finished)
        if finished.metrics is not None:
            self._report_training(finished.iteration, finished.metrics, moment)
            self.history.append(finished.evaluation or {})
        if finished.evaluation is not None:
            self._report_evaluation(pending, finished.evaluation, moment)
        is_new = pending.iteration > self._saved_iteration
        if checkpointer is not None and pending.is_saved and is_new:
            found = score(finished.evaluation or {}, self.config.num_seeds)
            self._save(checkpointer, pending.iteration, pending.state, found)

    def _report_training(self, iteration: int, metrics: dict[str, Any], moment: Moment) -> None:
        speed = self._clock.lap(self.plan.steps_per_checkpoint) * self.config.num_seeds
        is_last = iteration == self.plan.num_checkpoints
        is_logged = is_last or iteration % self.config.log_every == 0
        means = self._reporter.training(
            metrics, moment, steps_per_second=speed, is_logged=is_logged
        )
        updates = moment.updates - self._progress.updates
        self._progress = dataclasses.replace(self._progress, updates=moment.updates)
        warning = check_finite(iteration, metrics, updates)
        if warning is not None:
            self._log(warning)
        self._each("on_iteration_end", iteration, means)

    def _report_evaluation(
        self, pending: Pending, evaluation: dict[str, Any], moment: Moment
    ) -> None:
        num_seeds = self.config.num_seeds
        self._progress = reporting.with_returns(self._progress, evaluation, num_seeds)
        extra = None if self._eval_fn is None else self._eval_fn(pending.state)
        self._reporter.evaluation(evaluation, moment, extra)
        if evaluation:
            self._each("on_evaluation", pending.iteration, evaluation)

    def _moment_of(self, finished: Finished) -> Moment:
        """When that outer iteration ended, by the module's own exact counters where it has any."""
        env_steps, updates = finished.counts or (
            self.steps_at(finished.iteration),
            finished.iteration * self.plan.epochs_per_checkpoint,
        )
        return dataclasses.replace(self._now(), env_steps=env_steps, updates=updates)

    # Start and end

    def _begin(self, progress: RunProgress) -> None:
        """Forgets whatever was trained before, and goes on from `progress`."""
        self._progress = progress
        self.history: list[dict[str, Any]] = []
        self._is_lost = False  # whether the state went down with an iteration
        self._is_begun = False  # whether the state before the first outer iteration was reported
        self._saved_iteration = -1

    def _take_key(self, key: Key | int | None) -> None:
        self._keys = None if key is None else self.compiler.keys(key)
        self._progress = dataclasses.replace(
            self._progress,
            seed=int(key) if isinstance(key, (int, np.integer)) else None,
            keys=None
            if self._keys is None
            else np.asarray(jax.random.key_data(self._keys)).tolist(),
        )

    def _init(self, files: RunFiles) -> None:
        which, checkpointer = self.config.restore_checkpoint, files.checkpointer
        latest = None if checkpointer is None else checkpointer.latest_step()
        begins_again = which == "auto" and latest is None
        if checkpointer is not None and which is not None and not begins_again:
            self._restore(checkpointer, "latest" if which == "auto" else which, same_run=True)
            return
        if self._keys is None:
            raise CheckpointError(
                "this run has no checkpoint yet, and its key is not known; start it again from its"
                " own script"
            )
        require(
            latest is None,
            f"there are checkpoints of another run already (up to step {latest})",
            'choose another directory, or set restore_checkpoint="auto" to go on',
            CheckpointError,
        )
        own = self._progress
        self._begin(RunProgress.start(self.plan, seed=own.seed, keys=own.keys))
        if begins_again:  # a run that was cut before its first checkpoint may have left rows
            files.logger.restore({})
        self._announce_memory()
        self.state = self.program.init(self._keys)

    def _init_for_run(self, key: Key | int | None) -> None:
        """`init(key)` within a call of `run`, if there is a key; requires a state."""
        try:
            if key is not None:
                self.init(key)
            self._require_state(
                "run() continues a run, but there is none yet", "call run(key), for instance run(0)"
            )
        except Exception as error:
            # Those of rlkit are about settings, and leave the files of the run as they are.
            if not isinstance(error, RlkitError):
                self._log_crash(error)
            self._clock.stop()
            raise

    def _require_state(
        self,
        problem: str = "there is no state yet",
        cure: str = "call init(key) or run(key) first",
    ) -> None:
        require(
            not self._is_lost,
            "the state was lost when an iteration was cut short",
            "load_checkpoint(...), or start again by init(key) or run(key)",
        )
        require(self.state is not None, problem, cure)

    def _wind_down(self, files: RunFiles, error: BaseException | None) -> None:
        """Ends a call of `run`, all steps of it even if one fails. `error` is what ended the run,
        the one to see if any.
        """
        self._progress = dataclasses.replace(self._progress, wall_seconds=self.wall_seconds)
        self._clock.stop()
        first = error
        ends = [partial(callback.on_run_end, self) for callback in self._callbacks]
        for end in (*ends, files.flush):
            try:
                end()
            except Exception as failure:
                if first is None:
                    first = failure
                    self._log_crash(failure)
                else:
                    text = f"and at the end of the run: {type(failure).__name__}: {failure}"
                    first.add_note(text)
        if error is None and first is not None:
            raise first

    # Checkpoints

    def _save(
        self, checkpointer: Checkpointer, iteration: int, state: PyTree, rank: float | None
    ) -> None:
        """Saves the state after that many outer iterations, which may be fewer than there are."""
        state = without_replay(state) if self._leaves_out_replay(checkpointer) else state
        is_rl = isinstance(state, TrainState)
        progress = dataclasses.replace(
            self._progress,
            outer_iteration=iteration,
            env_steps=self.steps_at(iteration),
            updates=state.learner.updates.to_int() if is_rl else self._progress.updates,
            wall_seconds=self.wall_seconds,
        )
        metadata = CheckpointMetadata(
            progress=progress,
            plan=self.plan,
            num_seeds=self.config.num_seeds,
            normalize_observations=is_rl and state.learner.obs_stats is not None,
            logger=self._open().logger.state(),
            description=self.description(),
            fingerprint=fingerprint(),
            versions=versions(),
            replay=not lacks_replay(state, self._replay_bytes),
        )
        checkpointer.save(iteration, to_items(state), score=rank, metadata=metadata.to_metadata())
        if checkpointer is self._open().checkpointer:
            self._saved_iteration = iteration
        self._each("on_checkpoint", iteration)

    def _restore(self, checkpointer: Checkpointer, which: Which, *, same_run: bool) -> None:
        """Takes over a checkpoint, of this run or of another one."""
        own, is_keyed = self._progress, self._keys is not None
        restored = read_run(checkpointer, which, self.program.state_shape(self.compiler.keys(0)))
        if same_run:
            require_same_run(restored, checkpointer, own.keys)
        before = restored.metadata.plan
        self._use_plan(plan_to_go_on(self.config, self.plan, before, same_run=same_run))
        self._begin(restored.progress if same_run else restored.branch)
        if same_run and is_keyed:
            self._progress = dataclasses.replace(self._progress, seed=own.seed)
        self.state = restored.state
        if not lacks_replay(self.state, self._replay_bytes):  # else `_refill` starts it
            self.state = self.program.restart(self.state)
        if same_run:
            self._resume_files(restored, checkpointer)
        if self.plan.total_steps != before.total_steps:
            self._set_horizon()
        self._announce_memory()
        for text in caveats(restored, is_compiled=self._parts.is_compiled):
            self._log(text)

    def _resume_files(self, restored: RestoredRun, checkpointer: Checkpointer) -> None:
        """The files of this run as they were at the checkpoint; damaged steps are set aside."""
        files = self._open()
        if self.plan.total_steps > restored.metadata.plan.total_steps:
            files.extend(self.plan)
        for step in restored.damaged:
            checkpointer.set_aside(step)
        files.logger.restore(restored.metadata.logger)
        self._is_begun = True
        self._saved_iteration = restored.step

    def _refill(self) -> None:
        """Fills a replay memory that the checkpoint left out, before anything is learned
        from it.
        """
        if not lacks_replay(self.state, self._replay_bytes):
            return
        assert isinstance(self.module, RLModule)
        collects = self.module.algorithm.refill_collects(self.module.env)
        steps = collects * self.plan.env_steps_per_iteration
        self._log(reporting.refill(steps))
        self._advance(lambda ts: (self.program.refill(ts), None))
        self._progress = self._progress.after_steps(steps)
        self._set_horizon()

    def _set_horizon(self) -> None:
        """Lets schedules end where the run will, with the steps outside the plan."""
        if isinstance(self.module, RLModule):
            last = self.steps_at(self.plan.num_checkpoints)
            self.state = self.module.with_horizon(self.state, last)

    def _leaves_out_replay(self, checkpointer: Checkpointer | None) -> bool:
        return checkpointer is not None and leaves_out_replay(
            checkpointer.save_replay, self._replay_bytes
        )

    # Parts

    def _open(self) -> RunFiles:
        if self._files is None:
            self._files = self._open_files(self.config, self.description())
        return self._files

    def _make_program(self) -> Program:
        return make_program(
            self.module,
            compiler=self.compiler,
            epochs=self.plan.epochs_per_checkpoint,
            overlap=self.config.overlap,
        )

    def _use_plan(self, plan: Plan) -> None:
        """Goes on by another plan, with a program for outer iterations of its size."""
        is_other_size = plan.epochs_per_checkpoint != self.plan.epochs_per_checkpoint
        self.plan = plan
        if is_other_size:
            self.program.close()
            self.program = self._make_program()

    def _evaluation_of(self, episodes: int | None) -> Evaluation:
        """The evaluation over as many episodes, None: the one that is planned."""
        module = self.module
        if not isinstance(module, RLModule) or (episodes is None and module.eval_env is not None):
            return self._planned_evaluation
        episodes = module.evaluation_episodes if episodes is None else episodes
        if episodes not in self._evaluations:
            evaluating = self._parts.evaluating(episodes)
            self._evaluations[episodes] = Evaluation(evaluating, self.compiler)
        return self._evaluations[episodes]

    def _fetch(self, results: Any) -> dict[str, np.ndarray]:
        """The metrics of what was trained outside `run`."""
        metrics, counters = jax.device_get(results)
        counts = exact_counts(counters)
        if counts is not None:
            self._progress = dataclasses.replace(self._progress, updates=counts[1])
        return metrics

    # What it says

    @property
    def _reporter(self) -> Reporter:
        return Reporter(self._open().logger, self.config.num_seeds)

    def _now(self) -> Moment:
        return Moment(
            env_steps=self.env_steps,
            updates=self._progress.updates,
            wall_seconds=round(self.wall_seconds, 3),
        )

    def _log(self, text: str) -> None:
        self._reporter.text(text, self._now())

    def _log_crash(self, error: BaseException) -> None:
        if self._files is not None:  # else what failed was opening them
            self._reporter.crash(error, self._now())

    def _announce(self, checkpointer: Checkpointer | None) -> None:
        """Logs what is about to be trained, and what checkpoints leave out."""
        num_seeds, iteration = self.config.num_seeds, self.outer_iteration
        self._log(reporting.announcement(self.plan, iteration, self.env_steps, num_seeds))
        is_left = iteration < self.plan.num_checkpoints
        if is_left and checkpointer is not None and self._leaves_out_replay(checkpointer):
            is_asked = checkpointer.save_replay is False
            self._log(reporting.replay_left_out(self._replay_bytes, is_asked=is_asked))

    def _announce_memory(self) -> None:
        """Logs how much memory the replay buffer takes, before it does."""
        if not isinstance(self.module, RLModule) or self.module.algorithm.replay_buffer is None:
            return
        capacity, num_seeds = self.module.algorithm.replay_buffer.capacity, self.config.num_seeds
        self._log(reporting.replay_memory(capacity, num_seeds, self._replay_bytes, self._memory))

    def _each(self, method: str, *arguments: Any) -> None:
        for callback in self._callbacks:
            getattr(callback, method)(self, *arguments)


def _require_threads_pinned(config: TrainerConfig) -> None:
    require(
        not config.deterministic or os.environ.get("NPROC") == "1",
        "deterministic=True, but this process may compute on several threads, whose results vary",
        "start it with NPROC=1 in the environment (rlkit train --deterministic does)",
        ConfigError,
    )
