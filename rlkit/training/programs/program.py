"""The functions that a run calls. On a jittable environment each is one compiled program;
`make_program` chooses.
"""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from rlkit.errors import require
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.config import Overlap
from rlkit.training.core.module import (
    Module,
    RLModule,
    evaluate,
    iteration,
    outer_iteration,
    strong_types,
)
from rlkit.training.programs.host_player import HostPlayer
from rlkit.training.programs.host_program import HostProgram
from rlkit.types import Key, PyTree


class Program(Protocol):
    """What the Trainer calls; states have a leading axis S where there are several seeds.

    States passed to `refill`, `outer` and `single` are taken over: use what they return.
    """

    def init(self, key: Key, /) -> PyTree:
        """The state before training."""
        ...

    def state_shape(self, key: Key, /) -> PyTree:
        """The shapes and dtypes of a state."""
        ...

    def restart(self, ts: PyTree, /) -> PyTree:
        """A state that was restored, fit to go on with."""
        ...

    def refill(self, ts: PyTree, /) -> PyTree:
        """A state that was restored without its replay memory, fit to go on with: its policy filled
        a new one.
        """
        ...

    def outer(self, ts: PyTree, /) -> tuple[PyTree, Any]:
        """(state, (metrics, counters)) after an outer iteration."""
        ...

    def single(self, ts: PyTree, /) -> tuple[PyTree, Any]:
        """The same after one iteration."""
        ...

    def copy(self, ts: PyTree, /) -> PyTree:
        """The state in buffers of its own."""
        ...

    def close(self) -> None:
        """Frees what the program made: environments on the host."""
        ...


class DeviceProgram:
    """A module's functions, each compiled when first used; an outer iteration for groups of seeds
    at the same time.
    """

    def __init__(self, module: Module, *, compiler: Compiler, epochs: int):
        counters = getattr(module, "counters", None)

        def step(
            function: Callable[[PyTree], tuple[PyTree, Any]],
        ) -> Callable[[PyTree], tuple[PyTree, Any]]:
            def with_counters(ts: PyTree) -> tuple[PyTree, Any]:
                ts, metrics = function(ts)
                return ts, (metrics, counters(ts) if counters else None)

            return with_counters

        def refill(ts: PyTree) -> PyTree:
            assert isinstance(module, RLModule)  # states of no other module are saved in part
            return strong_types(module.refill(ts))

        self.init = compiler(lambda key: strong_types(module.init_train_state(key)))
        self.refill = compiler(refill, donate=(0,))
        self.outer = compiler.parallel_seeds(
            step(lambda ts: outer_iteration(module, ts, epochs)), donate=True
        )
        self.single = compiler(step(lambda ts: iteration(module, ts, jnp.int32(0))), donate=(0,))
        self.copy = compiler(lambda ts: jax.tree.map(jnp.copy, ts))

    def state_shape(self, key: Key) -> PyTree:
        """See `Program`; computes nothing."""
        return jax.eval_shape(self.init.function, key)

    def restart(self, ts: PyTree) -> PyTree:
        """The state as it is: it holds the environments too."""
        return ts

    def close(self) -> None:
        """Nothing to free."""


def make_program(module: Module, *, compiler: Compiler, epochs: int, overlap: Overlap) -> Program:
    """The program of outer iterations of `epochs` iterations. Raises `ConfigError` where `overlap`
    does not fit the module.
    """
    if isinstance(module, RLModule) and not module.env.is_jittable:
        return HostProgram(module, compiler=compiler, epochs=epochs, overlap=overlap)
    require(
        overlap == "none",
        f"overlap={overlap!r} is about stepping environments on the host, but this one is compiled"
        " with the update",
        'leave it at "none"',
    )
    return DeviceProgram(module, compiler=compiler, epochs=epochs)


class Evaluation:
    """What a module measures between outer iterations, for states of all seeds; called with a
    state.
    """

    def __init__(self, module: Module, compiler: Compiler):
        self._player: HostPlayer | None = None
        if isinstance(module, RLModule) and module.eval_env is not None:
            evaluator = module.evaluator()
            if module.eval_env.is_jittable:
                compiled = compiler.parallel_seeds(evaluator)
                self._measure = lambda ts: compiled(ts.learner.policy)
            else:
                player = self._player = HostPlayer(module.eval_env, module.agent, compiler)
                self._measure = lambda ts: player.evaluate(ts.learner.policy, evaluator)
        elif isinstance(module, RLModule):
            self._measure = lambda ts: {}
        else:
            self._measure = compiler.parallel_seeds(lambda ts: evaluate(module, ts))

    def __call__(self, ts: PyTree) -> dict[str, Any]:
        """Measures by name, arrays [E] ([S, E]) of episodes."""
        return self._measure(ts)

    def close(self) -> None:
        """Frees the environments that were made for it."""
        if self._player is not None:
            self._player.close()
