"""Where functions meet `jax.jit`: compiled ahead of time, once, mapped over seeds, and the seconds counted."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlkit.errors import ConfigError, require
from rlkit.types import Key

# On a CPU, XLA runs independent parts of a program on several threads. Waking one costs more than all of a small program.
ON_ONE_THREAD = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}


class Compiler:
    """Compiles the functions of a run; with several seeds each is a `vmap` over a leading axis S.

    `seconds` is the time spent tracing and compiling so far, `count` how often that happened.
    """

    def __init__(self, num_seeds: int):
        self.num_seeds = num_seeds
        self.seconds = 0.0
        self.count = 0

    def __call__(
        self,
        function: Callable[..., Any],
        *,
        donate: Sequence[int] = (),
        axes: Any = 0,
        out_axes: Any = 0,
        is_small: bool = False,
    ) -> "Compiled":
        """`function`, compiled when first called. Arguments in `donate` are taken over; `axes` says where S is in each.

        `is_small`: it takes microseconds, so that not even a second thread is worth it.
        """
        mapped = jax.vmap(function, in_axes=axes, out_axes=out_axes) if self.num_seeds > 1 else function
        options = ON_ONE_THREAD if is_small and jax.default_backend() == "cpu" else None
        return Compiled(self, mapped, tuple(donate), options)

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


class Compiled:
    """A function compiled ahead of time for the arguments that it first sees."""

    def __init__(
        self, compiler: Compiler, function: Callable[..., Any], donate: tuple[int, ...], options: dict[str, Any] | None
    ):
        self.function = function
        self._options = options
        self._compiler = compiler
        self._donate = donate
        self._executable: Any = None

    def __call__(self, *arguments: Any) -> Any:
        if self._executable is None:
            start = time.perf_counter()
            lowered = jax.jit(self.function, donate_argnums=self._donate).lower(*arguments)
            self._executable = lowered.compile(compiler_options=self._options)
            self._compiler.seconds += time.perf_counter() - start
            self._compiler.count += 1
        return self._executable(*arguments)
