"""`SweptModule`: a module whose state holds hyperparameters, so that one program serves many.

The trials of a sweep are its seeds; the phases of a curriculum replace them in its state.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from rlkit.algorithms.base import Algorithm
from rlkit.envs.base import EnvAdapter
from rlkit.errors import ConfigError
from rlkit.training.core.module import RLModule, outer_iteration
from rlkit.types import EpisodeStats, Key, Metrics, PolicyState, PyTree, Rollout, TrainState


class Start(struct.PyTreeNode, kw_only=True):
    """What a seed begins with."""

    key: Key
    hyperparameters: Mapping[str, Array | np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweptModule(RLModule):
    """An `RLModule` in which each seed has hyperparameters of its own, which its state holds.

    `values` are theirs, [L] float32 by name, for L seeds; `make` makes the algorithm for those of
    one seed, which may be tracers. `algorithm` stands for all of them where only shapes matter.
    """

    values: Mapping[str, np.ndarray]
    make: Callable[[Mapping[str, Any]], Algorithm]

    @classmethod
    def of(
        cls,
        module: RLModule,
        values: Mapping[str, np.ndarray],
        make: Callable[[Mapping[str, Any]], Algorithm],
    ) -> "SweptModule":
        """`module` with these hyperparameters in its state."""
        fields = {field.name: getattr(module, field.name) for field in dataclasses.fields(RLModule)}
        return cls(**fields, values=values, make=make)

    def divided(self, env: EnvAdapter, num_devices: int, axis_name: str) -> Self:
        """See `RLModule`."""

        def make(values: Mapping[str, Any]) -> Algorithm:
            return self.make(values).divided(num_devices, axis_name)

        return dataclasses.replace(super().divided(env, num_devices, axis_name), make=make)

    def starts(self, keys: Key) -> Start:
        """See `RLModule`."""
        return Start(key=keys, hyperparameters=self._of_seeds(several=bool(keys.ndim)))

    def begin(self, start: Start) -> tuple[TrainState, Metrics]:
        """See `RLModule`; the state holds the hyperparameters of the seed."""
        ts, metrics = self._with(start.hyperparameters).begin(start.key)
        learner = ts.learner.replace(hyperparameters=start.hyperparameters)
        return ts.replace(learner=learner), metrics

    def with_values(self, ts: TrainState) -> TrainState:
        """The state of another module of the kind, of one seed or several, with these values."""
        several = any(x.ndim for x in ts.learner.hyperparameters.values())
        own = {name: jnp.asarray(x) for name, x in self._of_seeds(several=several).items()}
        return ts.replace(learner=ts.learner.replace(hyperparameters=own))

    def get_batch(
        self, ts: TrainState, i: Array
    ) -> tuple[TrainState, tuple[Rollout, EpisodeStats]]:
        """See `RLModule`."""
        return self._with(ts.learner.hyperparameters).get_batch(ts, i)

    def learn(
        self,
        ts: TrainState,
        rollout: Rollout,
        episodes: EpisodeStats,
        behaviour: PolicyState | None = None,
    ) -> tuple[TrainState, Metrics]:
        """See `RLModule`."""
        module = self._with(ts.learner.hyperparameters)
        return module.learn(ts, rollout, episodes, behaviour)

    def refill(self, ts: TrainState) -> tuple[TrainState, Metrics]:
        """See `RLModule`."""
        return self._with(ts.learner.hyperparameters).refill(ts)

    def _of_seeds(self, *, several: bool) -> Mapping[str, np.ndarray]:
        return {name: x if several else x[0] for name, x in self.values.items()}

    def _with(self, values: Mapping[str, PyTree]) -> RLModule:
        """The module of a seed with these hyperparameters."""
        return RLModule(
            env=self.env,
            agent=self.agent,
            algorithm=self.make(values),
            total_steps=self.total_steps,
            max_evaluation_steps=self.max_evaluation_steps,
        )


def traceable(names: Sequence[str], swept: Callable[[Sequence[str]], SweptModule]) -> list[str]:
    """Those of the hyperparameters `names` whose numbers may be inputs of a program.

    Found by tracing an iteration of `swept(names)`, which computes and compiles nothing. The others
    change shapes, or what is computed.
    """
    if not names or _traces(swept(names)):
        return list(names)
    return [name for name in names if _traces(swept([name]))]


def _traces(module: SweptModule) -> bool:
    """Whether an iteration can be traced with the hyperparameters unknown."""
    values = {name: jnp.float32(x[0]) for name, x in module.values.items()}

    def train(values: dict[str, jax.Array]) -> Any:
        start = module.starts(jax.random.key(0)).replace(hyperparameters=values)
        return outer_iteration(module, module.begin(start)[0], 1)

    try:
        jax.eval_shape(train, values)
    except (TypeError, ValueError, ConfigError):  # what was asked of a tracer it cannot answer
        return False
    return True
