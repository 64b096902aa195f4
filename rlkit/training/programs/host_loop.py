"""Rollouts of one step on the host: a whole outer iteration as one compiled program, which asks its
caller for steps.
"""

import queue
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array
from jax.experimental.buffer_callback import buffer_callback

from rlkit.errors import EnvContractError
from rlkit.training.compile.aot_compile import Compiled, Compiler
from rlkit.training.core.module import require_same_types
from rlkit.types import (
    Action,
    Carry,
    Key,
    LearnerState,
    LocalState,
    Obs,
    PolicyState,
    PyTree,
    Rollout,
    TimeStep,
)
from rlkit.xla_cpu.packing import Packed

Found = tuple[Packed, Any]  # metrics, counters
Told = dict[str, Any]  # what the program learns of a step: fields of its `TimeStep`
Step = Callable[[np.ndarray], TimeStep]  # actions, and what came of them, leaves [(S,) N, ...]


class Turn(struct.PyTreeNode, kw_only=True):
    """Where the loop stands: before the update from `rollout`. Leaves have a leading axis S where
    there are several seeds.
    """

    learner: LearnerState
    local: LocalState
    obs: Obs  # to act on next
    carry: Carry
    rollout: Rollout  # [1, (S,) N, ...]
    behaviour: PolicyState | None  # collected it, None: the present policy


class Ended(struct.PyTreeNode, kw_only=True):
    """Where it ended: after the last update that was finished."""

    learner: LearnerState
    local: LocalState
    carry: Carry
    metrics: Packed  # vectors [K, (S,) ...]
    counters: Any
    iterations: Array  # [] int32: how many were finished


class HostLoop:
    """K iterations, each an update and the next step of the environments, as one program.

    It runs in a thread of its own; where it needs a step, it hands over the actions and waits. The
    thread that called takes the step, for simulators may belong to a thread (a window, a database),
    errors and interruptions come up where they always do, and JAX within a simulator does not run
    within a callback. What a call per step costs beside is in docs/speed.md.

    With `beside` the step is taken while the update is computed, by the policy from before it.
    """

    def __init__(
        self,
        compiler: Compiler,
        *,
        epochs: int,
        beside: bool,
        draw_keys: Callable[[Key], tuple[Key, list[Key]]],
        act: Callable[..., tuple[Action, dict[str, PyTree], Any, Carry]],
        restart_carry: Callable[[Carry, Array], Carry],
        learn: Callable[..., tuple[LearnerState, LocalState, Packed, Any]],
    ):
        self._epochs = epochs
        self._beside = beside
        self._draw_keys, self._act, self._restart_carry = draw_keys, act, restart_carry
        self._learn = jax.jit(learn, inline=True)  # traced once for its metrics and the loop
        self._actions: queue.SimpleQueue[np.ndarray | None]  # None: the program ended
        self._answers: queue.SimpleQueue[list[np.ndarray] | None]  # None: no more steps
        self._program = Compiled(compiler, self._iterate, donate=(0, 1))

    def __call__(self, turn: Turn, step: Step) -> tuple[Ended, BaseException | None]:
        """Where the loop ended, and what was raised in the calling thread and ended it early; takes
        the state over.
        """
        arguments = (turn.learner, turn.local, turn.obs, turn.carry, turn.rollout, turn.behaviour)
        self._program.compile(*arguments)
        # New ones: after an error an answer may be left in the old.
        actions, answers = self._actions, self._answers = queue.SimpleQueue(), queue.SimpleQueue()
        wanted = {
            name: (np.shape(x)[1:], jnp.result_type(x)) for name, x in _by_name(_told(turn.rollout))
        }
        running: futures.Future[Ended] = futures.Future()
        thread = threading.Thread(target=self._run, args=(running, arguments), name="rlkit-loop")
        error: BaseException | None = None
        try:
            thread.start()
            for _ in range(self._epochs - 1):
                action = actions.get()
                if action is None:
                    break
                answers.put(_answer(step(action), wanted))
        except BaseException as raised:
            error = raised
        finally:  # whatever happened, the program must not wait for ever
            answers.put(None)
        if error is not None and running.cancel():
            raise error  # before the program began, so that the state is as it was
        while True:  # until the update is over, whatever interrupts: the state is in the program
            try:
                futures.wait([running])
                thread.join()
                break
            except BaseException as raised:
                error = error or raised
        return running.result(), error

    def _run(self, running: "futures.Future[Ended]", arguments: tuple[Any, ...]) -> None:
        if not running.set_running_or_notify_cancel():
            return
        try:
            running.set_result(jax.block_until_ready(self._program(*arguments)))
        except BaseException as error:
            running.set_exception(error)
        finally:
            self._actions.put(None)

    # Within the program

    def _iterate(
        self,
        learner: LearnerState,
        local: LocalState,
        obs: Obs,
        carry: Carry,
        rollout: Rollout,
        behaviour: PolicyState | None,
    ) -> Ended:
        turn = Turn(
            learner=learner, local=local, obs=obs, carry=carry, rollout=rollout, behaviour=behaviour
        )
        metrics, counters = jax.eval_shape(self._learn, learner, local, rollout, behaviour)[2:]
        rows = [jnp.zeros((self._epochs, *x.shape), x.dtype) for x in metrics.vectors]
        none = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), counters)
        take = self._take_beside if self._beside else self._take

        def body(state: Any) -> Any:
            before, rows, _, index, _ = state
            turn, (found, counters), goes_on = take(before, index)
            require_same_types((before.learner, before.local), (turn.learner, turn.local))
            rows = [x.at[index].set(row) for x, row in zip(rows, found.vectors, strict=True)]
            return turn, rows, counters, index + 1, goes_on

        start = (turn, rows, none, jnp.int32(0), jnp.bool_(True))
        turn, rows, counters, index, _ = jax.lax.while_loop(lambda state: state[-1], body, start)
        return Ended(
            learner=turn.learner,
            local=turn.local,
            carry=turn.carry,
            metrics=metrics.replace(vectors=rows),
            counters=counters,
            iterations=index,
        )

    def _take(self, turn: Turn, index: Array) -> tuple[Turn, Found, Array]:
        """The update, then a step by the new policy."""
        learner, local, metrics, counters = self._learn(
            turn.learner, turn.local, turn.rollout, None
        )
        key, (keys,) = self._draw_keys(local.key)
        action, extras, _, carry = self._act(
            learner.policy, keys, np.int32(0), turn.carry, turn.obs
        )
        goes_on, told = self._call(self._ask, turn)(action)
        local = local.replace(key=jnp.where(goes_on, key, local.key))
        turn = self._next(turn, learner, local, None, action, extras, carry, told, goes_on)
        return turn, (metrics, counters), goes_on

    def _take_beside(self, turn: Turn, index: Array) -> tuple[Turn, Found, Array]:
        """The update, and a step by the policy from before it; after the last update
        there is none.
        """
        key, (keys,) = self._draw_keys(turn.local.key)
        key = jnp.where(index + 1 < self._epochs, key, turn.local.key)
        behaviour = turn.learner.policy
        action, extras, _, carry = self._act(behaviour, keys, np.int32(0), turn.carry, turn.obs)
        # The update takes its key from one call, and the other waits for the update: so the step is
        # taken between the two. An update that draws nothing may come before the first call; the
        # other waits for that as well, or it would wait for ever.
        words = jax.random.key_data(key)
        words = buffer_callback(self._send, jax.typeof(words), has_side_effect=True)(words, action)
        local = turn.local.replace(
            key=jax.random.wrap_key_data(words, impl=jax.random.key_impl(key))
        )
        learner, local, metrics, counters = self._learn(
            turn.learner, local, turn.rollout, turn.behaviour
        )
        goes_on, told = self._call(self._receive, turn)(metrics, words)
        turn = self._next(turn, learner, local, behaviour, action, extras, carry, told, goes_on)
        return turn, (metrics, counters), goes_on

    def _call(self, function: Callable[..., None], turn: Turn) -> Callable[..., tuple[Array, Told]]:
        """What calls `function` for whether there was a step, and what it did, leaves [(S,) N,
        ...].
        """
        told = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), _told(turn.rollout)
        )
        return buffer_callback(
            function, (jax.ShapeDtypeStruct((), bool), told), has_side_effect=True
        )

    def _next(
        self,
        turn: Turn,
        learner: LearnerState,
        local: LocalState,
        behaviour: PolicyState | None,
        action: Action,
        extras: dict[str, PyTree],
        carry: Carry,
        told: Told,
        goes_on: Array,
    ) -> Turn:
        carry = self._restart_carry(carry, told["terminated"] | told["truncated"])
        carry = jax.tree.map(lambda new, old: jnp.where(goes_on, new, old), carry, turn.carry)
        transition = Rollout(**(told | {"obs": turn.obs}), action=action, extras=extras)
        rollout = jax.tree.map(lambda x: x[None], transition)
        return Turn(
            learner=learner,
            local=local,
            obs=told["obs"],
            carry=carry,
            rollout=rollout,
            behaviour=behaviour,
        )

    # What the program calls, in a thread of its own; none of it may raise

    def _ask(self, context: Any, answer: Any, action: Any) -> None:
        self._actions.put(np.asarray(action).copy())
        self._receive(context, answer)

    def _send(self, _: Any, words: Any, given: Any, action: Any) -> None:
        np.asarray(words)[...] = np.asarray(given)
        self._actions.put(np.asarray(action).copy())

    def _receive(
        self, _: Any, answer: Any, *__: Any
    ) -> None:  # what else it is given is there to wait for
        goes_on, told = answer
        rows = self._answers.get()
        np.asarray(goes_on)[...] = rows is not None
        for index, buffer in enumerate(jax.tree.leaves(told)):
            np.asarray(buffer)[...] = 0 if rows is None else rows[index]


def _told(source: TimeStep | Rollout) -> Told:
    return {
        name: getattr(source, name)
        for name in ("obs", "reward", "terminated", "truncated", "next_obs")
    }


def _by_name(told: Told) -> list[tuple[str, Any]]:
    return [
        (jax.tree_util.keystr(path, simple=True, separator="."), x)
        for path, x in jax.tree.leaves_with_path(told)
    ]


def _answer(timestep: TimeStep, wanted: dict[str, tuple[tuple[int, ...], Any]]) -> list[np.ndarray]:
    """The leaves of what is told, as the program has them. Raises `EnvContractError` where they
    cannot be.
    """
    leaves = jax.tree.leaves(_told(timestep))
    try:
        arrays = [
            np.asarray(x, dtype) for x, (_, dtype) in zip(leaves, wanted.values(), strict=True)
        ]
    except (TypeError, ValueError) as error:
        raise EnvContractError(
            f"a step returned what is no array like those before ({error}); return arrays of"
            " numbers"
        ) from error
    for x, (name, (shape, _)) in zip(arrays, wanted.items(), strict=True):
        if x.shape != shape:
            raise EnvContractError(f"a step returned {name} of shape {x.shape}; return {shape}")
    return arrays
