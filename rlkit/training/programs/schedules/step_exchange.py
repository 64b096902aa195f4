"""How a compiled program has its simulators stepped: it runs in a thread of its own and exchanges
actions and steps with the thread that called it.
"""

import queue
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlkit.errors import EnvContractError
from rlkit.types import Rollout, TimeStep

StepResult = dict[str, Any]  # by name the fields of a `TimeStep` but `info`, leaves [(S,) N, ...]


class StepExchange:
    """Passes actions from the program to the caller, and steps back.

    `ask`, `send` and `receive` are called by the program, with XLA's own buffers, in its thread.
    They do nothing but copy arrays and wait, for one that raised would lose the state. The others
    are for the thread that called the program.
    """

    def __init__(self) -> None:
        self.open()

    # The caller

    def open(self) -> None:
        """Begins anew: after an error, a step may be left that nobody received."""
        self._actions: queue.SimpleQueue[np.ndarray | None] = queue.SimpleQueue()
        self._steps: queue.SimpleQueue[list[np.ndarray] | None] = queue.SimpleQueue()

    def next_actions(self) -> np.ndarray | None:
        """Waits for the program's next actions [(S,) N, ...]; None: it has ended."""
        return self._actions.get()

    def answer(self, step: list[np.ndarray]) -> None:
        """What came of these actions, see `StepFormat.leaves`."""
        self._steps.put(step)

    def close(self) -> None:
        """There are no more steps: whoever waits for one goes on without."""
        self._steps.put(None)

    def end(self) -> None:
        """The program has ended: nobody waits for its actions."""
        self._actions.put(None)

    # The program

    def ask(self, context: Any, results: Any, action: Any) -> None:
        """Takes a step: `results` are a flag, False where there was none, and a `StepResult`."""
        self._actions.put(np.asarray(action).copy())
        self.receive(context, results)

    def send(self, context: Any, copy: Any, words: Any, action: Any) -> None:
        """Hands actions over for `receive` to have their step; copies `words`, which orders what
        reads the copy behind this call.
        """
        np.asarray(copy)[...] = np.asarray(words)
        self._actions.put(np.asarray(action).copy())

    def receive(self, context: Any, results: Any, *awaited: Any) -> None:
        """Waits for the step; `awaited` is what has to be computed before."""
        is_taken, step = results
        rows = self._steps.get()
        np.asarray(is_taken)[...] = rows is not None
        for index, buffer in enumerate(jax.tree.leaves(step)):
            np.asarray(buffer)[...] = 0 if rows is None else rows[index]


class StepFormat:
    """The shapes and dtypes of a step, those of a rollout [1, (S,) N, ...]."""

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
        """The leaves of a `StepResult` as the program takes them. Raises `EnvContractError` where
        they cannot be.
        """
        leaves = jax.tree.leaves(step_result(timestep))
        try:
            arrays = [
                np.asarray(x, dtype) for x, (*_, dtype) in zip(leaves, self._leaves, strict=True)
            ]
        except (TypeError, ValueError) as error:
            raise EnvContractError(
                f"a step returned what is no array like those before ({error}); return arrays of"
                " numbers"
            ) from error
        for x, (name, shape, _) in zip(arrays, self._leaves, strict=True):
            if x.shape != shape:
                raise EnvContractError(f"a step returned {name} of shape {x.shape}; return {shape}")
        return arrays


def step_result(source: TimeStep | Rollout) -> StepResult:
    """What a compiled program takes of a step."""
    return {
        name: getattr(source, name)
        for name in ("obs", "reward", "terminated", "truncated", "next_obs")
    }
