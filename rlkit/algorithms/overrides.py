"""Overrides of parts, which the factories of all algorithms share."""

import dataclasses
from collections.abc import Callable

import optax

from rlkit.algorithms.batch_builder import ProcessBatch
from rlkit.algorithms.gradient_step import GradientStep, LossFn
from rlkit.algorithms.parameter_groups import Group
from rlkit.optimizers import OptimizerConfig, create_optimizer
from rlkit.types import PyTree


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overrides:
    """Parts that a user passes with the config; None: the algorithm's own."""

    loss: LossFn | None = None
    optimizer: optax.GradientTransformation | None = None
    process_batch: ProcessBatch | None = None
    process_gradients: Callable[[PyTree], PyTree] | None = None

    def step(
        self, config: OptimizerConfig, loss: LossFn, *, group: Group = None, every: int = 1
    ) -> GradientStep:
        """The gradient step of an algorithm with this config, except for what is overridden."""
        return GradientStep(
            loss=self.loss or loss,
            optimizer=self.optimizer or create_optimizer(config),
            group=group,
            process_gradients=self.process_gradients,
            every=every,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the overridden parts, which the config alone does not describe."""
        return tuple(
            field.name
            for field in dataclasses.fields(self)
            if getattr(self, field.name) is not None
        )
