"""Compiles functions with `jax.jit`: once, ahead of time, mapped over seeds, and timed."""

import contextlib
import copy
import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from rlkit.errors import require
from rlkit.ops.keys import is_seed, typed_keys
from rlkit.training.compile import placing
from rlkit.training.compile.devices import SAME, Axes, Devices, Shares
from rlkit.training.compile.parallel_seeds import ParallelSeeds, SeedBySeed
from rlkit.types import Key, PyTree
from rlkit.xla_cpu import threefry
from rlkit.xla_cpu.xla_options import compiler_options

P = ParamSpec("P")
Result = TypeVar("Result")
Argument = TypeVar("Argument")


class Compiler:
    """Compiles the functions of a run; with several seeds, each is mapped over a leading axis S.

    `parallel_seeds` computes `groups` groups of seeds in parallel, see `num_groups`; if
    `seed_by_seed`, each seed by the program of a single one. `seconds` is the total time spent
    tracing and compiling, `count` the number of compilations. If it `shares`, functions that lower
    to the same program, such as those of two phases of a curriculum, are compiled once. With
    `devices`, each of them computes its share.
    """

    def __init__(
        self,
        num_seeds: int,
        groups: int = 1,
        *,
        seed_by_seed: bool = False,
        shares: bool = False,
        devices: Devices | None = None,
    ):
        self.num_seeds = num_seeds
        self.devices = devices
        self.shared = SharedPrograms() if shares else None
        self.seed_by_seed = seed_by_seed
        self.groups = groups
        self.spent = Spent()
        self._threads: list[futures.ThreadPoolExecutor] = []

    @property
    def seconds(self) -> float:
        """Seconds spent tracing and compiling."""
        return self.spent.seconds

    @property
    def count(self) -> int:
        """Compilations so far."""
        return self.spent.count

    @property
    def for_evaluation(self) -> "Compiler":
        """The compiler for what acts and evaluates: on one of the devices that train a seed."""
        if self.devices is None:
            return self
        other = copy.copy(self)
        other.devices = self.devices.for_evaluation
        return other

    def __call__(
        self,
        function: Callable[P, Result],
        *,
        donate: Sequence[int] = (),
        axes: Axes = 0,
        out_axes: Axes = 0,
        takes: Shares = SAME,
        gives: Shares = SAME,
    ) -> "Compiled[P, Result]":
        """`function`, compiled on first call; the arguments in `donate` are donated.

        `axes` and `out_axes` give the position of S in each argument and result, `takes` and
        `gives` what each of several devices has of them, see `Devices`.
        """
        several = self.num_seeds > 1
        mapped: Any = function
        if several:
            mapped = jax.vmap(function, in_axes=axes, out_axes=out_axes)
        if self.devices is None:
            return Compiled(self, mapped, tuple(donate))
        mapped, shardings, are_rows = self.devices.mapped(
            mapped,
            takes=takes,
            gives=gives,
            axes=axes if several else None,
            out_axes=out_axes if several else None,
        )
        return Compiled(self, mapped, tuple(donate), shardings=shardings, are_rows=are_rows)

    def of_seeds(
        self,
        function: Callable[[Argument], Result],
        *,
        donate: bool = False,
        takes: Shares = SAME,
        gives: Shares = SAME,
    ) -> "Compiled[[Argument], Result] | SeedBySeed[Argument, Result]":
        """A `function` of one argument, computed for all seeds, see `SeedBySeed`.

        `donate` says whether the argument is donated; `takes` and `gives` are as above.
        """
        if self.seed_by_seed:
            compiled = partial(Compiled, self)
            return SeedBySeed(compiled, function, num_seeds=self.num_seeds, donate=donate)
        return self(function, donate=(0,) if donate else (), takes=(takes,), gives=gives)

    def parallel_seeds(
        self,
        function: Callable[[Argument], Result],
        *,
        donate: bool = False,
        takes: Shares = SAME,
        gives: Shares = SAME,
    ) -> "Callable[[Argument], Result]":
        """The same for a long-running `function`, computed for groups of seeds in parallel."""
        whole = self.of_seeds(function, donate=donate, takes=takes, gives=gives)
        if self.groups == 1 or isinstance(whole, SeedBySeed):
            return whole
        sizes = {"num_seeds": self.num_seeds, "groups": self.groups}
        return ParallelSeeds(
            partial(Compiled, self), whole.function, self._group_threads, donate=donate, **sizes
        )

    def for_seeds(self, tree: PyTree) -> PyTree:
        """The same values for every seed, with a leading axis S if there are several.

        In arrays of their own, so that whoever is passed them may donate them.
        """
        if self.num_seeds == 1:
            return jax.tree.map(lambda x: jnp.asarray(x).copy(), tree)
        return jax.tree.map(
            lambda x: jnp.broadcast_to(x, (self.num_seeds, *jnp.shape(x))).copy(), tree
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
        if is_seed(key):
            inside = 0 <= int(key) <= 2**32 - self.num_seeds
            problem = f"seeds must be in [0, 2**32), got {self.num_seeds} seeds from {key}"
            require(inside, problem, "pass a smaller, non-negative seed")
            keys = jax.vmap(jax.random.key)(
                (int(key) + np.arange(self.num_seeds)).astype(np.uint32)
            )
            return keys[0] if single else keys
        key = typed_keys(key)
        if not single and key.ndim == 0:
            return jax.random.split(key, self.num_seeds)
        require(
            key.shape == (() if single else (self.num_seeds,)),
            f"keys have shape {key.shape}, but num_seeds={self.num_seeds}",
            "pass one key, or one per seed",
        )
        return key


@dataclasses.dataclass
class Spent:
    """What compiling has taken so far."""

    seconds: float = 0.0
    count: int = 0


class SharedPrograms:
    """Executables by what XLA was given: the program as text, with all of its constants."""

    def __init__(self) -> None:
        self._known: dict[bytes, list[tuple[Any, Any]]] = {}

    def get(self, lowered: jax.stages.Lowered, compile: Callable[[], Any]) -> Any:
        """The executable of an equal program; that of `compile()` if there is none yet."""
        digest = hashlib.sha256(lowered.as_text().encode()).digest()
        # Equal arrays may be leaves of other trees, and what is not used is not in the program.
        arguments = [(x.shape, x.dtype) for x in jax.tree.leaves(lowered.in_avals)]
        form = lowered.in_tree, lowered.out_tree, arguments
        known = self._known.setdefault(digest, [])
        for found, executable in known:
            if found == form:
                return executable
        known.append((form, compile()))
        return known[-1][1]


class Compiled(Generic[P, Result]):
    """A function compiled ahead of time for its first arguments; `executable` is None before.

    `is_shared` says whether an equal program of the compiler may stand for it; one that calls back
    into Python has no equal.
    """

    def __init__(
        self,
        compiler: Compiler,
        function: Callable[P, Result],
        donate: tuple[int, ...] = (),
        *,
        is_shared: bool = True,
        shardings: Mapping[str, Any] | None = None,
        are_rows: tuple[PyTree, PyTree] = (False, False),
    ):
        self.function = function
        self._compiler = compiler
        self._shardings = shardings or {}
        # Of several processes, none can give the devices of another what they lack.
        self._always_places = bool(self._shardings) and jax.process_count() > 1
        self._are_rows = are_rows
        self._donate = donate
        self._shared = compiler.shared if is_shared else None
        self.executable: Any = None

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> Result:
        if self._always_places or (self._shardings and self.executable is None):
            arguments = self._placed(arguments)  # pyright: ignore[reportAssignmentType]
        self.compile(*arguments, **named)
        executable: Any = self.executable
        if self._always_places:
            return placing.own_rows(executable(*arguments, **named), self._are_rows[1])
        try:
            return executable(*arguments, **named)
        except ValueError as error:
            if not self._shardings or "sharding" not in str(error):
                raise
            # What was restored or passed in is elsewhere, which is told before anything is donated.
            # To look at every array in every call would take as long as a small program.
            return executable(*self._placed(arguments), **named)

    def shape(self, *arguments: Any) -> PyTree:
        """The shapes and dtypes of the results, and where they are on several devices."""
        shape = jax.eval_shape(self.function, *arguments)
        if not self._shardings:
            return shape

        def placed(sharding: Any, tree: PyTree) -> PyTree:
            return jax.tree.map(
                lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree
            )

        return jax.tree.map(placed, self._shardings["out_shardings"], shape)

    def _placed(self, arguments: Any) -> Any:
        if self._always_places:
            return placing.placed(arguments, self._shardings["in_shardings"], self._are_rows[0])
        return jax.device_put(arguments, self._shardings["in_shardings"])

    def compile(self, *arguments: P.args, **named: P.kwargs) -> None:
        """Compiles for arguments of these shapes, unless already compiled; computes nothing."""
        if self.executable is not None:
            return
        start = time.perf_counter()
        with _interrupts_stay_interrupts():
            jitted = jax.jit(self.function, donate_argnums=self._donate, **self._shardings)
            traced = jitted.trace(*arguments, **named)
            lowered = threefry.lower(traced)

        def compile() -> Any:
            self._compiler.spent.count += 1
            return lowered.compile(compiler_options=compiler_options(traced.jaxpr) or None)

        shared = self._shared
        self.executable = compile() if shared is None else shared.get(lowered, compile)
        self._compiler.spent.seconds += time.perf_counter() - start


@contextlib.contextmanager
def _interrupts_stay_interrupts() -> Iterator[None]:
    """Ctrl-C is a `KeyboardInterrupt` also where JAX makes a `ValueError` of whatever is raised
    while it compares pytrees.
    """
    try:
        yield
    except ValueError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        raise
