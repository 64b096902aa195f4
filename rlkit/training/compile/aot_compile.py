"""Compiles functions with `jax.jit`: once, ahead of time, mapped over seeds, and timed."""

import time
from collections.abc import Callable, Sequence
from concurrent import futures
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from rlkit.errors import ConfigError, require
from rlkit.training.compile.parallel_seeds import ParallelSeeds, SeedBySeed
from rlkit.types import Key
from rlkit.xla_cpu import threefry
from rlkit.xla_cpu.xla_options import compiler_options

P = ParamSpec("P")
Result = TypeVar("Result")
Argument = TypeVar("Argument")
Axes = int | None | tuple[int | None, ...]  # of each argument or result; None: it has no such axis


class Compiler:
    """Compiles the functions of a run; with several seeds, each is mapped over a leading axis S.

    `parallel_seeds` computes `groups` groups of seeds in parallel, see `num_groups`; if
    `seed_by_seed`, each seed by the program of a single one. `seconds` is the total time spent
    tracing and compiling, `count` the number of compilations.
    """

    def __init__(self, num_seeds: int, groups: int = 1, *, seed_by_seed: bool = False):
        self.num_seeds = num_seeds
        self.seed_by_seed = seed_by_seed
        self.groups = groups
        self.seconds = 0.0
        self.count = 0
        self._threads: list[futures.ThreadPoolExecutor] = []

    def __call__(
        self,
        function: Callable[P, Result],
        *,
        donate: Sequence[int] = (),
        axes: Axes = 0,
        out_axes: Axes = 0,
    ) -> "Compiled[P, Result]":
        """`function`, compiled on first call; the arguments in `donate` are donated.

        `axes` and `out_axes` give the position of S in each argument and result.
        """
        mapped = (
            jax.vmap(function, in_axes=axes, out_axes=out_axes) if self.num_seeds > 1 else function
        )
        return Compiled(self, mapped, tuple(donate))

    def of_seeds(
        self, function: Callable[[Argument], Result], *, donate: bool = False
    ) -> "Compiled[[Argument], Result] | SeedBySeed[Argument, Result]":
        """A `function` of one argument, computed for all seeds, see `SeedBySeed`.

        `donate` says whether the argument is donated.
        """
        if self.seed_by_seed:
            compiled = partial(Compiled, self)
            return SeedBySeed(compiled, function, num_seeds=self.num_seeds, donate=donate)
        return self(function, donate=(0,) if donate else ())

    def parallel_seeds(
        self, function: Callable[[Argument], Result], *, donate: bool = False
    ) -> "Callable[[Argument], Result]":
        """The same for a long-running `function`, computed for groups of seeds in parallel."""
        whole = self.of_seeds(function, donate=donate)
        if self.groups == 1 or isinstance(whole, SeedBySeed):
            return whole
        sizes = {"num_seeds": self.num_seeds, "groups": self.groups}
        return ParallelSeeds(
            partial(Compiled, self), whole.function, self._group_threads, donate=donate, **sizes
        )

    def close(self) -> None:
        """Ends the threads of the seed groups; they restart when needed."""
        for thread in self._threads:
            thread.shutdown(wait=False)
        self._threads = []

    def _group_threads(self) -> list[futures.ThreadPoolExecutor]:
        # XLA runs what one thread starts in order, so each group has its own thread, shared by all
        # functions.
        if not self._threads:
            self._threads = [
                futures.ThreadPoolExecutor(1, thread_name_prefix=f"seeds-{i}")
                for i in range(self.groups)
            ]
        return self._threads

    def keys(self, key: Key | int) -> Key:
        """The keys of all seeds, [S] ([] for a single seed).

        `key` is a typed key, a batch of S keys, or a seed s, which stands for s, s + 1, ….

        Raises `ConfigError` for anything else.
        """
        single = self.num_seeds == 1
        if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
            inside = 0 <= int(key) <= 2**32 - self.num_seeds
            problem = f"seeds must be in [0, 2**32), got {self.num_seeds} seeds from {key}"
            require(inside, problem, "pass a smaller, non-negative seed")
            keys = jax.vmap(jax.random.key)(
                (int(key) + np.arange(self.num_seeds)).astype(np.uint32)
            )
            return keys[0] if single else keys
        if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
            shape, dtype = getattr(key, "shape", ()), getattr(key, "dtype", None)
            is_legacy = shape[-1:] == (2,) and dtype == np.uint32
            given = "a legacy key (PRNGKey)" if is_legacy else repr(key)
            raise ConfigError(
                f"key must be a typed key or a seed, got {given}; pass jax.random.key(0), or 0"
            )
        if not single and key.ndim == 0:
            return jax.random.split(key, self.num_seeds)
        require(
            key.shape == (() if single else (self.num_seeds,)),
            f"keys have shape {key.shape}, but num_seeds={self.num_seeds}",
            "pass one key, or one per seed",
        )
        return key


class Compiled(Generic[P, Result]):
    """A function compiled ahead of time for its first arguments; `executable` is None before."""

    def __init__(
        self, compiler: Compiler, function: Callable[P, Result], donate: tuple[int, ...] = ()
    ):
        self.function = function
        self._compiler = compiler
        self._donate = donate
        self.executable: Any = None

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> Result:
        self.compile(*arguments, **named)
        return self.executable(*arguments, **named)

    def compile(self, *arguments: P.args, **named: P.kwargs) -> None:
        """Compiles for arguments of these shapes, unless already compiled; computes nothing."""
        if self.executable is not None:
            return
        start = time.perf_counter()
        traced = jax.jit(self.function, donate_argnums=self._donate).trace(*arguments, **named)
        self.executable = threefry.lower(traced).compile(
            compiler_options=compiler_options(traced.jaxpr) or None
        )
        self._compiler.seconds += time.perf_counter() - start
        self._compiler.count += 1
