"""`Trainer`: the loop init → [outer iteration → evaluate → checkpoint → log], and everything that
happens on the host.

Longer than our files usually are, for one class owns the life of a run: what it compiles
(`program`), writes (`outputs`) and says (`recording`) stands in files of their own.
"""

import collections
import dataclasses
import os
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import gymnasium
import jax
import numpy as np

from rlkit.agents.base import Agent
from rlkit.algorithms.base import Algorithm
from rlkit.envs.base import EnvAdapter
from rlkit.envs.registry import make_env
from rlkit.errors import CheckpointError, ConfigError, RlkitError, RunDirectoryError, require
from rlkit.training.callbacks import Callback, ProgressBar
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.compile.parallel_seeds import num_groups
from rlkit.training.config import (
    REPLAY_LIMIT,
    CheckpointerConfig,
    LoggerConfig,
    Plan,
    TrainerConfig,
    make_plan,
)
from rlkit.training.core.module import Module, RLModule
from rlkit.training.files.checkpoint_leaves import tree_digest
from rlkit.training.files.checkpointer import Checkpointer
from rlkit.training.files.replay_size import check_replay, device_memory
from rlkit.training.files.run_files import (
    Outputs,
    Path,
    describe,
    from_items,
    to_items,
    without_replay,
)
from rlkit.training.logs import metrics as recording
from rlkit.training.logs.loggers import Logger
from rlkit.training.logs.metrics import Moment
from rlkit.training.logs.records import Record
from rlkit.training.programs.env_groups import num_at_once, remake
from rlkit.training.programs.evaluation import Evaluation
from rlkit.training.programs.factory import make_program
from rlkit.training.programs.protocol import Program
from rlkit.training.run_config import hparams_to_dict
from rlkit.types import Key, PyTree, TrainState
from rlkit.validation import validate
from rlkit.xla_cpu.process import start_run

EvalFn = Callable[[Any], str | dict[str, float] | None]
Which = int | Literal["latest", "best"]

DEFAULT_NUM_ENVS = 4  # made of a gymnasium.Env class; the default of EnvConfig too
DEFAULT_EVAL_ENVS = 8  # on the host, where fewer are trained in


class Trainer:
    """Trains an agent with an algorithm, and evaluates, saves and logs after every outer iteration.

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
        env: "EnvAdapter | gymnasium.Env[Any, Any] | type[gymnasium.Env[Any, Any]]",
        eval_env: "EnvAdapter | gymnasium.Env[Any, Any] | type[gymnasium.Env[Any, Any]] | None",
        agent: Agent,
        algorithm: Algorithm,
        config: TrainerConfig,
        *,
        logger: Logger | LoggerConfig | Path | None = None,
        checkpointer: Checkpointer | CheckpointerConfig | Path | None = None,
        callbacks: Sequence[Callback] = (),
        eval_fn: EvalFn | None = None,
    ):
        validate(config)
        self._own_envs: list[EnvAdapter] = []
        env, eval_env = self._adapter(env), None if eval_env is None else self._adapter(eval_env)
        if eval_env is None:
            eval_env = env if env.is_jittable else self._evaluation_env(env, config)
        algorithm = algorithm.override(
            warmup_steps=config.warmup_steps, replay_buffer_capacity=config.replay_buffer_capacity
        )
        steps = algorithm.env_steps_per_iteration(env)
        plan = make_plan(
            config,
            env_steps_per_iteration=steps,
            prefill_steps=algorithm.prefill_collects(env) * steps,
        )
        self._eval_env: EnvAdapter | None = eval_env
        module = RLModule(
            env=env,
            agent=agent,
            algorithm=algorithm,
            total_steps=plan.total_steps,
            eval_env=self._eval_env if config.enable_evaluation else None,
            evaluation_episodes=config.evaluation_episodes,
            max_evaluation_steps=config.max_evaluation_steps,
        )
        self._set_up(module, plan, config, logger, checkpointer, callbacks, eval_fn)

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
    ) -> "Trainer":
        """A trainer of any `Module`: it gets the same loop, logs and checkpoints.

        `env_steps_per_iteration` is what one training step counts for in `total_steps`; None: 1,
        of an `RLModule` its environment steps. Settings of the replay buffer, warm-up and number of
        evaluation episodes are the module's own business here.
        """
        trainer = cls.__new__(cls)
        validate(config)
        trainer._own_envs = []
        trainer._eval_env, steps, prefill = None, env_steps_per_iteration or 1, 0
        if isinstance(module, RLModule):
            trainer._eval_env = module.eval_env
            if module.eval_env is None and module.env.is_jittable:
                trainer._eval_env = module.env
            steps = module.algorithm.env_steps_per_iteration(module.env)
            prefill = module.algorithm.prefill_collects(module.env) * steps
        plan = make_plan(config, env_steps_per_iteration=steps, prefill_steps=prefill)
        trainer._set_up(module, plan, config, logger, checkpointer, callbacks, eval_fn)
        return trainer

    def _set_up(
        self,
        module: Module,
        plan: Plan,
        config: TrainerConfig,
        logger: Any,
        checkpointer: Any,
        callbacks: Sequence[Callback],
        eval_fn: EvalFn | None,
    ) -> None:
        start_run(on_host=isinstance(module, RLModule) and not module.env.is_jittable)
        require(
            not config.deterministic or os.environ.get("NPROC") == "1",
            "deterministic=True, but this process may compute on several threads, whose results"
            " vary",
            "start it with NPROC=1 in the environment (rlkit train --deterministic does)",
            ConfigError,
        )
        self.module = module
        self.config = config
        self.plan = plan
        self._memory = device_memory()
        self._replay_bytes = check_replay(module, config.num_seeds, self._memory)  # of all seeds
        groups = num_groups(config.num_seeds, replay_bytes=self._replay_bytes, memory=self._memory)
        self.compiler = Compiler(config.num_seeds, groups)
        self.program = self._make_program(plan)
        self._planned_evaluation = Evaluation(module, self.compiler)
        self._evaluations: dict[
            int, Evaluation
        ] = {}  # by number of episodes, those that `evaluate` was asked for
        self.state: PyTree = None
        self.seed: int | None = None
        self._keys: Key | None = None  # of all seeds; None: not told
        self._started_from: list[Any] | None = (
            None  # the data of these keys, also of a run that is restored
        )
        self.stop_reason: str | None = None
        self._outputs: Outputs | None = None
        self._open_arguments: dict[str, Any] = {"logger": logger, "checkpointer": checkpointer}
        self._callbacks = [*callbacks, *([ProgressBar()] if config.debug else [])]
        self._eval_fn = eval_fn
        self._started: float | None = None
        self._session_steps = 0  # environment steps of one seed in this call of `run`
        self._session_start = 0.0  # `wall_seconds` at the start of this call of `run`
        self._compiled_before = 0.0  # seconds spent compiling before this call of `run`
        self._last_report = 0.0
        self._begin()

    def _begin(self) -> None:
        """Forgets whatever was trained before."""
        self.history: list[dict[str, Any]] = []
        self.outer_iteration = 0
        self._steps_beside = (
            0  # environment steps of one seed that the plan does not know, see `train_step`
        )
        self._wall_before = 0.0  # seconds that earlier parts of this run took
        self._is_lost = False  # whether there was a state, which went down with an iteration
        self._is_begun = False  # whether the moment before the first outer iteration was reported
        self._saved_iteration = -1
        self._updates = 0  # gradient steps at the last report
        self._seed_returns: list[float] | None = None  # of the last evaluation
        self._return_std: float | None = None  # of the last evaluation, over all of its episodes
        self._parent: dict[str, Any] | None = (
            None  # the checkpoint of another run that this one went on from
        )

    def __enter__(self) -> "Trainer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What a run is made of

    def init(self, key: Key | int | None) -> PyTree:
        """The state before training, fresh or restored as `config.restore_checkpoint` says; opens
        the run directory.

        `key` is a typed key, a batch of S of them, or a seed; from seed s, the seeds of the run are
        s, s + 1, …, so that each equals the single run of that seed. None: whatever the run was
        started from, for one that is restored. The next training step takes the buffers of the
        state over: copy what you want to keep.
        """
        opened_here = self._outputs is None
        try:
            return self._init(key)
        except RlkitError:
            if opened_here:  # so that the directory is free for another try
                self.close()
            raise

    def _init(self, key: Key | int | None) -> PyTree:
        self._take_key(key)
        outputs = self._open()
        require(
            outputs.run_directory is None or outputs.description == self.description(),
            "the run directory was opened for another seed, or for none",
            "pass the seed of its config.yaml, or use another run_dir",
            RunDirectoryError,
        )
        which, checkpointer = self.config.restore_checkpoint, outputs.checkpointer
        found = None if checkpointer is None else checkpointer.latest_step()
        begins_again = which == "auto" and found is None
        if checkpointer is not None and which is not None and not begins_again:
            self._restore(checkpointer, "latest" if which == "auto" else which, same_run=True)
            return self.state
        if self._keys is None:
            raise CheckpointError(
                "this run has no checkpoint yet, and its key is not known; start it again from its"
                " own script"
            )
        require(
            found is None,
            f"there are checkpoints of another run already (up to step {found})",
            'choose another directory, or set restore_checkpoint="auto" to go on',
            CheckpointError,
        )
        self._begin()
        if begins_again:  # a run that was cut before its first checkpoint may have left rows
            outputs.logger.restore({})
        self._announce_memory()
        self.state = self.program.init(self._keys)
        return self.state

    def open(self, *, seed: int | None = None) -> None:
        """Opens run directory, logs and checkpoints now rather than in `init`, so that what is
        wrong with them is told at once.
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
        self._started, self._compiled_before = time.perf_counter(), self.compiler.seconds
        if key is not None:
            try:
                self.init(key)
            except Exception as error:
                if not isinstance(
                    error, RlkitError
                ):  # those are about settings, and leave the files of the run as they are
                    self._log_crash(error)
                self._started = None
                raise
        if self._is_lost:
            self._require_state()
        require(
            self.state is not None,
            "run() continues a run, but there is none yet",
            "call run(key), for instance run(0)",
            ConfigError,
        )
        outputs = self._open()
        self._session_start = self._wall_before
        before = len(self.history)
        try:
            outputs.logger.start(self.hparams())
            if self.outer_iteration < self.plan.num_checkpoints:
                self._refill()
            self._announce(outputs.checkpointer)
            self._each("on_run_start")
            self._loop()
            outputs.write_summary(self.summary(), replace=self._session_steps > 0)
        except BaseException as error:
            self._log_crash(error)
            self._wind_down(outputs, error)
            raise
        self._wind_down(outputs, None)
        return self.history[before:]

    def train_step(self) -> dict[str, np.ndarray]:
        """One iteration (collect, then update) outside the plan; returns its metrics."""
        self._require_state()
        self._refill()
        results = self._advance(self.program.single)
        self._steps_beside += self.plan.env_steps_per_iteration
        return self._fetch(results)

    def train_epoch(self) -> dict[str, np.ndarray]:
        """One outer iteration without evaluation, checkpoint or logs; returns its metrics."""
        self._require_state()
        self._refill()
        results = self._advance(self.program.outer)
        self.outer_iteration += 1
        return self._fetch(results)

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
        from rlkit.training.policy import play_episodes

        self._require_state()
        if not isinstance(self.module, RLModule):
            raise ConfigError(
                "rollout plays episodes of an environment, but this module has none; call its own"
                " methods"
            )
        evaluator = self._with_eval_env().evaluator()
        return play_episodes(
            evaluator,
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
        if path is None:
            checkpointer = self._open().checkpointer
            if checkpointer is None:
                raise CheckpointError(
                    "this run has no checkpoints; set run_dir, or call save_checkpoint(path)"
                )
            require(
                self.outer_iteration not in checkpointer.all_steps(),
                f"outer iteration {self.outer_iteration} is saved already, and train_step() does"
                " not advance it",
                "use train_epoch(), or save_checkpoint(path) with a directory of its own",
                CheckpointError,
            )
            self._save(checkpointer, self.outer_iteration, self.state, evaluation_score)
            checkpointer.wait()
        else:
            own = self._open().checkpointer
            save_replay = (
                self.config.checkpointer_config.save_replay if own is None else own.save_replay
            )
            with Checkpointer(
                CheckpointerConfig(directory=str(path), save_replay=save_replay)
            ) as checkpointer:
                self._save(checkpointer, self.outer_iteration, self.state, evaluation_score)
        return self.outer_iteration

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
            step = self._restore(checkpointer, which, same_run=False)
        self._parent = {"directory": os.path.abspath(directory), "step": step}
        return self.state

    # What one may ask

    @property
    def env_steps(self) -> int:
        """Environment steps of one seed so far, prefill included; exact."""
        return self.steps_at(self.outer_iteration)

    def steps_at(self, iteration: int) -> int:
        """Environment steps of one seed after that many outer iterations."""
        return (
            self.plan.prefill_steps
            + iteration * self.plan.steps_per_checkpoint
            + self._steps_beside
        )

    @property
    def wall_seconds(self) -> float:
        """Seconds spent in `run`, over all parts of this run."""
        return self._wall_before + (
            0.0 if self._started is None else time.perf_counter() - self._started
        )

    def request_stop(self, reason: str) -> None:
        """Ends the run after the outer iteration in progress, saved; safe to call from callbacks,
        threads and signal handlers.
        """
        self.stop_reason = reason

    def hparams(self) -> dict[str, Any]:
        """All settings as a nested dict of plain values, for loggers."""
        return hparams_to_dict(self.description())

    def description(self) -> dict[str, Any]:
        """The run as plain data: a `RunConfig` where every part comes from a registry, else what
        can be told.
        """
        return describe(self.module, self._eval_env, self.config, self.seed)

    def summary(self) -> dict[str, Any]:
        """What `summary.json` holds."""
        returns = self._seed_returns
        seconds = self.wall_seconds
        compiling = self.compiler.seconds - self._compiled_before
        trained = max(seconds - self._session_start - compiling, 1e-9)
        learner = self.state.learner if isinstance(self.state, TrainState) else self.state
        return {
            "env_steps": self.env_steps,
            "outer_iterations": self.outer_iteration,
            "num_seeds": self.config.num_seeds,
            "wall_seconds": round(seconds, 3),
            "compile_seconds": round(self.compiler.seconds, 3),
            "env_steps_per_second": round(self._session_steps * self.config.num_seeds / trained, 1),
            "eval_return_mean": None if returns is None else float(np.mean(returns)),
            "eval_return_std": self._return_std,
            "eval_return_per_seed": returns,
            "stop_reason": self.stop_reason,
            "parent": self._parent,
            "versions": recording.versions(),
            "fingerprint": recording.fingerprint(),
            "params_sha256": tree_digest(learner),
        }

    def close(self) -> None:
        """Finishes writing and closes the files and the environments that this trainer opened;
        those of yours stay open.
        """
        outputs, self._outputs = self._outputs, None
        try:
            if outputs is not None:
                outputs.close()
        finally:
            for part in (
                self.program,
                self.compiler,
                self._planned_evaluation,
                *self._evaluations.values(),
                *self._own_envs,
            ):
                part.close()

    # The loop

    def _loop(self) -> None:
        pending: collections.deque[_Pending] = collections.deque()
        # An outer iteration on the host is over when it returns, and the next one may fail: nothing
        # is gained by waiting.
        most_pending = self.config.max_queued if self._is_compiled() else 1
        first = self.outer_iteration
        self._session_steps = 0
        if first == 0 and not self._is_begun:
            self._report(
                self._dispatch(
                    None,
                    evaluated=self.config.enable_evaluation
                    and not self.config.skip_initial_evaluation,
                )
            )
            self._is_begun = True
        self._last_report = time.perf_counter()
        while self.outer_iteration < self.plan.num_checkpoints and self.stop_reason is None:
            compiled = self.compiler.seconds
            results = self._advance(self.program.outer)
            self.outer_iteration += 1
            evaluated = self.config.enable_evaluation and self._is_due(self.config.eval_every)
            pending.append(self._dispatch(results, evaluated=evaluated))
            self._last_report += self.compiler.seconds - compiled  # compiling is not training
            while len(pending) >= most_pending:
                self._report(pending.popleft())
        while pending:
            self._report(pending.popleft())
        checkpointer = self._open().checkpointer
        if (
            checkpointer is not None
            and self._saved_iteration < self.outer_iteration
            and self.outer_iteration > first
        ):
            self._save(checkpointer, self.outer_iteration, self.state, None)
        if self.stop_reason is not None:
            self._log_text(
                f"stopped after {self.env_steps:,} environment steps: {self.stop_reason}"
            )

    def _dispatch(self, results: Any, *, evaluated: bool) -> "_Pending":
        """Queues what is to be known of this moment, before the next outer iteration takes the
        state over.
        """
        checkpointer = self._open().checkpointer
        saved = checkpointer is not None and (
            results is None or self._is_due(self.config.checkpoint_every)
        )
        host_copy = self._eval_fn is not None and evaluated
        # What is not saved is not copied either, unless a function of the user's gets to see it.
        is_partial = self._eval_fn is None and self._leaves_out_replay(checkpointer)
        copied = without_replay(self.state) if is_partial else self.state
        return _Pending(
            iteration=self.outer_iteration,
            results=results,
            evaluation=self._planned_evaluation(self.state) if evaluated else None,
            state=self.program.copy(copied) if saved or host_copy else None,
            saved=saved,
        )

    def _report(self, pending: "_Pending") -> None:
        """Waits for an outer iteration, then logs and saves it."""
        results, evaluation = jax.device_get((pending.results, pending.evaluation))
        now = time.perf_counter()
        moment = self._moment(pending.iteration, results)
        if results is not None:
            self._session_steps += self.plan.steps_per_checkpoint
            speed = (
                self.plan.steps_per_checkpoint
                * self.config.num_seeds
                / max(now - self._last_report, 1e-9)
            )
            self._last_report = now
            self._report_training(pending.iteration, results[0], moment, speed)
            self.history.append(evaluation or {})
        if evaluation is not None:
            self._report_evaluation(pending, evaluation, moment)
        checkpointer = self._open().checkpointer
        if pending.saved and checkpointer is not None and pending.iteration > self._saved_iteration:
            self._save(
                checkpointer,
                pending.iteration,
                pending.state,
                recording.score(evaluation or {}, self.config.num_seeds),
            )

    def _report_training(
        self, iteration: int, metrics: dict[str, Any], moment: Moment, speed: float
    ) -> None:
        records = recording.train_records(
            metrics, moment, num_seeds=self.config.num_seeds, steps_per_second=speed
        )
        if iteration % self.config.log_every == 0 or iteration == self.plan.num_checkpoints:
            for record in records:
                self._open().logger.log(record)
        previous, self._updates = self._updates, moment.updates
        warning = recording.check_finite(iteration, metrics, moment.updates - previous)
        if warning is not None:
            self._log_text(warning)
        named = {name.removeprefix("train/"): value for name, value in records[-1].metrics.items()}
        self._each("on_iteration_end", iteration, named)

    def _report_evaluation(
        self, pending: "_Pending", evaluation: dict[str, Any], moment: Moment
    ) -> None:
        returns = recording.seed_returns(evaluation, self.config.num_seeds)
        self._seed_returns = None if returns is None else returns.tolist()
        self._return_std = None if returns is None else float(np.std(evaluation["return"]))
        extra = self._eval_fn(pending.state) if self._eval_fn is not None else None
        records = recording.eval_records(evaluation, moment, num_seeds=self.config.num_seeds)
        if isinstance(extra, dict):
            records[-1].metrics.update(
                {f"eval/{name}": float(value) for name, value in extra.items()}
            )
        for record in records:
            if record.metrics:
                self._open().logger.log(record)
        if isinstance(extra, str):
            self._open().logger.log(Record(kind="text", text=extra, **dataclasses.asdict(moment)))
        if evaluation:
            self._each("on_evaluation", pending.iteration, evaluation)

    def _is_due(self, every: int) -> bool:
        return (
            self.outer_iteration % every == 0 or self.outer_iteration == self.plan.num_checkpoints
        )

    def _moment(self, iteration: int, results: Any) -> Moment:
        """When that outer iteration ended, by the module's own exact counters where it has any."""
        counts = None if results is None else recording.exact_counts(results[1])
        env_steps, updates = counts or (
            self.steps_at(iteration),
            iteration * self.plan.epochs_per_checkpoint,
        )
        return Moment(
            env_steps=env_steps, updates=updates, wall_seconds=round(self.wall_seconds, 3)
        )

    def _fetch(self, results: Any) -> dict[str, np.ndarray]:
        """The metrics of what was trained beside `run`."""
        metrics, counters = jax.device_get(results)
        counts = recording.exact_counts(counters)
        self._updates = self._updates if counts is None else counts[1]
        return metrics

    def _announce(self, checkpointer: Checkpointer | None) -> None:
        """Says what is about to be trained, and what checkpoints leave out."""
        self._log_text(
            recording.announcement(
                self.plan, self.outer_iteration, self.env_steps, self.config.num_seeds
            )
        )
        is_left = self.outer_iteration < self.plan.num_checkpoints
        if is_left and checkpointer is not None and self._leaves_out_replay(checkpointer):
            self._log_text(
                recording.replay_left_out(
                    self._replay_bytes, is_asked=checkpointer.save_replay is False
                )
            )

    def _announce_memory(self) -> None:
        """Says how much memory the replay buffer takes, before it does."""
        if not isinstance(self.module, RLModule) or self.module.algorithm.replay_buffer is None:
            return
        capacity, num_seeds = self.module.algorithm.replay_buffer.capacity, self.config.num_seeds
        self._log_text(
            recording.replay_memory(capacity, num_seeds, self._replay_bytes, self._memory)
        )

    # What the host steps

    def _is_compiled(self) -> bool:
        """Whether an outer iteration is one program, rather than a loop on the host."""
        return not isinstance(self.module, RLModule) or self.module.env.is_jittable

    def _make_program(self, plan: Plan) -> Program:
        return make_program(
            self.module,
            compiler=self.compiler,
            epochs=plan.epochs_per_checkpoint,
            overlap=self.config.overlap,
            compile_host_loop=self.config.compile_host_loop,
        )

    def _adapter(self, env: Any) -> EnvAdapter:
        """Adapters as they are; of `gymnasium.Env`s one that this trainer closes."""
        if isinstance(env, EnvAdapter):
            return env
        self._own_envs.append(make_env(env, DEFAULT_NUM_ENVS if isinstance(env, type) else 1))
        return self._own_envs[-1]

    def _evaluation_env(self, env: EnvAdapter, config: TrainerConfig) -> EnvAdapter | None:
        """Environments like `env` for evaluation; they start when they are first needed."""
        try:
            most = max(env.num_envs, DEFAULT_EVAL_ENVS)
            self._own_envs.append(remake(env, num_at_once(env, config.evaluation_episodes, most)))
        except ConfigError as error:
            if not config.enable_evaluation:
                return None
            raise ConfigError(
                f"{error}; or pass eval_env, or set enable_evaluation=False"
            ) from error
        return self._own_envs[-1]

    def _with_eval_env(self) -> RLModule:
        """The module with its environment for evaluation even where none is planned."""
        assert isinstance(self.module, RLModule)
        require(
            self._eval_env is not None,
            "there is no environment to evaluate in, for the one of training is busy",
            "pass eval_env to the Trainer",
            ConfigError,
        )
        return dataclasses.replace(self.module, eval_env=self._eval_env)

    def _evaluation_of(self, episodes: int | None) -> Evaluation:
        """The evaluation over as many episodes, None: the one that is planned."""
        module = self.module
        if not isinstance(module, RLModule) or (episodes is None and module.eval_env is not None):
            return self._planned_evaluation
        episodes = module.evaluation_episodes if episodes is None else episodes
        if episodes not in self._evaluations:
            asked = dataclasses.replace(self._with_eval_env(), evaluation_episodes=episodes)
            self._evaluations[episodes] = Evaluation(asked, self.compiler)
        return self._evaluations[episodes]

    # Files

    def _open(self) -> Outputs:
        if self._outputs is None:
            self._outputs = Outputs(self.config, self.description(), **self._open_arguments)
        return self._outputs

    def _leaves_out_replay(self, checkpointer: Checkpointer | None) -> bool:
        """Whether its checkpoints hold all but the replay memory."""
        if checkpointer is None or self._replay_bytes == 0:
            return False
        return (
            self._replay_bytes > REPLAY_LIMIT
            if checkpointer.save_replay is None
            else not checkpointer.save_replay
        )

    def _lacks_replay(self, state: PyTree) -> bool:
        """Whether it is of a checkpoint without the replay memory that its algorithm needs."""
        return self._replay_bytes > 0 and not jax.tree.leaves(state.local.memory)

    def _save(
        self, checkpointer: Checkpointer, iteration: int, state: PyTree, score: float | None
    ) -> None:
        state = without_replay(state) if self._leaves_out_replay(checkpointer) else state
        metadata = {
            "outer_iteration": iteration,
            "plan": dataclasses.asdict(self.plan),
            "env_steps": self.steps_at(iteration),
            "updates": (
                state.learner.updates.to_int() if isinstance(state, TrainState) else self._updates
            ),
            "seed_returns": self._seed_returns,
            "return_std": self._return_std,
            "seed": self.seed,
            "replay": not self._lacks_replay(state),
            "normalize_observations": (
                isinstance(state, TrainState) and state.learner.obs_stats is not None
            ),
            "keys": self._started_from,
            "num_seeds": self.config.num_seeds,
            "wall_seconds": self.wall_seconds,
            "logger": self._open().logger.state(),
            "description": self.description(),
            "parent": self._parent,
            "fingerprint": recording.fingerprint(),
            "versions": recording.versions(),
        }
        checkpointer.save(iteration, to_items(state), score=score, metadata=metadata)
        if checkpointer is self._open().checkpointer:
            self._saved_iteration = iteration
        self._each("on_checkpoint", iteration)

    def _restore(self, checkpointer: Checkpointer, which: Which, *, same_run: bool) -> int:
        """Takes over a checkpoint; returns its step."""
        shape = self.program.state_shape(self.compiler.keys(0))

        def items(metadata: dict[str, Any]) -> dict[str, PyTree]:
            saved = shape if metadata.get("replay", True) else without_replay(shape)
            return {
                name: item for name, item in to_items(saved).items() if name != "policy"
            }  # the learner has it too

        restored = checkpointer.restore(which, items)
        damaged = [step for step, _ in restored.skipped]
        started_from = restored.metadata.get("keys")
        if same_run:
            require(
                self._keys is None or started_from == self._started_from,
                "this run was started from another key or seed",
                "pass the same one, or None to go on from whichever it was",
                RunDirectoryError,
            )
            newer = [
                step
                for step in checkpointer.all_steps()
                if step > restored.step and step not in damaged
            ]
            require(
                not newer,
                f"step {restored.step} is older than the latest, {max(newer, default=0)}: "
                "going on from it would overwrite what followed",
                "use a new run_dir, and load_checkpoint(old_run_dir, step) before run()",
                CheckpointError,
            )
        metadata = restored.metadata
        if self._keys is None or not same_run:
            self.seed, self._started_from = metadata.get("seed"), started_from
        before = Plan(**metadata["plan"]) if "plan" in metadata else self.plan
        self._begin()
        self.state = from_items(restored.items, shape)
        self._adopt(before, same_run=same_run)
        if not self._lacks_replay(self.state):  # else `_refill` starts it
            self.state = self.program.restart(self.state)
        self.outer_iteration = metadata.get("outer_iteration", restored.step)
        self._steps_beside = metadata.get("env_steps", self.env_steps) - self.env_steps
        if self.plan.total_steps != before.total_steps:
            self._set_horizon()
        self._updates = metadata.get("updates", 0)
        self._seed_returns, self._return_std = (
            metadata.get("seed_returns"),
            metadata.get("return_std"),
        )
        if same_run:
            for step in damaged:
                checkpointer.set_aside(step)
            self._is_begun = True
            self._wall_before = metadata.get("wall_seconds", 0.0)
            self._saved_iteration = restored.step
            self._parent = metadata.get("parent")
            self._open().logger.restore(metadata.get("logger", {}))
        self._announce_memory()
        if not self._is_compiled():
            self._log_text("environments on the host cannot be restored: their episodes start anew")
        if metadata.get("fingerprint") not in (None, recording.fingerprint()):
            self._log_text(
                "resumed on other hardware, versions or settings: results agree to rounding, not"
                " bit for bit"
            )
        return restored.step

    def _refill(self) -> None:
        """Fills a replay memory that the checkpoint left out, before anything is learned
        from it.
        """
        if not self._lacks_replay(self.state):
            return
        assert isinstance(self.module, RLModule)
        steps = (
            self.module.algorithm.refill_collects(self.module.env)
            * self.plan.env_steps_per_iteration
        )
        self._log_text(
            f"the replay buffer was not saved: {steps:,} steps by the restored policy fill it anew,"
            " on top of total_steps; the run does not equal an uninterrupted one bit for bit"
        )
        self._advance(lambda ts: (self.program.refill(ts), None))
        self._steps_beside += steps
        self._set_horizon()

    def _set_horizon(self) -> None:
        """Lets schedules end where the run will, with the steps that the plan does not know."""
        if isinstance(self.module, RLModule):
            self.state = self.module.with_horizon(
                self.state, self.steps_at(self.plan.num_checkpoints)
            )

    def _adopt(self, before: Plan, *, same_run: bool) -> None:
        """Goes on with outer iterations of the size that the checkpoint was made with; a longer run
        gets more of them.
        """
        if before.epochs_per_checkpoint != self.plan.epochs_per_checkpoint:
            config = dataclasses.replace(
                self.config,
                total_steps=self.config.total_steps or self.plan.total_steps,
                num_checkpoints=None,
                epochs_per_checkpoint=before.epochs_per_checkpoint,
            )
            self.plan = make_plan(
                config,
                env_steps_per_iteration=self.plan.env_steps_per_iteration,
                prefill_steps=self.plan.prefill_steps,
            )
            self.program.close()
            self.program = self._make_program(self.plan)
        if self.plan.total_steps == before.total_steps:
            return
        if same_run:
            require(
                self.plan.total_steps > before.total_steps,
                f"total_steps={self.plan.total_steps} is less than the {before.total_steps} of"
                " the run",
                "give a larger one to extend it",
            )
            self._open().extend(self.plan)

    # Small things

    def _take_key(self, key: Key | int | None) -> None:
        self._keys = None if key is None else self.compiler.keys(key)
        self._started_from = (
            None if self._keys is None else np.asarray(jax.random.key_data(self._keys)).tolist()
        )
        self.seed = int(key) if isinstance(key, (int, np.integer)) else None

    def _require_state(self) -> None:
        cure = "load_checkpoint(...), or start again by init(key) or run(key)"
        require(
            not self._is_lost,
            "the state was lost when an iteration was cut short",
            cure,
            ConfigError,
        )
        require(
            self.state is not None,
            "there is no state yet",
            "call init(key) or run(key) first",
            ConfigError,
        )

    def _advance(self, step: Callable[[PyTree], tuple[PyTree, Any]]) -> Any:
        """Takes a step of the program, which takes the state over; returns its results.

        After an error or an interruption, the state is the one of the last update that was
        finished, where that can be had.
        """
        state, self.state = self.state, None
        try:
            self.state, results = step(state)
        except BaseException:
            unfinished = getattr(self.program, "unfinished", None)
            self._is_lost = unfinished is None
            if unfinished is not None:
                self.state, iterations = unfinished
                self._steps_beside += iterations * self.plan.env_steps_per_iteration
            raise
        return results

    def _each(self, method: str, *arguments: Any) -> None:
        for callback in self._callbacks:
            getattr(callback, method)(self, *arguments)

    def _log_text(self, text: str) -> None:
        moment = Moment(
            env_steps=self.env_steps,
            updates=self._updates,
            wall_seconds=round(self.wall_seconds, 3),
        )
        self._open().logger.log(Record(kind="event", text=text, **dataclasses.asdict(moment)))

    def _log_crash(self, error: BaseException) -> None:
        if self._outputs is None:  # what failed was opening them
            return
        is_bug = not isinstance(error, RlkitError)  # those say all there is to say
        text = (
            "".join(traceback.format_exception(error))
            if is_bug
            else f"{type(error).__name__}: {error}"
        )
        moment = Moment(
            env_steps=self.env_steps,
            updates=self._updates,
            wall_seconds=round(self.wall_seconds, 3),
        )
        try:
            self._outputs.logger.log(Record(kind="error", text=text, **dataclasses.asdict(moment)))
            self._outputs.logger.flush()
        except (
            Exception
        ) as failure:  # the log itself may be what failed; the first error is the one to see
            error.add_note(f"and the crash could not be logged: {failure}")

    def _wind_down(self, outputs: Outputs, error: BaseException | None) -> None:
        """Ends a call of `run`, all steps of it even if one fails. `error` is what ended the run,
        the one to see if any.
        """
        self._wall_before, self._started = self.wall_seconds, None
        first = error
        for end in (
            *(partial(callback.on_run_end, self) for callback in self._callbacks),
            outputs.flush,
        ):
            try:
                end()
            except Exception as failure:
                if first is None:
                    first = failure
                    self._log_crash(failure)
                else:
                    first.add_note(
                        f"and at the end of the run: {type(failure).__name__}: {failure}"
                    )
        if error is None and first is not None:
            raise first


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Pending:
    """An outer iteration that the device may still be working on."""

    iteration: int
    results: Any  # (metrics, counters), None before the first outer iteration
    evaluation: Any
    state: PyTree  # a copy that no later call takes over, None where it is not needed
    saved: bool
