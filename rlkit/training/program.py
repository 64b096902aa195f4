"""The compiled functions of a run: the only place, beside the evaluator's users, where a module meets `jax.jit`."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rlkit.training.module import Module, iteration, outer_iteration, strong_types
from rlkit.types import Key, PyTree


class Program:
    """A module's functions, compiled when first used; with several seeds each is a `vmap` over a leading axis S.

    States passed to `outer` and `single` are donated: use what they return. `compile_seconds` is the time spent tracing and
    compiling so far, `compilations` how often that happened.
    """

    def __init__(self, module: Module, *, num_seeds: int, epochs: int):
        self.num_seeds = num_seeds
        self.compile_seconds = 0.0
        self.compilations = 0
        counters = getattr(module, "counters", None)

        def step(function: Callable[[PyTree], tuple[PyTree, Any]]) -> Callable[[PyTree], tuple[PyTree, Any]]:
            def with_counters(ts: PyTree) -> tuple[PyTree, Any]:
                ts, metrics = function(ts)
                return ts, (metrics, counters(ts) if counters else None)

            return with_counters

        self.init = self._compiled(lambda key: strong_types(module.init_train_state(key)))
        self.outer = self._compiled(step(lambda ts: outer_iteration(module, ts, epochs)), donate=True)
        self.single = self._compiled(step(lambda ts: iteration(module, ts, jnp.int32(0))), donate=True)
        self.evaluate = self._compiled(module.eval_callback)
        self.copy = self._compiled(lambda ts: jax.tree.map(jnp.copy, ts))

    def state_shape(self, key: Key) -> PyTree:
        """The shapes and dtypes of a state, without computing it."""
        return jax.eval_shape(self.init.function, key)

    def _compiled(self, function: Callable[[Any], Any], *, donate: bool = False) -> "Compiled":
        mapped = jax.vmap(function) if self.num_seeds > 1 else function
        return Compiled(self, mapped, donate)


class Compiled:
    """A function of one argument, compiled ahead of time for the first argument that it sees."""

    def __init__(self, program: Program, function: Callable[[Any], Any], donate: bool):
        self.function = function
        self._program = program
        self._donate = donate
        self._executable: Any = None

    def __call__(self, argument: Any) -> Any:
        if self._executable is None:
            start = time.perf_counter()
            jitted = jax.jit(self.function, donate_argnums=(0,) if self._donate else ())
            self._executable = jitted.lower(argument).compile()
            self._program.compile_seconds += time.perf_counter() - start
            self._program.compilations += 1
        return self._executable(argument)
