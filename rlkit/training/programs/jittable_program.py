"""A run compiled as a whole: environments, acting and learning."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlkit.envs.base import EnvAdapter, traced_params
from rlkit.ops.strong_types import strong_types
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.compile.devices import OWN, SAME, shares_of_state
from rlkit.training.core.module import (
    Module,
    RLModule,
    iteration,
    outer_iteration,
)
from rlkit.training.programs.protocol import NEW_PHASE, Program, Results
from rlkit.training.programs.shares import share_of
from rlkit.types import Counters, Key, LocalState, Metrics, PyTree


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
        # Nor does it warm up in parts.
        self.on_warm_up: Callable[[int], None] = lambda rollouts: None
        module = share_of(module, compiler.devices)
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

        def start(given: PyTree) -> tuple[PyTree, Metrics]:
            if isinstance(module, RLModule):
                return strong_types(module.begin(given))
            return strong_types(module.init_train_state(given)), {}

        self._starts: Callable[[Key], PyTree] = (
            module.starts if isinstance(module, RLModule) else lambda keys: keys
        )

        def enter(given: tuple[LocalState, PyTree]) -> LocalState:
            assert isinstance(module, RLModule)
            local, params = given
            env: Any = module.env
            if jax.tree.leaves(params):  # not constants, so that one program serves all of them
                env = env.replace_params(params)
            key = jax.random.fold_in(local.key, NEW_PHASE)
            env_state, obs = env.reset(key)
            return strong_types(module.algorithm.enter(module.agent, env, local, obs, env_state))

        self._module, self._compiler = module, compiler
        self._enter_function = enter
        state = shares_of_state() if isinstance(module, RLModule) else SAME
        stepping: dict[str, Any] = {"donate": True, "takes": state, "gives": (state, SAME)}
        self._state_shape = compiler(lambda given: start(given)[0], gives=state)
        self._init = compiler.of_seeds(start, gives=(state, SAME))
        self._refill = compiler.of_seeds(refill, **stepping)
        self.outer = compiler.parallel_seeds(
            step(lambda ts: outer_iteration(module, ts, num_iterations, keeps_each=keeps_each)),
            **stepping,
        )
        self.single = compiler.of_seeds(
            step(lambda ts: iteration(module, ts, jnp.int32(0))), **stepping
        )
        copied: Any = compiler(lambda ts: jax.tree.map(jnp.copy, ts), takes=(state,), gives=state)
        self.copy = copied

    def init(self, key: Key) -> PyTree:
        """See `Program`."""
        ts, self.warm_up_metrics = self._init(self._starts(key))
        return ts

    def enter(self, ts: PyTree) -> PyTree:
        """See `Program`; states of other shapes are other programs."""
        assert isinstance(self._module, RLModule)
        local = ts.local.replace(env_state=(), obs=(), carry=(), episodes=())
        given = local, self._compiler.for_seeds(traced_params(self._module.env))
        # A memory for another number of environments cannot take the place of the old one.
        is_same_number = ts.local.discounted_return.shape[-1] == self._module.env.num_envs
        entered = self._compiler.of_seeds(
            self._enter_function, donate=is_same_number, takes=(OWN, SAME), gives=OWN
        )(given)
        return ts.replace(local=entered)

    def adopt(self, other: Program) -> None:
        """Nothing to do: the state holds the environments."""

    def use(self, env: EnvAdapter) -> None:
        """Nothing to do: other environments have a program of their own."""

    def state_shape(self, key: Key) -> PyTree:
        """See `Program`; computes nothing."""
        return self._state_shape.shape(self._starts(key))

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

    def whole(self, ts: PyTree) -> PyTree:
        """The state unchanged: its arrays are."""
        return ts

    def close(self) -> None:
        """Nothing to free."""
