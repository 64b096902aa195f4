"""`Trainer`: a run from outside. Its docstring shows the loop, which is in `outer_loop`."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

import jax
import numpy as np
from jax.sharding import Mesh

from rlkit.agents.base import Agent
from rlkit.algorithms.base import Algorithm
from rlkit.errors import (
    RlkitError,
    RunDirectoryError,
    require,
)
from rlkit.protocols import follows
from rlkit.training.callbacks import (
    Callback,
    ProgressBar,
    callback_states,
    check_callbacks,
    restore_callbacks,
)
from rlkit.training.compile.placing import own_part
from rlkit.training.config import CheckpointerConfig, Plan, TrainerConfig
from rlkit.training.core.module import Module, RLModule
from rlkit.training.curriculum import Curriculum
from rlkit.training.files.checkpointer import Checkpointer, Which, holds_checkpoints
from rlkit.training.files.exported_policy import export_policy
from rlkit.training.files.run_description import describe, hparams_to_dict
from rlkit.training.files.run_files import (
    Path,
    RunFiles,
    located,
    open_checkpoints,
    own_checkpoint_directory,
)
from rlkit.training.fingerprint import versions
from rlkit.training.history import History
from rlkit.training.interrupts import deferred_interrupts, stopping_interrupts
from rlkit.training.logs.announcements import new_episodes, replay_refilled
from rlkit.training.logs.loaded_run import Status
from rlkit.training.logs.logger import VideoLogger
from rlkit.training.logs.loggers import LoggerSource
from rlkit.training.logs.metrics import score
from rlkit.training.logs.records import Record
from rlkit.training.outer_loop import OuterLoop
from rlkit.training.phases import parts_of_curriculum
from rlkit.training.policy import Policy, play_episodes
from rlkit.training.processes.group import Processes, current
from rlkit.training.programs.protocol import Program
from rlkit.training.reporting import (
    EvalFn,
    Reporter,
    announcements,
    device_announcements,
    encoding_announcements,
    memory_announcements,
    settings_announcements,
    summary,
)
from rlkit.training.restoring import begin_or_restore, caveats, restore
from rlkit.training.run import Run, RunStart
from rlkit.training.run_config import require_seed
from rlkit.training.run_parts import EnvSource, RunParts, parts_from_env, parts_from_module
from rlkit.training.run_progress import RunProgress
from rlkit.training.saving import save
from rlkit.training.starting import begin_from, source_of
from rlkit.training.video.film import Film
from rlkit.types import Key, Measurements, PyTree
from rlkit.validation import PlainData, validate


class Trainer:
    """Trains an agent with an algorithm; evaluates, saves and logs after every outer iteration:

        state = init(key)
        report(evaluate(state)), save(state)
        while outer_iteration < plan.num_checkpoints and stop_reason is None:
            state, metrics = program.outer(state)  # epochs_per_checkpoint x (collect, then update)
            evaluation = evaluate(state)           # every eval_every outer iterations
            report(metrics, evaluation)            # records, NaN checks, callbacks
            save(state)                            # every checkpoint_every outer iterations

    The device works ahead: `max_queued` outer iterations may wait for the host to report them.

    Args:
        env: an adapter, a `gymnasium.Env` class (which makes 4 environments), or one such
            environment. Adapters that you pass in stay open.
        eval_env: likewise, with any number of environments; None: one like `env` that the Trainer
            makes and closes, or `env` itself if it is jittable and has no name.
        agent, algorithm: what is trained, and how.
        config: length of training, evaluation, checkpoints, logs.
        logger, checkpointer: an instance (yours to close), a config or a path, in place of
            `config`'s; None: that one. `logger` may be a list of these, such as
            [config.logger_config, mine].
        callbacks: called between outer iterations, see `Callback`.
        eval_fn: `eval_fn(state)` runs on the host after each evaluation; text that it returns is
            logged, and a dict of numbers is added to the evaluation record.
        accept_differences: continue a run also with other settings than its checkpoint was trained
            with, and a deterministic one on another machine or version.
        curriculum: phases that change environments or settings of the algorithm; its phases set the
            length of training.
        mesh: the devices to train on, in place of `config.devices`: a `jax.sharding.Mesh` with the
            axis "data", along which devices have shares of the environments, or "seeds", or both.

    Raises `RlkitError` (with the fix) before anything compiles if the parts or settings do not fit
    together.

    Processes: after `start_processes`, every process makes the same Trainer and the same calls.
    Process 0 alone has files, and calls callbacks and `eval_fn`, which gets the whole state.

    Seeds: with `config.num_seeds` > 1, states and results have a leading axis S. Results are plain
    NumPy. Where D devices train each seed, leaves of the local state have an axis D, before N.
    """

    def __init__(
        self,
        env: EnvSource,
        eval_env: EnvSource | None,
        agent: Agent,
        algorithm: Algorithm,
        config: TrainerConfig,
        *,
        logger: LoggerSource = None,
        checkpointer: Checkpointer | CheckpointerConfig | Path | None = None,
        callbacks: Sequence[Callback] = (),
        eval_fn: EvalFn | None = None,
        accept_differences: bool = False,
        curriculum: Curriculum | None = None,
        mesh: Mesh | None = None,
        _parts: RunParts | None = None,  # instead of the first four, see `from_module`
    ):
        check_callbacks(callbacks)
        require(
            eval_fn is None or callable(eval_fn),
            f"eval_fn must be a function of the state, got {eval_fn!r}",
            "pass a function, or leave it out",
        )
        parts = _parts
        if parts is None and curriculum is not None:
            parts = parts_of_curriculum(env, eval_env, agent, algorithm, config, curriculum)
        elif parts is None:
            parts = parts_from_env(env, eval_env, agent, algorithm, config)
        processes = self._processes = current()
        self._described = _on_all_devices(validate(config), processes, mesh)  # as it was given
        config, checkpointer = located(self._described), located(checkpointer)
        for callback in callbacks:
            callback.check_config(config)
        self._run = Run(parts, config, mesh, processes)
        self._accepts = accept_differences
        self._open_files = partial(
            RunFiles,
            logger=located(logger),
            checkpointer=checkpointer,
            accept_differences=accept_differences,
            is_main=processes.is_main,
        )
        self._files: RunFiles | None = None
        self._checkpoints = own_checkpoint_directory(config, checkpointer)
        self._callbacks = [*callbacks, *([ProgressBar()] if config.debug else [])]
        processes.tell_how_to_go_on(self._how_to_go_on)
        self._run.on_warm_up = partial(self._call, "on_warm_up")
        self._eval_fn = eval_fn
        self._loop = OuterLoop(self._run, lambda: self._reporter, self._save)
        self._busy: str | None = None  # "run" or "init" within that method, callbacks included
        self.config, self.compiler = config, self._run.compiler

    @classmethod
    def from_module(
        cls,
        module: Module,
        config: TrainerConfig,
        *,
        env_steps_per_iteration: int | None = None,
        logger: LoggerSource = None,
        checkpointer: Checkpointer | CheckpointerConfig | Path | None = None,
        callbacks: Sequence[Callback] = (),
        eval_fn: EvalFn | None = None,
        accept_differences: bool = False,
        mesh: Mesh | None = None,
    ) -> Self:
        """A trainer for any `Module`, with the same loop, logs and checkpoints.

        `env_steps_per_iteration` is what one training step adds to `total_steps`; None: 1, or for
        an `RLModule` its environment steps. The module itself sets replay buffer, warm-up and
        number of evaluation episodes.
        """
        unused: Any = None  # `_parts` has them
        return cls(
            *(unused, unused, unused, unused),
            config,
            logger=logger,
            checkpointer=checkpointer,
            callbacks=callbacks,
            eval_fn=eval_fn,
            accept_differences=accept_differences,
            mesh=mesh,
            _parts=parts_from_module(module, config, env_steps_per_iteration),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Training

    def init(
        self,
        key: Key | int | None,
        *,
        train_state: PyTree = None,
        warm_start: Policy | Path | None = None,
    ) -> PyTree:
        """The state before training, fresh or restored by `config.restore_checkpoint`.

        `train_state` is a ready state to begin with instead of a fresh one; it is copied, its steps
        come on top of `total_steps`, and `key` is only recorded. `warm_start` (None: `config`'s) is
        a policy, or the run directory of one, whose parameters a fresh state begins with, see
        `load_policy`. Both are ignored if a checkpoint is restored; otherwise one is saved at once.
        Opens the run directory. `key` is a typed key, a batch
        of S keys, or a seed; a seed s gives the run the seeds s, s + 1, …, so that each equals the
        single run of that seed. For a restored run, None keeps the key it was started from. The
        next training step donates the state's buffers: copy what you want to keep.
        """
        with self._alone("init"):
            return self._init(key, train_state, warm_start)

    def _init(
        self, key: Key | int | None, train_state: PyTree, warm_start: Policy | Path | None
    ) -> PyTree:
        read_source = partial(source_of, self._run, train_state=train_state, warm_start=warm_start)
        needs_key, restores = train_state is None, not self._starts_anew
        require(
            key is not None or warm_start is None or restores,
            "warm_start only sets the parameters; a key or seed is still needed",
            "pass one, for instance run(0, warm_start=...)",
        )
        source = None if restores else read_source()  # so that its errors leave nothing behind
        opened_here, start = self._files is None, self._run.start_from(key)
        description = self._description(start.progress.seed)
        self._require_same(description, start)
        try:
            with deferred_interrupts():  # a run has begun, or it has not
                files = self._open(description)
                require(
                    files.run_directory is None or files.description == description,
                    "the run directory was opened for another seed, or for none",
                    "pass the seed of its config.yaml, or use another run_dir",
                    RunDirectoryError,
                )
                restored = begin_or_restore(
                    self._run, files, start, needs_key=needs_key, accept_differences=self._accepts
                )
                states = {} if restored is None else restored.metadata.callbacks
                restore_callbacks(self._callbacks, states)
                self._log(*self._about(), *encoding_announcements(self._run))
                if restored is not None:
                    self._log(*caveats(self._run, restored, files.stop_reason()))
                else:
                    source = source or read_source()
                    begin_from(self._run, source, start)
                    self._log(*source.told(self.env_steps))
                    is_passed = train_state is not None or warm_start is not None
                    if is_passed and files.checkpointer is not None:  # no setting tells of it
                        self._save(files.checkpointer, 0, self.state)
        except RlkitError:
            if opened_here:  # so that the directory is free for another try
                self._close()
            raise
        return self.state

    def open(self, *, seed: int | None = None) -> None:
        """Opens run directory, logs and checkpoints before `init` does, to raise errors early."""
        if self._starts_anew:
            source_of(self._run)
        start = self._run.start_from(seed)
        self._open(self._description(start.progress.seed))
        if self.state is None:
            self._run.begin(start.progress)

    def run(
        self,
        key: Key | int | None = None,
        *,
        train_state: PyTree = None,
        warm_start: Policy | Path | None = None,
    ) -> list[Measurements]:
        """Trains to the end of the plan; returns the evaluations of this call's outer iterations.

        With a key (or seed), a `train_state` or a `warm_start`, calls `init` with them first;
        without, continues from the current state. An outer iteration that was not evaluated has {}.
        Evaluations hold `return` and `length` [E] ([S, E] with seeds), `sampled_return` and
        `sampled_length`, `done_info` with what the environment reported at the end of each episode,
        if anything, and when they were made: `env_steps` and `updates` of one seed, as integers. If
        the environment is reset where it returns NaN or infinity, `non_finite_episodes` counts
        those that ended by it; they count with their return until then.
        The evaluation before the first outer iteration is logged, but not returned.
        """
        self._require_idle("run")
        self._loop.begin()
        self._run.clock.start()
        self._init_for_run(key, train_state, warm_start)
        files, before = self._open(), self.history.num_evaluations
        with self._interrupts(), self._alone("run"):
            try:
                self._train(files)
            finally:
                self._loop.end()
        return self.history.since(before)

    def _train(self, files: RunFiles) -> None:
        """Trains to the end of the plan, and ends the logs however it ends."""
        try:
            files.write_status("running")
            if not self._run.is_complete:
                self._refill()
                self._run.include_steps_outside()
            self._log(*announcements(self._run, files.checkpointer))
            self._call("on_run_start")
            self._loop.run(files.checkpointer)
            files.write_summary(self.summary(), replace=self._run.clock.env_steps > 0)
        except BaseException as error:
            with deferred_interrupts():
                if self._processes.fail(error):
                    self._loop.save_what_is_sound(files.checkpointer, error)
                told = self._processes.explain(error)
                self._log_crash(told)
                self._wind_down(files, told)
                self._processes.settle()
            if told is not error:
                raise told from error
            raise
        self._wind_down(files, None)

    def _interrupts(self) -> contextlib.AbstractContextManager[None]:
        """Ctrl-C in one of several processes stops all, at the same point."""
        if self._processes.count == 1:
            return contextlib.nullcontext()
        return stopping_interrupts(lambda: self.request_stop("interrupted"))

    def train_step(self) -> dict[str, np.ndarray]:
        """One iteration (collect, then update) outside the plan; returns its metrics."""
        self._run.require_state()
        self._refill()
        self._loop.enter_next_phase()
        return self._run.fetch(self._run.single_iteration())

    def train_epoch(self) -> dict[str, np.ndarray]:
        """One outer iteration without evaluation, checkpoint or logs; returns its metrics."""
        self._run.require_state()
        self._refill()
        self._loop.enter_next_phase()
        return self._run.fetch(self._run.outer_iteration())

    def evaluate(
        self,
        episodes: int | None = None,
        *,
        env: EnvSource | None = None,
        seed: int | None = None,
    ) -> Measurements:
        """Evaluates the current policy over `episodes` episodes (None: as configured).

        `env` is another environment with the same spaces, `seed` chooses other episodes; both take
        a compilation. Raises `SpaceError` for other spaces.
        """
        self._run.require_state()
        if env is not None or seed is not None:
            elsewhere = self._loop.evaluations.elsewhere
            return jax.device_get(elsewhere(self.state, self.module, episodes, env, seed))
        return jax.device_get(self._loop.evaluations.of(episodes)(self.state))

    def rollout(
        self, num_episodes: int, key: Key | int, *, deterministic: bool = True
    ) -> dict[str, PyTree]:
        """Plays whole episodes with the current policy; `key`, or a seed, draws them.

        Returns obs, action, reward, terminated, truncated [E, L, ...] and length [E]. L is the
        length of the longest episode; shorter ones are padded with zeros. With several seeds,
        arrays have a leading axis S.
        """
        self._run.require_state()
        require(
            isinstance(self.module, RLModule),
            "rollout plays episodes of an environment, but this module has none",
            "call its own methods",
        )
        evaluator = self._run.parts.evaluation_module().evaluator()
        policy, compiler = own_part(self.state.learner.policy), self.compiler.for_evaluation
        return play_episodes(
            evaluator, policy, num_episodes, key, compiler, deterministic=deterministic
        )

    def record_video(
        self,
        path: Path,
        *,
        episodes: int = 1,
        seed_index: int = 0,
        deterministic: bool = True,
        max_steps: int | None = None,
        fps: int | None = None,
        overwrite: bool = False,
    ) -> Film:
        """Plays episodes with the current policy and writes a video, see `Policy.record_video`.

        They are new episodes in an environment like that of evaluation. With several seeds,
        `seed_index` chooses one. Weights & Biases gets the video as well, if the run is logged
        there.
        """
        self._run.require_state()
        require(
            isinstance(self.module, RLModule),
            "a video shows episodes of an environment, but this module has none",
            "call its own methods",
        )
        require_seed(seed_index, self.config.num_seeds)
        module = self._run.parts.evaluation_module()
        assert module.eval_env is not None
        policy = own_part(self.state.learner.policy)
        if self.config.num_seeds > 1:
            policy = jax.tree.map(lambda x: x[seed_index], policy)
        player = Policy(
            agent=module.agent,
            state=policy,
            env=module.eval_env,
            make_env=None,
            checkpoint_step=self.outer_iteration,
            max_evaluation_steps=module.max_evaluation_steps,
        )
        video = player.record_video(
            path,
            episodes=episodes,
            max_steps=max_steps,
            deterministic=deterministic,
            fps=fps,
            overwrite=overwrite,
        )
        if self._files is not None and follows(self._files.logger, VideoLogger):
            self._files.logger.log_video(video.path, seed_index)
        return video

    # Saving and restoring

    def save_checkpoint(
        self, path: Path | None = None, *, evaluation_score: float | None = None
    ) -> int:
        """Saves the current state, to the run's own checkpoints or to the directory `path`.

        Returns the step of the checkpoint. Raises `ConfigError` without `path` within a callback,
        whose state may be ahead: the metrics in the checkpoint are those that were reported last.
        """
        self._run.require_state()
        files, iteration = self._open(), self.outer_iteration
        require(
            self._run.reported is None or self._processes.count == 1,
            "a callback runs in process 0 alone, which has only a part of the state",
            "set checkpoint_every: all processes save together",
        )
        if path is None:
            require(
                self._run.reported is None,
                "a callback cannot save the run's own checkpoints: the state is ahead of what is"
                " reported, and a checkpoint of it would replace the scheduled one",
                "set checkpoint_every, or save a copy: save_checkpoint(path)",
            )
            checkpointer = files.checkpointer_for(iteration)
            self._save(checkpointer, iteration, self.state, rank=evaluation_score)
            checkpointer.wait()
        else:
            with files.checkpointer_in(path) as checkpointer:
                self._save(checkpointer, iteration, self.state, rank=evaluation_score)
        return iteration

    def take_over(
        self, state: PyTree, progress: RunProgress, records: Sequence[Record] = ()
    ) -> None:
        """Continues what another program trained up to `state`: logs its records, then saves it.

        The state and the progress are those of the seeds of this run. `run()` then trains what is
        left of the plan.
        """
        run, files = self._run, self._open(self._description(progress.seed))
        run.begin(progress)
        run.state, run.has_started = state, True
        for record in records:
            self._logging_files.logger.log(record)
            if record.seed is None:
                run.metrics |= record.metrics
        returns = progress.seed_returns
        rank = None if returns is None else score({"return": returns}, len(returns))
        checkpointer = files.checkpointer_for(progress.outer_iteration)
        self._save(checkpointer, progress.outer_iteration, state, rank=rank, seed_scores=returns)
        checkpointer.wait()

    def conclude(self, reason: str | None) -> None:
        """Writes the summary and the end of a run that took over all of its training.

        `reason` is why it ended before its plan did; None: it did not.
        """
        files, self._loop.stop_reason = self._open(), reason
        files.write_summary(self.summary())
        files.write_status("finished" if reason is None else "stopped", reason)
        files.flush()

    def load_checkpoint(self, path: Path, which: Which = "latest") -> PyTree:
        """Loads a checkpoint from any checkpoint or run directory; returns its state.

        `run()` then continues from there, into this trainer's own logs and checkpoints, which
        record their origin. If the checkpoint was saved without the replay memory, the state has
        none (`()`) until training continues, which first fills one.
        """
        self._require_idle("load_checkpoint")
        with open_checkpoints(path) as checkpointer:
            restored = restore(self._run, checkpointer, which)
        restore_callbacks(self._callbacks, restored.metadata.callbacks)
        self._log(*self._about(), *caveats(self._run, restored))
        return self.state

    def export_policy(self, directory: Path) -> PlainData:
        """Copies the policy of the best checkpoint, or else the latest, to a new `directory`.

        `load_policy(directory)` loads it. Returns its `step`, `env_steps` and `return`. Raises
        `RunDirectoryError` if the directory exists, `CheckpointError` if the run has no checkpoint.
        """
        with self._saved() as checkpointer:
            return export_policy(checkpointer, self.description(), directory)

    # Status

    @property
    def best_checkpoint(self) -> int | None:
        """The step of the best checkpoint so far; None: there is none."""
        with self._saved() as checkpointer:
            return None if checkpointer is None else checkpointer.best_step()

    @property
    def keeps_best(self) -> bool:
        """Whether the run evaluates, saves checkpoints, and keeps the best one."""
        with self._saved() as checkpointer:
            keeps = checkpointer is not None and checkpointer.keep_best
            return keeps and self.config.enable_evaluation

    @property
    def state(self) -> PyTree:
        """The current state; may be set to another one of the same shape."""
        return self._run.state

    @state.setter
    def state(self, state: PyTree) -> None:
        self._run.state = state

    @property
    def plan(self) -> Plan:
        """The run in numbers; extending a restored run replaces it."""
        return self._run.plan

    @property
    def module(self) -> Module:
        """What is trained; with a curriculum, the module of the current phase."""
        return self._run.parts.module

    @property
    def phase(self) -> int | None:
        """The index of the phase that the state is of, from 0; None without a curriculum."""
        return None if self._run.phases.curriculum is None else self._run.phases.index

    @property
    def program(self) -> Program:
        """The functions that train."""
        return self._run.program

    @property
    def history(self) -> History:
        """Training metrics and evaluations of this run that this trainer reported."""
        return self._run.history

    @property
    def outer_iteration(self) -> int:
        """Outer iterations so far."""
        return self._run.progress.outer_iteration

    @property
    def env_steps(self) -> int:
        """Environment steps of one seed so far, including the prefill; exact."""
        return self._run.progress.env_steps

    @property
    def progress(self) -> RunProgress:
        """What the run has done so far."""
        return self._run.progress

    @property
    def seed(self) -> int | None:
        """The seed that the run was started from; None: a key, or nothing yet."""
        return self._run.progress.seed

    @property
    def wall_seconds(self) -> float:
        """Seconds spent in `run`, including those before a resume."""
        return self._run.wall_seconds

    @property
    def max_in_progress(self) -> int:
        """Outer iterations that may be in progress at once, all of which a stop waits for."""
        return self._loop.max_in_progress

    @property
    def iteration_seconds(self) -> float | None:
        """Seconds that the last outer iteration took, without compiling; None: there was none."""
        return self._run.clock.lap_seconds

    def steps_at(self, iteration: int) -> int:
        """Environment steps of one seed after `iteration` outer iterations."""
        return self._run.steps_at(iteration)

    @property
    def stop_reason(self) -> str | None:
        """Why the last call of `run` ended early, or is to end; None: it did not."""
        return self._loop.stop_reason

    def request_stop(self, reason: str) -> None:
        """Ends the run after the outer iteration in progress, and saves it.

        While none runs, the next call of `run` ends before it trains. Safe to call from callbacks,
        threads and signal handlers.
        """
        self._loop.request_stop(reason)

    def log(self, what: str | Mapping[str, float]) -> None:
        """Logs a sentence, or numbers by name, as a record of its own.

        Numbers are named `user/<name>`. Within a callback, the steps are those that it was told
        about. Like all records after the last checkpoint, those at the end of a run are set aside
        when it is resumed or extended. Raises `ConfigError` for anything else than text and
        numbers, or before the run has a state.
        """
        if self._files is None:  # else opening them here could be for another seed than `run`'s
            self._run.require_state("there is no run to log to yet")
        self._reporter.log_user(what)

    def hparams(self) -> PlainData:
        """All settings as one flat dict of plain values, for loggers."""
        return hparams_to_dict(self.description())

    def description(self) -> PlainData:
        """The run as plain data: a `RunConfig` if every part comes from a registry.

        Otherwise its parts as readable data.
        """
        return self._description(self.seed)

    def _description(self, seed: int | None) -> PlainData:
        whole = self._run.phases.whole
        return describe(whole.module, whole.eval_env, self._described, seed, whole.curriculum)

    def summary(self) -> PlainData:
        """The contents of `summary.json`."""
        return summary(self._run, None if self._run.is_complete else self.stop_reason)

    def close(self) -> None:
        """Finishes writing, and closes the files and environments that this trainer opened.

        Those that you passed in stay open. Raises `ConfigError` within `run` and `init`.
        """
        self._require_idle("close")
        self._close()

    def _close(self) -> None:
        files, self._files = self._files, None
        try:
            if files is not None:
                files.close()
        finally:
            for part in (self._loop, self._run):
                part.close()

    # Saving, starting, ending

    def _save(
        self,
        checkpointer: Checkpointer,
        iteration: int,
        state: PyTree,
        *,
        rank: float | None = None,
        seed_scores: Sequence[float] | None = None,
    ) -> None:
        """Saves the state after `iteration` outer iterations, which may be an earlier one."""
        run, files, description = self._run, self._logging_files, self.description()
        callbacks = callback_states(self._callbacks)
        why_new_episodes = save(
            run,
            files,
            checkpointer,
            iteration,
            state,
            score=rank,
            seed_scores=seed_scores,
            description=description,
            callbacks=callbacks,
        )
        if why_new_episodes not in ("", run.why_new_episodes):
            run.why_new_episodes = why_new_episodes
            self._log(new_episodes(why_new_episodes))
        if checkpointer is files.checkpointer:  # else a callback made a copy
            self._call("on_checkpoint", iteration)

    def _init_for_run(
        self, key: Key | int | None, train_state: PyTree, warm_start: Policy | Path | None
    ) -> None:
        """Calls `init` within `run` if there is anything to start from; requires a state."""
        try:
            if key is not None or train_state is not None or warm_start is not None:
                self.init(key, train_state=train_state, warm_start=warm_start)
            self._run.require_state(
                "run() continues a run, but there is none yet", "call run(key), for instance run(0)"
            )
            self._require_newest()
        except BaseException as error:
            # rlkit's own errors are about settings, and leave the run's files unchanged.
            if not isinstance(error, RlkitError):
                self._log_crash(error)
                if self._files is not None and not self._files.has_trained:
                    with contextlib.suppress(RlkitError):
                        self._files.write_status(*self._end(error))
            self._run.clock.stop()
            raise

    def _require_idle(self, method: str) -> None:
        """Raises `ConfigError` within `run` and `init`, which a callback or a thread may forget."""
        fix = f"end the run with request_stop(reason), and call {method}() after run() has returned"
        what = "trains"
        if self._busy == "init":
            what = "prepares the run"
            fix = f"call {method}() after init(), or the run() that called it, has returned"
        require(self._busy is None, f"{method}() was called while {self._busy}() {what}", fix)

    @contextlib.contextmanager
    def _alone(self, method: str) -> Iterator[None]:
        """Keeps callbacks and threads from ending or replacing the run that `method` works on."""
        self._require_idle(method)
        try:
            self._busy = method
            yield
        finally:
            self._busy = None

    def _require_newest(self) -> None:
        """Raises `RunDirectoryError` if the run's own checkpoints are ahead of its state."""
        checkpointer = self._open().checkpointer
        newest = self._processes.on_main(lambda: checkpointer and checkpointer.latest_step())
        require(
            newest is None or newest <= self.outer_iteration,
            f"the state is that of step {self.outer_iteration}, but this run has checkpoints up to"
            f" step {newest}, which are never overwritten",
            "train on in another directory: rlkit.reopen(run_dir, which=..., into='runs/branch')",
            RunDirectoryError,
        )

    @property
    def _starts_anew(self) -> bool:
        """Whether `init` will restore no checkpoint, as far as can be told before opening files."""
        which, directory = self.config.restore_checkpoint, self._checkpoints
        if which != "auto" or directory is None:
            return which is None
        return self._processes.on_main(lambda: not holds_checkpoints(directory))

    def _refill(self) -> None:
        """Fills a replay memory that the checkpoint left out, before training continues."""
        if not self._run.has_replay(self.state):
            self._log(replay_refilled(self._run.refill_steps))
            self._run.refill()

    def _wind_down(self, files: RunFiles, error: BaseException | None) -> None:
        """Ends a call of `run`; `error` is what ended it, if any."""
        self._run.stop_clock()
        callbacks = self._callbacks if self._processes.is_main else []
        ends = [partial(callback.on_run_end, self) for callback in callbacks]
        if error is not None:
            ends = [partial(callback.on_error, self, error) for callback in callbacks] + ends
        try:
            self._reporter.wind_down([*ends, files.flush], error)
        except BaseException as failure:
            error = failure
            raise
        finally:
            with contextlib.suppress(RlkitError):  # the disk may be what failed
                files.write_status(*self._end(error))

    def _end(self, error: BaseException | None) -> tuple[Status, str | None]:
        """How a call of `run` ended, and why; `error` is what ended it, if any."""
        if isinstance(error, KeyboardInterrupt):
            return "stopped", "interrupted"
        if error is not None:
            return "failed", f"{type(error).__name__}: {error}".strip().splitlines()[0]
        return ("finished", None) if self._run.is_complete else ("stopped", self.stop_reason)

    @contextlib.contextmanager
    def _saved(self) -> Iterator[Checkpointer | None]:
        """The run's checkpoints, also before and after it has its files open; None: it has none."""
        require(
            self._processes.is_main,
            f"process {self._processes.index} of {self._processes.count} has no checkpoints",
            "ask process 0 for them: if jax.process_index() == 0",
        )
        if self._files is not None:
            yield self._files.checkpointer
            return
        if self._checkpoints is None or not holds_checkpoints(self._checkpoints):
            yield None
            return
        with open_checkpoints(self._checkpoints) as checkpointer:
            yield checkpointer

    def _open(self, description: PlainData | None = None) -> RunFiles:
        with deferred_interrupts():  # what was opened but is not known could not be closed
            if self._files is None:
                self._processes.on_main(lambda: self._open_own(description))
                if self._files is None:
                    self._open_own(description)
            assert self._files is not None
            return self._files

    def _open_own(self, description: PlainData | None) -> None:
        self._files = self._open_files(self.config, description or self.description())

    @property
    def _logging_files(self) -> RunFiles:
        """The files of the run, with a logger that knows its settings."""
        with deferred_interrupts():
            files = self._open()
            files.start_logging(lambda: self.hparams() | hparams_to_dict({"versions": versions()}))
            return files

    @property
    def _reporter(self) -> Reporter:
        logger = self._logging_files.logger
        return Reporter(run=self._run, logger=logger, call=self._call, eval_fn=self._eval_fn)

    def _require_same(self, description: PlainData, start: RunStart) -> None:
        """Raises `ProcessError` unless all processes train the same run."""
        if self._processes.count == 1:
            return
        trainer = description.get("trainer") or {}
        settings = description | {"trainer": trainer | {"run_dir": None}}  # of the main one
        same = {name: settings[name] for name in sorted(settings)} | {"keys": start.progress.keys}
        self._processes.require_same(same | versions())

    def _how_to_go_on(self) -> str:
        """The end of an error's sentence, when processes were lost."""
        run_dir = self.config.run_dir
        if run_dir is None or self._run.saved_iteration < 0:
            return ""
        return (
            "; start all processes again, with `rlkit resume` and the same run directory"
            f" ({run_dir}): the run goes on from its last checkpoint"
        )

    def _call(self, method: str, *arguments: Any) -> None:
        for callback in self._callbacks if self._processes.is_main else ():
            getattr(callback, method)(self, *arguments)

    def _log(self, *texts: str) -> None:
        for text in texts:
            self._reporter.log(text)

    def _about(self) -> list[str]:
        """What it is trained on, and which of its settings change nothing."""
        of_machine = [*device_announcements(self._run), *memory_announcements(self._run)]
        return [*of_machine, *settings_announcements(self._run)]

    def _log_crash(self, error: BaseException) -> None:
        if self._files is not None:  # else opening them failed
            self._reporter.crash(error)


def _on_all_devices(
    config: TrainerConfig, processes: Processes, mesh: Mesh | None
) -> TrainerConfig:
    """The same settings, with the devices of all processes if there are several and none is asked
    for.
    """
    if processes.count == 1 or config.devices > 1 or mesh is not None:
        return config
    return dataclasses.replace(config, devices=jax.device_count())
