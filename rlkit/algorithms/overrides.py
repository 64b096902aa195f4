"""What the factories of all algorithms share: overrides of their parts."""

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
        """What is overridden, so that the config alone does not describe the algorithm."""
        return tuple(
            field.name
            for field in dataclasses.fields(self)
            if getattr(self, field.name) is not None
        )
