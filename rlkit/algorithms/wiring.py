"""What the factories of all algorithms share: overrides of their parts, checks of their agents."""

import dataclasses
from collections.abc import Callable
from typing import Any

import optax

from rlkit.algorithms.batch_builders import ProcessBatch
from rlkit.algorithms.gradient_step import LossFn
from rlkit.errors import ConfigError
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


def check_methods(name: str, given: Any, needs: tuple[str, ...], agent: str) -> None:
    """Raises `ConfigError` where the agent `given` lacks a method that the algorithm `name` calls;
    `agent` names one that has them.
    """
    if any(not hasattr(given, method) for method in needs):
        raise ConfigError(
            f"{name} needs an agent with {', '.join(f'`{method}`' for method in needs)}, got"
            f" {type(given).__name__}; use rlkit.{agent}(env.observation_space, env.action_space)"
        )
