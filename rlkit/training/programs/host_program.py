"""A run with host simulators: acting and updates are compiled, Python steps the environments."""

from collections.abc import Callable
from typing import Protocol

import jax
import numpy as np
from jax import Array
from jax.sharding import Sharding

from rlkit import spaces
from rlkit.algorithms.collectors import Collector
from rlkit.algorithms.metrics import NON_FINITE, of_each, reduce_metrics
from rlkit.envs.base import EnvAdapter
from rlkit.envs.host.base import WHOLE
from rlkit.errors import require
from rlkit.training.compile import placing
from rlkit.training.compile.aot_compile import Compiled, Compiler
from rlkit.training.config import Overlap
from rlkit.training.core.module import RLModule
from rlkit.training.programs.host_collector import HostCollector
from rlkit.training.programs.host_functions import bare, compile_host_functions, with_obs_and_carry
from rlkit.training.programs.protocol import Program, Results
from rlkit.training.programs.schedules import step_callbacks
from rlkit.training.programs.schedules.base import HostParts, Schedule
from rlkit.training.programs.schedules.compiled_host_loop import CompiledLoop
from rlkit.training.programs.schedules.overlapped import Overlapped
from rlkit.training.programs.schedules.sequential import Sequential
from rlkit.types import Key, Metrics, TrainState


class HostProgram:
    """The `Program` of an `RLModule` whose environment runs on the host.

    Draws the same random numbers as the program of a jittable environment, so equal dynamics give
    equal transitions. With S seeds, acting and learning are mapped over [S, N]; a `HostCollector`
    steps the environments, in the order of a `Schedule`.
    """

    def __init__(
        self,
        module: RLModule,
        *,
        compiler: Compiler,
        num_iterations: int,
        overlap: Overlap,
        compile_host_loop: bool = True,
        keeps_each: bool = False,
    ):
        num_envs, num_groups = module.env.num_envs, 2 if overlap == "acting" else 1
        count = 1 if compiler.devices is None else compiler.devices.per_seed
        on_each = f" on each of {count} devices" if count > 1 else ""
        halves = num_groups * count
        require(
            num_envs % halves == 0,
            f'overlap="acting" needs an even number of environments{on_each}, got {num_envs}',
            f"use num_envs={-(-num_envs // halves) * halves}, or another overlap",
        )
        require_steppable(module.algorithm.collector)
        self._module = module
        self._num_seeds = compiler.num_seeds
        self._num_iterations, self._keeps_each = num_iterations, keeps_each
        self.unfinished: tuple[TrainState, int] | None = None
        self.warm_up_metrics: Metrics = {}
        self.on_warm_up: Callable[[int], None] = lambda rollouts: None
        self.functions = compile_host_functions(module, compiler, num_groups=num_groups)
        processes = 1 if compiler.devices is None else compiler.devices.num_processes
        # Where arrays over environments are, if each of several processes has its own of them.
        self._rows: tuple[Sharding, Sharding] | None = None
        if compiler.devices is not None and processes > 1:
            rows = compiler.devices.sharding_of_rows(has_seeds=compiler.num_seeds > 1)
            self._rows = rows, rows
        self.collector = HostCollector(
            module,
            self.functions,
            num_seeds=compiler.num_seeds,
            num_groups=num_groups,
            share=(jax.process_index(), processes) if processes > 1 else WHOLE,
        )
        self.parts = HostParts(functions=self.functions, collector=self.collector)
        is_overlapped = overlap == "update"
        self.single_schedule = Overlapped(self.parts) if is_overlapped else Sequential(self.parts)
        self.outer_schedule: Schedule = self.single_schedule
        single_steps = module.algorithm.collector.num_steps == 1 and num_groups == 1
        is_loop = single_steps and num_iterations > 1
        is_loop &= compiler.devices is None  # whose callbacks would be called on each device
        if compile_host_loop and is_loop and step_callbacks.is_supported():
            self.outer_schedule = CompiledLoop(
                self.parts, compiler, num_iterations=num_iterations, overlapped=is_overlapped
            )

    def init(self, key: Key) -> TrainState:
        """The state before training, after the random prefill; resets the environments.

        The key is consumed.
        """
        self.warm_up_metrics = {}
        keys = self.functions.split(key)
        self.collector.reset(keys.reset)
        ts = self.collector.with_obs(self.functions.start(keys, self.collector.observe()))
        num_rollouts = self._module.algorithm.prefill_collects(self._module.env)
        if num_rollouts == 0:
            return ts
        prefill_keys = self.functions.prefill_keys(keys.prefill)
        for index in range(num_rollouts):
            ts = ts.replace(local=ts.local.replace(key=prefill_keys[..., index]))
            ts = self._absorb_rollout(ts, self.functions.act_randomly)
            self.on_warm_up(index + 1)
        return ts

    def state_shape(self, key: Key) -> TrainState:
        """The shapes and dtypes of a state; starts no environment."""
        env, seeds = self._module.env, self._num_seeds
        batch = (env.num_envs,) if seeds == 1 else (seeds, env.num_envs)
        obs = spaces.abstract(env.observation_space, batch)
        keys = jax.eval_shape(self.functions.split.function, key)
        shape = self.functions.start.shape(keys, obs)
        return shape.replace(local=shape.local.replace(obs=obs))

    def environments(self, ts: TrainState) -> np.ndarray:
        """See `Program`."""
        return self.collector.save(ts)

    def resume(self, ts: TrainState, environments: np.ndarray) -> TrainState:
        """See `Program`."""
        if self._rows is not None:
            own = placing.own_rows(placing.placed((ts.local.obs, ts.local.carry), self._rows))
            ts = ts.replace(local=ts.local.replace(obs=own[0], carry=own[1]))
        return self.collector.resume(ts, environments)

    def whole(self, ts: TrainState) -> TrainState:
        """See `Program`: observations and carry are those of this process's environments."""
        if self._rows is None:
            return ts
        given = ts.local.obs, ts.local.carry
        obs, carry = placing.placed(given, self._rows, (True, True))
        return ts.replace(local=ts.local.replace(obs=obs, carry=carry))

    def enter(self, ts: TrainState) -> TrainState:
        """See `Program`."""
        return self.collector.enter(ts)

    def adopt(self, other: Program) -> None:
        """See `Program`; takes the running environments over from the other program."""
        assert isinstance(other, HostProgram)
        self.collector.adopt(other.collector)

    def use(self, env: EnvAdapter) -> None:
        """See `Program`; those that it made before are closed."""
        self.collector.use(env)

    def restart(self, ts: TrainState) -> TrainState:
        """A restored state with new episodes, seeded by its key."""
        return self.collector.restart(ts)

    def refill(self, ts: TrainState) -> TrainState:
        """A state restored without its replay memory, with new episodes that fill a new memory."""
        self.unfinished = None  # training cannot continue from a partly filled memory
        self.warm_up_metrics = {}
        self.collector.reset(self.functions.restart_key(ts.local.key))
        local = self.functions.empty(ts.learner, bare(ts.local))
        ts = self.collector.with_obs(ts.replace(local=local))
        for index in range(self._module.algorithm.refill_collects(self._module.env)):
            ts = self._absorb_rollout(ts, self.functions.act)
            self.on_warm_up(index + 1)
        return ts

    def outer(self, ts: TrainState) -> tuple[TrainState, Results]:
        """An outer iteration, with metrics as in `outer_iteration`; donates the state.

        If it fails midway, `unfinished` holds (state, iterations) after the last finished update.
        """
        return self._run(self.outer_schedule, ts, self._num_iterations)

    def single(self, ts: TrainState) -> tuple[TrainState, Results]:
        """The same with one iteration."""
        return self._run(self.single_schedule, ts, 1)

    def copy(self, ts: TrainState) -> TrainState:
        """A copy of the state in new buffers."""
        learner, local = self.functions.copy((ts.learner, bare(ts.local)))
        return TrainState(learner=learner, local=with_obs_and_carry(local, ts.local))

    def close(self) -> None:
        """Closes the environments that this program made; a later call starts new episodes."""
        self.collector.close()

    def _run(
        self, schedule: Schedule, ts: TrainState, num_iterations: int
    ) -> tuple[TrainState, Results]:
        self.unfinished = None
        try:
            ts, result = schedule.run(ts, num_iterations)
        except BaseException:
            self.collector.forget()
            self.unfinished = _if_whole(schedule.last_finished)
            raise
        metrics = reduce_metrics(result.metrics)
        if self._keeps_each:
            metrics |= of_each(result.metrics, axis=min(self._num_seeds - 1, 1))
        return ts, (metrics, result.counters)

    def _absorb_rollout(self, ts: TrainState, act: Compiled) -> TrainState:
        """Adds a rollout to memory and statistics, without learning from it."""
        ts, group_keys = self.collector.take_keys(ts)
        ts, rollout = self.collector.collect(ts, ts.learner.policy, group_keys, act)
        if rollout.non_finite is not None:
            count = rollout.non_finite.sum((0, -1))  # [], or [S]
            self.warm_up_metrics = {NON_FINITE: count + self.warm_up_metrics.get(NON_FINITE, 0)}
        learner, local = self.functions.absorb(ts.learner, bare(ts.local), rollout)
        return TrainState(learner=learner, local=with_obs_and_carry(local, ts.local))


class Collects(Protocol):
    """What `require_steppable` inspects."""

    @property
    def collect(self) -> Callable[..., object]: ...


def require_steppable(collector: Collects) -> None:
    """Raises `ConfigError` for a collector with its own `collect`.

    `collect` is pure and steps jittable environments; on the host it would never be called.
    """
    collect = getattr(collector.collect, "__func__", None)
    require(
        collect is Collector.collect,
        f"{type(collector).__name__} has its own collect, which cannot step environments on the"
        " host",
        "use Collector (its keys and count are called on the host too and may be overridden), wrap"
        " the environment, or train in a jittable one",
    )


def _if_whole(finished: tuple[TrainState, int] | None) -> tuple[TrainState, int] | None:
    """`finished`, or None if an update has donated the buffers of its state."""
    if finished is None:
        return None
    leaves = jax.tree.leaves((finished[0].learner, finished[0].local))
    is_taken = any(isinstance(x, Array) and x.is_deleted() for x in leaves)
    return None if is_taken else finished
