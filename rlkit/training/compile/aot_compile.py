"""Where functions meet `jax.jit`: compiled ahead of time, once, mapped over seeds, and the seconds
counted.
"""

import time
from collections.abc import Callable, Sequence
from concurrent import futures
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlkit.errors import ConfigError, require
from rlkit.training.compile.parallel_seeds import ParallelSeeds
from rlkit.types import Key
from rlkit.xla_cpu import threefry
from rlkit.xla_cpu.xla_options import compiler_options


class Compiler:
    """Compiles the functions of a run; with several seeds each is a `vmap` over a leading axis S.

    `groups` is the number of groups of seeds that `parallel_seeds` computes at the same time, see
    `num_groups`. `seconds` is the time spent tracing and compiling so far, `count` how often that
    happened.
    """

    def __init__(self, num_seeds: int, groups: int = 1):
        self.num_seeds = num_seeds
        self.groups = groups
        self.seconds = 0.0
        self.count = 0
        self._threads: list[futures.ThreadPoolExecutor] = []

    def __call__(
        self,
        function: Callable[..., Any],
        *,
        donate: Sequence[int] = (),
        axes: Any = 0,
        out_axes: Any = 0,
    ) -> "Compiled":
        """`function`, compiled when first called. Arguments in `donate` are taken over; `axes` says
        where S is in each.
        """
        mapped = (
            jax.vmap(function, in_axes=axes, out_axes=out_axes) if self.num_seeds > 1 else function
        )
        return Compiled(self, mapped, tuple(donate))

    def parallel_seeds(
        self, function: Callable[[Any], Any], *, donate: bool = False
    ) -> "Compiled | ParallelSeeds":
        """`function` of one argument, for what takes long: groups of seeds at the same time.
        `donate`: it is taken over.
        """
        whole = self(function, donate=(0,) if donate else ())
        if self.groups == 1:
            return whole
        sizes = {"num_seeds": self.num_seeds, "groups": self.groups}
        return ParallelSeeds(
            partial(Compiled, self), whole.function, self._group_threads, donate=donate, **sizes
        )

    def close(self) -> None:
        """Ends the threads of groups of seeds; they start anew when they are needed."""
        for thread in self._threads:
            thread.shutdown(wait=False)
        self._threads = []

    def _group_threads(self) -> list[futures.ThreadPoolExecutor]:
        # XLA runs what one thread starts in order, so that each group has a thread of its own, for
        # all functions the same.
        if not self._threads:
            self._threads = [
                futures.ThreadPoolExecutor(1, thread_name_prefix=f"seeds-{i}")
                for i in range(self.groups)
            ]
        return self._threads

    def keys(self, key: Key | int) -> Key:
        """The keys of all seeds, [S] ([] of a single one), from a typed key, a batch of S of them,
        or a seed s: s, s + 1, ….

        Raises `ConfigError` for anything else.
        """
        single = self.num_seeds == 1
        if isinstance(key, (int, np.integer)):
            inside = 0 <= int(key) <= 2**32 - self.num_seeds
            problem = f"seeds must be in [0, 2**32), got {self.num_seeds} from {key}"
            require(inside, problem, "pass a smaller, non-negative seed")
            keys = jax.vmap(jax.random.key)(
                (int(key) + np.arange(self.num_seeds)).astype(np.uint32)
            )
            return keys[0] if single else keys
        if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
            raise ConfigError(
                f"key must be a typed key or a seed, got {type(key).__name__}; pass"
                " jax.random.key(0), or 0"
            )
        if not single and key.ndim == 0:
            return jax.random.split(key, self.num_seeds)
        require(
            key.shape == (() if single else (self.num_seeds,)),
            f"keys have shape {key.shape}, num_seeds={self.num_seeds}",
            "pass one key, or one for each seed",
        )
        return key


class Compiled:
    """A function compiled ahead of time for the arguments that it first sees; `executable` is None
    until then.
    """

    def __init__(
        self, compiler: Compiler, function: Callable[..., Any], donate: tuple[int, ...] = ()
    ):
        self.function = function
        self._compiler = compiler
        self._donate = donate
        self.executable: Any = None

    def __call__(self, *arguments: Any) -> Any:
        self.compile(*arguments)
        return self.executable(*arguments)

    def compile(self, *arguments: Any) -> None:
        """Compiles it for arguments of these shapes, unless it is compiled already; computes
        nothing.
        """
        if self.executable is not None:
            return
        start = time.perf_counter()
        traced = jax.jit(self.function, donate_argnums=self._donate).trace(*arguments)
        self.executable = threefry.lower(traced).compile(
            compiler_options=compiler_options(traced.jaxpr) or None
        )
        self._compiler.seconds += time.perf_counter() - start
        self._compiler.count += 1
