"""Single-step rollouts: an outer iteration as one compiled program whose caller takes the steps."""

import threading
from collections.abc import Callable
from concurrent import futures

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from rlkit.training.compile.aot_compile import Compiled, Compiler
from rlkit.training.core.module import require_same_types
from rlkit.training.interrupts import allowed_interrupts
from rlkit.training.programs.host_functions import Learned, bare
from rlkit.training.programs.schedules.base import HostParts, IterationResult, LoopState
from rlkit.training.programs.schedules.overlapped import first_rollout, update_while_collecting
from rlkit.training.programs.schedules.sequential import update_then_collect
from rlkit.training.programs.schedules.step_callbacks import TracedParts
from rlkit.training.programs.schedules.step_exchange import StepExchange, StepFormat
from rlkit.types import Carry, Counters, LearnerState, LocalState, Obs, PyTree, TrainState
from rlkit.xla_cpu.packing import Packed


class LoopResult(struct.PyTreeNode, kw_only=True):
    """The state after the last finished update, and the results up to it."""

    learner: LearnerState
    local: LocalState  # bare
    carry: Carry
    metrics: Packed  # vectors [K, (S,) ...]
    counters: Counters
    iterations: Array  # [] int32: how many finished


class CompiledLoop:
    """The `Schedule` that runs K updates and the K - 1 steps between them as one program.

    The first step precedes the program. The order is that of `Sequential` or `Overlapped`.

    The program runs in its own thread; when it needs a step, it hands over the actions and waits.
    The calling thread takes the step, because a simulator may be tied to a thread (a window, a
    database), errors and interruptions surface where they usually do, and JAX inside a simulator
    does not run inside a callback.
    """

    def __init__(
        self, parts: HostParts, compiler: Compiler, *, num_iterations: int, overlapped: bool
    ):
        self._parts = parts
        self._num_iterations = num_iterations
        self._is_overlapped = overlapped
        # Traced once, for both the shapes of its metrics and the loop.
        self.learn: Callable[..., Learned] = jax.jit(parts.functions.learn.function, inline=True)
        self.exchange = StepExchange()
        self.program = Compiled(compiler, self.compute, donate=(0, 1), is_shared=False)
        self.last_finished: tuple[TrainState, int] | None = None

    def run(self, ts: TrainState, num_iterations: int) -> tuple[TrainState, IterationResult]:
        """See `Schedule`."""
        assert num_iterations == self._num_iterations
        self.last_finished = ts, 0
        if self._is_overlapped:
            state = first_rollout(self._parts, ts)
        else:
            state = self._parts.collect(ts, ts.learner.policy)
        result, error = self._run_program(state)
        local = result.local.replace(carry=result.carry)
        ts = self._parts.collector.with_obs(TrainState(learner=result.learner, local=local))
        self.last_finished = ts, int(result.iterations)
        if error is not None:
            raise error
        return ts, IterationResult(jax.device_get(result.metrics), result.counters)

    # In the calling thread

    def _run_program(self, state: LoopState) -> tuple[LoopResult, BaseException | None]:
        """The program's result, and the error of this thread that ended it early, if any.

        Donates the state.
        """
        arguments = program_arguments(state)
        self.program.compile(*arguments)
        self.exchange.open()
        step_format = StepFormat(state.rollout)
        running: futures.Future[LoopResult] = futures.Future()
        thread = threading.Thread(
            target=self._run_in_thread, args=(running, arguments), name="rlkit-loop"
        )
        error: BaseException | None = None
        try:
            thread.start()
            with allowed_interrupts():
                self._take_steps(step_format)
        except BaseException as raised:
            error = raised
        finally:  # whatever happened, the program must not wait forever
            self.exchange.close()
        if error is not None and running.cancel():
            raise error  # before the program started, so the state is unchanged
        while True:  # wait out any interruption: the program holds the state
            try:
                futures.wait([running])
                thread.join()
                break
            except BaseException as raised:
                error = error or raised
        return running.result(), error

    def _take_steps(self, step_format: StepFormat) -> None:
        (group,) = self._parts.collector.groups
        for _ in range(self._num_iterations - 1):
            action = self.exchange.next_actions()
            if action is None:
                return
            self.exchange.answer(step_format.leaves(group.step(action)))

    # In the program's thread

    def _run_in_thread(
        self, running: "futures.Future[LoopResult]", arguments: tuple[PyTree, ...]
    ) -> None:
        if not running.set_running_or_notify_cancel():
            return
        try:
            running.set_result(jax.block_until_ready(self.program(*arguments)))
        except BaseException as error:
            running.set_exception(error)
        finally:
            self.exchange.end()

    # Inside the program

    def compute(self, learner: LearnerState, local: LocalState, *others: PyTree) -> LoopResult:
        """The program: K iterations, fewer if a step is not taken; see `program_arguments`."""
        start = _from_arguments(learner, local, *others)
        metrics, counters = jax.eval_shape(self.learn, learner, local, *others[2:])[2:]
        rows = [jnp.zeros((self._num_iterations, *x.shape), x.dtype) for x in metrics.vectors]
        none = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), counters)

        def iterate(carried: PyTree) -> PyTree:
            before, rows, _, index = carried
            state, result = self._iteration(before, index)
            require_same_types(_learned(before), _learned(state))
            rows = [
                x.at[index].set(row) for x, row in zip(rows, result.metrics.vectors, strict=True)
            ]
            return state, rows, result.counters, index + 1

        state, rows, counters, index = jax.lax.while_loop(
            lambda carried: carried[0].is_collected, iterate, (start, rows, none, jnp.int32(0))
        )
        return LoopResult(
            learner=state.ts.learner,
            local=bare(state.ts.local),
            carry=state.ts.local.carry,
            metrics=metrics.replace(vectors=rows),
            counters=counters,
            iterations=index,
        )

    def _iteration(self, state: LoopState, index: Array) -> tuple[LoopState, IterationResult]:
        parts = TracedParts(
            functions=self._parts.functions,
            learn=self.learn,
            exchange=self.exchange,
            shapes=StepFormat(state.rollout).shapes,
            is_last=index + 1 == self._num_iterations,
        )
        if self._is_overlapped:
            return update_while_collecting(parts, state)
        return update_then_collect(parts, state)


def program_arguments(state: LoopState) -> tuple[PyTree, ...]:
    """The program's arguments: it donates learner and bare local state, and reads the others."""
    local = state.ts.local
    return (
        state.ts.learner,
        bare(local),
        local.obs,
        local.carry,
        state.rollout,
        state.behaviour,
    )


def _from_arguments(
    learner: LearnerState, local: LocalState, obs: Obs, carry: Carry, *others: PyTree
) -> LoopState:
    rollout, behaviour = others
    ts = TrainState(learner=learner, local=local.replace(obs=obs, carry=carry))
    return LoopState(ts=ts, rollout=rollout, behaviour=behaviour, is_collected=jnp.bool_(True))


def _learned(state: LoopState) -> tuple[LearnerState, LocalState]:
    """What an update changes."""
    return state.ts.learner, bare(state.ts.local)
