"""`Run`: the state of a run, which the Trainer, its reporter and a restored checkpoint change."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from rlkit.algorithms.metrics import NON_FINITE, split_each
from rlkit.errors import ConfigError, EnvStateError, require
from rlkit.spaces import has_floats
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.compile.devices import devices_of_run
from rlkit.training.compile.parallel_seeds import num_groups, trains_seed_by_seed
from rlkit.training.config import Plan, TrainerConfig
from rlkit.training.core.module import Module, RLModule
from rlkit.training.core.swept_module import SweptModule
from rlkit.training.files.checkpoint_items import lacks_replay, leaves_out_replay
from rlkit.training.files.checkpointer import Checkpointer
from rlkit.training.files.memory_size import check_memory
from rlkit.training.files.replay_size import check_replay, device_memory
from rlkit.training.finite_checks import check_metrics, last_saved
from rlkit.training.health import Health, Setting
from rlkit.training.history import History
from rlkit.training.interrupts import deferred_interrupts
from rlkit.training.logs.metrics import HostMetrics, Moment, exact_counts
from rlkit.training.phase_plan import plan_of_phases
from rlkit.training.processes.group import ALONE, Processes
from rlkit.training.programs.factory import make_program
from rlkit.training.programs.protocol import Program, Results
from rlkit.training.programs.shares import share_of
from rlkit.training.run_clock import RunClock
from rlkit.training.run_parts import RunParts
from rlkit.training.run_phases import RunPhases
from rlkit.training.run_progress import RunProgress
from rlkit.types import Key, PyTree
from rlkit.xla_cpu.process import start_run


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunStart:
    """What a run is started from."""

    keys: Key | None  # of all seeds; None: not given
    progress: RunProgress  # before training


class Run:
    """Train state, plan and progress of a run, and the program that trains it.

    Raises `ConfigError` if what it needs does not fit into the device's memory, or if the
    process may compute on more threads than a deterministic run allows.
    """

    def __init__(
        self,
        parts: RunParts,
        config: TrainerConfig,
        mesh: Mesh | None = None,
        processes: Processes = ALONE,
    ):
        start_run(on_host=not parts.is_compiled)
        _require_jit()
        _require_pinned_threads(config)
        self.phases = RunPhases(parts, self._make_program)
        self.config, self.plan, self.processes = config, parts.plan, processes
        self.devices = devices_of_run(
            config.devices, config.shard, num_seeds=config.num_seeds, mesh=mesh
        )
        for phase in self.phases.all:
            share_of(phase.module, self.devices)  # which raises what cannot be divided
        self.memory = device_memory(self.devices)  # bytes; None: unknown
        each = [check_replay(p.module, config.num_seeds, self.memory) for p in self.phases.all]
        self.replay_bytes = max(each)
        memory: dict[str, Any] = {"replay_bytes": self.replay_bytes, "memory": self.memory}
        is_one = self.devices is None  # else a core is busy with each
        seed_by_seed = is_one and trains_seed_by_seed(
            config.num_seeds, deterministic=config.deterministic, **memory
        )
        for phase, replay_bytes in zip(self.phases.all, each, strict=True):
            check_memory(
                phase.module,
                phase.plan,
                num_seeds=config.num_seeds,
                seeds_at_once=1 if seed_by_seed else config.num_seeds,
                replay_bytes=replay_bytes,
                available=self.memory,
                copies=self.devices_per_seed,
            )
        self.compiler = Compiler(
            config.num_seeds,
            num_groups(config.num_seeds, **memory) if is_one else 1,
            seed_by_seed=seed_by_seed,
            shares=len(self.phases.all) > 1,
            devices=self.devices,
        )
        self.clock = RunClock(self.compiler)
        self.program: Program = self.phases.program(self.plan)
        self.on_warm_up: Callable[[int, int], None] = lambda done, total: None
        self.begin(RunProgress.start(self.plan))

    def begin(self, progress: RunProgress) -> None:
        """Forgets all earlier training, and continues from `progress`."""
        self.progress = progress
        self.state = None
        self.history = History()
        self.metrics: dict[str, float] = {}  # the latest of training and evaluation, over all seeds
        self.has_started = False  # whether the state before the first outer iteration was reported
        self.saved_iteration = -1
        self.untold_resets = 0  # for NaN or infinity, since the last outer iteration was reported
        self.health = Health()
        self.why_new_episodes = ""  # on resuming, as the log said last
        self.reported: Moment | None = None  # of the outer iteration that is being reported

    def start_from(self, key: Key | int | None) -> RunStart:
        """The start from a key, keys of all seeds, or a seed (None: unknown); changes nothing."""
        with deferred_interrupts():  # JAX imports MLIR's dialects now, and can do so only once
            keys = None if key is None else self.compiler.keys(key)
        progress = RunProgress.start(
            self.phases.all[0].plan,
            seed=int(key) if isinstance(key, (int, np.integer)) else None,
            keys=None if keys is None else jax.random.key_data(keys).tolist(),
        )
        return RunStart(keys=keys, progress=progress)

    def stop_clock(self) -> None:
        """Ends a call of `Trainer.run`."""
        self.progress = dataclasses.replace(self.progress, wall_seconds=self.wall_seconds)
        self.clock.stop()

    def use_plan(self, plan: Plan, phase: int = 0) -> None:
        """Continues with another plan, in a phase, and a program for outer iterations of its size.

        `plan` is that of a run which is in this phase.
        """
        is_other_size = plan.epochs_per_checkpoint != self.plan.epochs_per_checkpoint
        is_other_phase = phase != self.phases.index
        self.plan, self.phases.index = plan, phase
        if is_other_size or is_other_phase:
            self.program.close()
            self.program = self.phases.program(plan)

    def close(self) -> None:
        """Closes programs, and environments that were made for the run."""
        for part in (self.program, self.phases, self.compiler, *self.phases.whole.own_envs):
            part.close()

    @property
    def devices_per_seed(self) -> int:
        """How many devices train each seed."""
        return 1 if self.devices is None else self.devices.per_seed

    @property
    def seed_shares(self) -> int:
        """In how many shares devices train the seeds."""
        return 1 if self.devices is None else self.devices.of_seeds

    # Phases

    @property
    def parts(self) -> RunParts:
        """What is trained now: the parts of the run or, with a curriculum, of its phase."""
        return self.phases.current

    @property
    def is_phase_over(self) -> bool:
        """Whether the next outer iteration is the first of another phase."""
        return self.phases.is_over(self.plan, self.progress.outer_iteration)

    def enter_next_phase(self) -> None:
        """Goes on to the next phase.

        If it has the environments of the one before, their episodes go on. After an error the run
        is still in the phase before, unless the state is lost.
        """
        phases, plan, old = self.phases, self.plan, self.program
        before = phases.current.module
        with deferred_interrupts():
            phases.index += 1
            self.plan = plan_of_phases(plan.phases, plan.prefill_steps, phases.index)
            self.program = phases.program(self.plan)
            module = phases.current.module
            assert isinstance(before, RLModule) and isinstance(module, RLModule)
            if module.env is not before.env:
                try:
                    self._advance(lambda ts: (self.program.enter(ts), None), lambda done: done)
                except BaseException:
                    phases.index, self.plan, self.program = phases.index - 1, plan, old
                    raise
                if self.program is not old:
                    old.close()
                phases.close_env(before.env)
            elif self.program is not old:
                self.program.adopt(old)
            self.set_hyperparameters()
            self.set_horizon()  # a phase that ended early may have moved the end of the run
            self.health = self.health.in_next_phase()

    # Status

    @property
    def last_saved(self) -> str:
        """The end of an error's sentence, see `finite_checks`."""
        return last_saved(self.saved_iteration, self.steps_at(self.saved_iteration))

    @property
    def state(self) -> PyTree:
        """The current state; None before there is one, and while a step has it."""
        return self._state

    @state.setter
    def state(self, state: PyTree) -> None:
        self._state = state
        self.is_lost = False  # whether a failed iteration lost the state

    @property
    def is_complete(self) -> bool:
        """Whether all outer iterations of the plan are trained."""
        return self.progress.outer_iteration >= self.plan.num_checkpoints

    @property
    def wall_seconds(self) -> float:
        """Seconds spent in `Trainer.run`, including those before a resume."""
        return self.progress.wall_seconds + self.clock.seconds

    @property
    def setting(self) -> Setting:
        """What the checks of its health know of it."""
        module = self.parts.module
        known: dict[str, Any] = {
            "num_envs": 1,
            "action_space": None,
            "max_episode_steps": None,
            "hyperparameters": None,
            "has_floats": False,
        }
        if isinstance(module, RLModule):
            env, spec = module.env, module.algorithm.spec
            known = {
                "num_envs": env.num_envs,
                "action_space": env.action_space,
                "max_episode_steps": env.max_episode_steps,
                "hyperparameters": None if spec is None else spec[1],
                "has_floats": has_floats(env.observation_space),
            }
        return Setting(
            **known,
            num_seeds=self.config.num_seeds,
            steps_per_checkpoint=self.plan.steps_per_checkpoint,
            total_steps=self.plan.total_steps,
            eval_every=self.config.eval_every,
        )

    def steps_at(self, iteration: int) -> int:
        """Environment steps of one seed after `iteration` outer iterations."""
        return self.progress.steps_at(iteration, self.plan)

    def now(self) -> Moment:
        """The current moment, for records."""
        return Moment(
            env_steps=self.progress.env_steps,
            updates=self.progress.updates,
            wall_seconds=round(self.wall_seconds, 3),
        )

    def is_due(self, every: int) -> bool:
        """Whether something that happens every `every` outer iterations is due after this one."""
        iteration = self.progress.outer_iteration
        return iteration % every == 0 or iteration == self.plan.num_checkpoints

    def has_replay(self, state: PyTree) -> bool:
        """Whether the state holds the replay memory that its algorithm needs, if any."""
        return not lacks_replay(state, self.replay_bytes)

    def leaves_out_replay(self, checkpointer: Checkpointer | None) -> bool:
        """Whether its checkpoints leave out the replay memory."""
        return checkpointer is not None and leaves_out_replay(
            checkpointer.save_replay, self.replay_bytes
        )

    def environments(self, state: PyTree) -> tuple[np.ndarray | None, str]:
        """The environments of `state` as bytes, and why they cannot be saved.

        (None, "") if the state itself holds them, or lacks its replay memory: filling that starts
        new episodes.
        """
        if self.parts.is_compiled or not self.has_replay(state):
            return None, ""
        found, why = None, ""
        try:
            found = self.program.environments(state)
        except EnvStateError as error:
            why = str(error)
        why = next(filter(None, self.processes.agree(why)), "")
        return (None, why) if why or found is None else (self.processes.collected(found), "")

    def gathered(self, state: PyTree) -> PyTree:
        """A state whole and on the host, in process 0; in other processes anything."""
        if self.processes.count == 1:
            return state
        return self.processes.gathered(self.program.whole(state))

    def require_state(
        self,
        problem: str = "there is no state yet",
        cure: str = "call init(key) or run(key) first",
    ) -> None:
        """Raises `ConfigError` if there is no state to continue from."""
        require(
            not self.is_lost,
            "the state was lost when an iteration was cut short",
            "load_checkpoint(...), or start again with init(key) or run(key)",
        )
        require(self.state is not None, problem, cure)

    # Training

    def init(self, keys: Key) -> None:
        """Makes the state before training, from the keys of all seeds."""
        with self._warming_up(self.plan.prefill_steps):
            state = self.program.init(keys)
            self._check_warm_up("the random steps before training")
            self.state = state

    def outer_iteration(self) -> Results:
        """Runs an outer iteration; returns (metrics, counters)."""
        return self._advance(
            self.program.outer, lambda progress: progress.after_outer_iteration(self.plan)
        )

    def single_iteration(self) -> Results:
        """Runs an iteration outside the plan; returns (metrics, counters)."""
        steps = self.plan.env_steps_per_iteration
        return self._advance(self.program.single, lambda progress: progress.after_steps(steps))

    @property
    def refill_steps(self) -> int:
        """Environment steps that `refill` takes."""
        assert isinstance(self.parts.module, RLModule)
        collects = self.parts.module.algorithm.refill_collects(self.parts.module.env)
        return collects * self.plan.env_steps_per_iteration

    def refill(self) -> None:
        """Fills the replay memory that a checkpoint left out, with steps of the policy."""
        with self._warming_up(self.refill_steps):
            self._advance(
                lambda ts: (self._refilled(ts), None),
                lambda progress: progress.after_steps(self.refill_steps),
            )
        self.set_horizon()

    def _refilled(self, ts: PyTree) -> PyTree:
        ts = self.program.refill(ts)
        self._check_warm_up("the steps that fill the replay memory")
        return ts

    def _check_warm_up(self, where: str) -> None:
        """Raises `EnvFailedError` or `NonFiniteError` if the warm-up met NaN or infinity."""
        metrics = jax.device_get(self.program.warm_up_metrics)
        check_metrics(where, metrics, self.last_saved)
        if not self.parts.is_compiled:  # each process counts those of its own environments
            count = int(np.sum(metrics.get(NON_FINITE, 0)))
            metrics = {NON_FINITE: np.asarray(sum(self.processes.agree(count)))}
        self.count_resets(metrics)

    def count_resets(self, metrics: HostMetrics) -> None:
        """Counts the environments that were reset because they returned NaN or infinity."""
        count = int(np.sum(metrics.get(NON_FINITE, 0)))
        self.untold_resets += count
        total = self.progress.non_finite_steps + count
        self.progress = dataclasses.replace(self.progress, non_finite_steps=total)

    @contextlib.contextmanager
    def _warming_up(self, total: int) -> Iterator[None]:
        """Tells `on_warm_up` how many of the `total` environment steps are done.

        On the host after each rollout, otherwise only before the first and after the last.
        """
        if total > 0:
            size = self.plan.env_steps_per_iteration
            self.on_warm_up(0, total)
            self.program.on_warm_up = lambda rollouts: self.on_warm_up(rollouts * size, total)
        yield
        if total > 0 and self.parts.is_compiled:
            jax.block_until_ready(self.state)
            self.on_warm_up(total, total)
        self.clock.count_warm_up(total)

    def set_horizon(self) -> None:
        """Makes schedules end with the run, including the steps outside the plan."""
        if isinstance(self.parts.module, RLModule):
            last = self.parts.schedule_length or self.plan.num_checkpoints
            self.state = self.parts.module.with_horizon(self.state, self.steps_at(last))

    def include_steps_outside(self) -> None:
        """Makes schedules end with the run, if it took steps outside the plan.

        Those of `train_step`, of a refill, or of an outer iteration that was cut short.
        """
        if self.progress.env_steps != self.plan.steps_after(self.progress.outer_iteration):
            self.set_horizon()

    def set_hyperparameters(self) -> None:
        """Makes those that the state holds, if any, the ones of its phase."""
        if isinstance(self.parts.module, SweptModule):
            self.state = self.parts.module.with_values(self.state)

    def fetch(self, results: Results) -> HostMetrics:
        """The metrics of training outside `Trainer.run`; counts its updates."""
        metrics, counters = jax.device_get(results)
        metrics, _ = split_each(metrics)
        counts = exact_counts(counters)
        if counts is not None:
            self.progress = dataclasses.replace(self.progress, updates=counts[1])
        return metrics

    def _advance(
        self,
        step: Callable[[PyTree], tuple[PyTree, Any]],
        count: Callable[[RunProgress], RunProgress],
    ) -> Any:
        """Calls `step`, which donates the state, and counts it; returns its results.

        After an error or interruption, the state is that of the last finished update, if the
        program kept it. Ctrl-C interrupts only where a program allows it.
        """
        with deferred_interrupts():
            state, self.state = self.state, None
            try:
                self.state, results = step(state)
            except BaseException:
                if self.program.unfinished is None:
                    self.is_lost = True
                    raise
                self.state, iterations = self.program.unfinished
                steps = iterations * self.plan.env_steps_per_iteration
                self.progress = self.progress.after_steps(steps)
                raise
            self.progress = count(self.progress)
            return results

    def _make_program(self, module: Module, num_iterations: int) -> Program:
        return make_program(
            module,
            compiler=self.compiler,
            num_iterations=num_iterations,
            overlap=self.config.overlap,
            compile_host_loop=self.config.compile_host_loop,
            keeps_each=self.config.log_iterations,
        )


def _require_jit() -> None:
    require(
        not jax.config.jax_disable_jit,  # pyright: ignore[reportAttributeAccessIssue]
        "JAX_DISABLE_JIT makes programs of Python's loops, which would compile for hours",
        "leave it out; jax.debug.print shows numbers from inside a compiled function",
        ConfigError,
    )


def _require_pinned_threads(config: TrainerConfig) -> None:
    require(
        not config.deterministic or os.environ.get("NPROC") == "1",
        "deterministic=True, but this process may compute on several threads, whose results vary",
        "start it with NPROC=1 in the environment (rlkit train --deterministic does)",
        ConfigError,
    )
