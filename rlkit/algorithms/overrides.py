"""Overrides of parts, which the factories of all algorithms share."""

import dataclasses
from collections.abc import Callable

import optax

from rlkit.algorithms.batch_builders import ProcessBatch
from rlkit.algorithms.gradient_step import LossFn
from rlkit.types import PyTree


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overrides:
    """Parts that a user passes with the config; None: the algorithm's own."""

    loss: LossFn | None = None
    optimizer: optax.GradientTransformation | None = None
    process_batch: ProcessBatch | None = None
    process_gradients: Callable[[PyTree], PyTree] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the overridden parts, which the config alone does not describe."""
        return tuple(
            field.name
            for field in dataclasses.fields(self)
            if getattr(self, field.name) is not None
        )
