"""How a compiled program steps simulators: it trades actions for steps with its caller.

The program runs in its own thread; the calling thread steps the simulators.
"""

import queue
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlkit.errors import EnvContractError
from rlkit.types import Action, PyTree, Rollout, TimeStep

Buffer = Any  # one of XLA's, which NumPy can view
StepResult = dict[str, PyTree]  # the fields of a `TimeStep` except `info`, leaves [(S,) N, ...]


class StepExchange:
    """Passes actions from the program to the caller, and steps in return.

    The program calls `ask`, `send` and `receive` in its thread, with XLA's own buffers. They only
    copy arrays and wait, because an exception in them would lose the state. The other methods are
    for the calling thread.
    """

    def __init__(self) -> None:
        self.open()

    # The caller

    def open(self) -> None:
        """Empties the queues: after an error, a step may be left over."""
        self._actions: queue.SimpleQueue[Action | None] = queue.SimpleQueue()
        self._steps: queue.SimpleQueue[list[np.ndarray] | None] = queue.SimpleQueue()

    def next_actions(self) -> Action | None:
        """Waits for the program's next actions [(S,) N, ...]; None once it has ended."""
        return self._actions.get()

    def answer(self, step: list[np.ndarray]) -> None:
        """Hands over the step that followed the actions, see `StepFormat.leaves`."""
        self._steps.put(step)

    def close(self) -> None:
        """Signals that there are no more steps, so the program stops waiting for one."""
        self._steps.put(None)

    def end(self) -> None:
        """Signals that the program has ended, so the caller stops waiting for actions."""
        self._actions.put(None)

    # The program

    def ask(self, context: object, results: PyTree, action: PyTree) -> None:
        """Takes a step into `results`: a flag (False if there was no step) and a `StepResult`."""
        self._actions.put(_copied(action))
        self.receive(context, results)

    def send(self, context: object, copy: Buffer, words: Buffer, action: PyTree) -> None:
        """Hands over actions, whose step `receive` waits for.

        Copies `words`, so that whatever reads the copy runs after this call.
        """
        np.asarray(copy)[...] = np.asarray(words)
        self._actions.put(_copied(action))

    def receive(self, context: object, results: PyTree, *awaited: Buffer) -> None:
        """Waits for the step; `awaited` must be computed before."""
        is_taken, step = results
        rows = self._steps.get()
        np.asarray(is_taken)[...] = rows is not None
        for index, buffer in enumerate(jax.tree.leaves(step)):
            np.asarray(buffer)[...] = 0 if rows is None else rows[index]


class StepFormat:
    """The shapes and dtypes of a step, taken from a rollout [1, (S,) N, ...]."""

    def __init__(self, rollout: Rollout):
        self.shapes: StepResult = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(np.shape(x)[1:], jnp.result_type(x)),
            step_result(rollout),
        )
        self._leaves = [
            (jax.tree_util.keystr(path, simple=True, separator="."), shape.shape, shape.dtype)
            for path, shape in jax.tree.leaves_with_path(self.shapes)
        ]

    def leaves(self, timestep: TimeStep) -> list[np.ndarray]:
        """The leaves of a `StepResult` as the program expects them.

        Raises `EnvContractError` if they cannot be converted.
        """
        leaves = jax.tree.leaves(step_result(timestep))
        try:
            arrays = [
                np.asarray(x, dtype) for x, (*_, dtype) in zip(leaves, self._leaves, strict=True)
            ]
        except (TypeError, ValueError) as error:
            raise EnvContractError(
                f"a step returned values that do not match earlier steps ({error}); return arrays"
                " of numbers"
            ) from error
        for x, (name, shape, _) in zip(arrays, self._leaves, strict=True):
            if x.shape != shape:
                raise EnvContractError(f"a step returned {name} of shape {x.shape}; return {shape}")
        return arrays


def step_result(source: TimeStep | Rollout) -> StepResult:
    """The fields of a step that a compiled program uses."""
    names = ("obs", "reward", "terminated", "truncated", "next_obs")
    told = () if source.non_finite is None else ("non_finite",)
    return {name: getattr(source, name) for name in (*names, *told)}


def _copied(action: PyTree) -> Action:
    """In arrays of NumPy."""
    if isinstance(action, (dict, tuple)):
        return jax.tree.map(lambda x: np.asarray(x).copy(), action)
    return np.asarray(action).copy()  # the usual case, without the cost of walking a tree
