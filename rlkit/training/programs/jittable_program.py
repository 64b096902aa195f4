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
        self.warm_up_metrics: Metrics = {}
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

        def refill(ts: PyTree) -> tuple[PyTree, Metrics]:
            assert isinstance(module, RLModule)  # only its states are saved in part
            return strong_types(module.refill(ts))

        def start(key: Key) -> tuple[PyTree, Metrics]:
            if isinstance(module, RLModule):
                return strong_types(module.begin(key))
            return strong_types(module.init_train_state(key)), {}

        self._state_shape = compiler(lambda key: start(key)[0]).function
        self._init = compiler.of_seeds(start)
        self._refill = compiler.of_seeds(refill, donate=True)
        self.outer = compiler.parallel_seeds(
            step(lambda ts: outer_iteration(module, ts, num_iterations, keeps_each=keeps_each)),
            donate=True,
        )
        self.single = compiler.of_seeds(
            step(lambda ts: iteration(module, ts, jnp.int32(0))), donate=True
        )
        self.copy = compiler(lambda ts: jax.tree.map(jnp.copy, ts))

    def init(self, key: Key) -> PyTree:
        """See `Program`."""
        ts, self.warm_up_metrics = self._init(key)
        return ts

    def state_shape(self, key: Key) -> PyTree:
        """See `Program`; computes nothing."""
        return jax.eval_shape(self._state_shape, key)

    def environments(self, ts: PyTree) -> None:
        """See `Program`."""

    def resume(self, ts: PyTree, environments: np.ndarray) -> PyTree:
        """The state unchanged."""
        return ts

    def refill(self, ts: PyTree) -> PyTree:
        """See `Program`."""
        ts, self.warm_up_metrics = self._refill(ts)
        return ts

    def restart(self, ts: PyTree) -> PyTree:
        """The state unchanged: it holds the environments too."""
        return ts

    def close(self) -> None:
        """Nothing to free."""
