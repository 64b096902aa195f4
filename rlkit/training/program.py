"""The compiled functions of a run: the only place, beside the evaluator's users, where a module meets `jax.jit`."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlkit.errors import ConfigError, require
from rlkit.training.module import Module, evaluate, iteration, outer_iteration, strong_types
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
        self.evaluate = self._compiled(lambda ts: evaluate(module, ts))
        self.copy = self._compiled(lambda ts: jax.tree.map(jnp.copy, ts))

    def keys(self, key: Key | int) -> Key:
        """The keys of all seeds, [S] ([] of a single one), from a typed key, a batch of S of them, or a seed s: s, s + 1, ….

        Raises `ConfigError` for anything else.
        """
        single = self.num_seeds == 1
        if isinstance(key, (int, np.integer)):
            inside = 0 <= int(key) <= 2**32 - self.num_seeds
            problem = f"seeds must be in [0, 2**32), got {self.num_seeds} from {key}"
            require(inside, problem, "pass a smaller, non-negative seed")
            keys = jax.vmap(jax.random.key)((int(key) + np.arange(self.num_seeds)).astype(np.uint32))
            return keys[0] if single else keys
        if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
            raise ConfigError(f"key must be a typed key or a seed, got {type(key).__name__}; pass jax.random.key(0), or 0")
        if not single and key.ndim == 0:
            return jax.random.split(key, self.num_seeds)
        require(
            key.shape == (() if single else (self.num_seeds,)),
            f"keys have shape {key.shape}, num_seeds={self.num_seeds}",
            "pass one key, or one for each seed",
        )
        return key

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
