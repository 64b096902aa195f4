"""A run compiled as a whole: environments, acting and learning."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from rlkit.ops.strong_types import strong_types
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.core.module import (
    Module,
    RLModule,
    iteration,
    outer_iteration,
)
from rlkit.training.programs.protocol import Results
from rlkit.types import Counters, Key, Metrics, PyTree


class DeviceProgram:
    """A module's functions (see `Program`), each compiled on first call.

    An outer iteration runs groups of seeds in parallel.
    """

    def __init__(
        self, module: Module, *, compiler: Compiler, num_iterations: int, keeps_each: bool = False
    ):
        # An outer iteration is one call, which donates its state.
        self.unfinished: tuple[PyTree, int] | None = None
        self.on_warm_up: Callable[[int], None] = lambda rollouts: (
            None
        )  # nor does it warm up in parts
        counters: Callable[[PyTree], Counters] | None = getattr(module, "counters", None)

        def step(
            function: Callable[[PyTree], tuple[PyTree, Metrics]],
        ) -> Callable[[PyTree], tuple[PyTree, Results]]:
            def with_counters(ts: PyTree) -> tuple[PyTree, Results]:
                ts, metrics = function(ts)
                return ts, (metrics, counters(ts) if counters else None)

            return with_counters

        def refill(ts: PyTree) -> PyTree:
            assert isinstance(module, RLModule)  # only its states are saved in part
            return strong_types(module.refill(ts))

        def start(key: Key) -> PyTree:
            return strong_types(module.init_train_state(key))

        self._start = compiler(start).function
        self.init = compiler.of_seeds(start)
        self.refill = compiler.of_seeds(refill, donate=True)
        self.outer = compiler.parallel_seeds(
            step(lambda ts: outer_iteration(module, ts, num_iterations, keeps_each=keeps_each)),
            donate=True,
        )
        self.single = compiler.of_seeds(
            step(lambda ts: iteration(module, ts, jnp.int32(0))), donate=True
        )
        self.copy = compiler(lambda ts: jax.tree.map(jnp.copy, ts))

    def state_shape(self, key: Key) -> PyTree:
        """See `Program`; computes nothing."""
        return jax.eval_shape(self._start, key)

    def environments(self, ts: PyTree) -> None:
        """See `Program`."""

    def resume(self, ts: PyTree, environments: np.ndarray) -> PyTree:
        """The state unchanged."""
        return ts

    def restart(self, ts: PyTree) -> PyTree:
        """The state unchanged: it holds the environments too."""
        return ts

    def close(self) -> None:
        """Nothing to free."""
