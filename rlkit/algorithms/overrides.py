"""Overrides of parts, which the factories of all algorithms share."""

import dataclasses
from collections.abc import Callable, Mapping

import optax

from rlkit.algorithms.gradient_step import GradientStep, LossFn
from rlkit.algorithms.parameter_groups import Group
from rlkit.algorithms.process_batch import ProcessBatch
from rlkit.errors import did_you_mean, require, shown
from rlkit.optimizers import OptimizerConfig, create_optimizer
from rlkit.signatures import require_takes
from rlkit.types import PyTree
from rlkit.validation import is_array

Losses = Mapping[str, LossFn]
"""The losses of an algorithm with several, by name: those that replace its own."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overrides:
    """Parts that a user passes with the config; None: the algorithm's own."""

    loss: LossFn | Losses | None = None
    optimizer: optax.GradientTransformation | None = None
    process_batch: ProcessBatch | None = None
    process_gradients: Callable[[PyTree], PyTree] | None = None

    def __post_init__(self) -> None:
        own = self.optimizer
        is_made = hasattr(own, "init") and hasattr(own, "update")
        require(
            own is None or is_made,
            f"optimizer must be a gradient transformation of Optax, got {shown(own)}",
            "pass optax.adam(1e-3), for instance, or name one in the config:"
            ' PPOConfig(optimizer="adam")',
        )
        own = self.process_gradients
        require(
            own is None or callable(own),
            f"process_gradients must be a function of the gradients, got {shown(own)}",
            "pass a function",
        )
        if own is not None:
            _require_callable("process_gradients", own, "(gradients)", returns="gradients")

    def step(self, config: OptimizerConfig, loss: LossFn) -> GradientStep:
        """The gradient step of an algorithm with one loss, except for what is overridden.

        Raises `ConfigError` unless a user's loss is a function.
        """
        own = self.loss
        require(
            own is None or callable(own),
            f"loss must be a function, got {own!r}",
            f"pass loss=f, with f{_ARGUMENTS}",
        )
        if callable(own):
            _require_callable("loss", own, _ARGUMENTS)
        return self._step(config, own if callable(own) else loss)

    def steps(
        self, config: OptimizerConfig, **losses: tuple[LossFn, Group, int]
    ) -> tuple[GradientStep, ...]:
        """The gradient steps of an algorithm with several losses, except for what is overridden.

        Each loss, by its name, comes with its group of parameters and its `every`. Raises
        `ConfigError` unless the losses that a user passes are functions under these names.
        """
        own = {} if self.loss is None else self.loss
        names = " and ".join(losses)
        fix = f'pass loss={{"{next(iter(losses))}": f}}; there are {names}'
        if not isinstance(own, Mapping):
            require(False, f"this algorithm has several losses, got {own!r}", fix)
            return ()
        for name, loss in own.items():
            require(name in losses, f"there is no loss {name!r}", did_you_mean(name, losses))
            require(callable(loss), f"the loss {name!r} must be a function, got {loss!r}", fix)
            _require_callable(f"the loss {name!r}", loss, _ARGUMENTS)
        return tuple(
            self._step(config, own.get(name, loss), group, every)
            for name, (loss, group, every) in losses.items()
        )

    def _step(
        self, config: OptimizerConfig, loss: LossFn, group: Group = None, every: int = 1
    ) -> GradientStep:
        return GradientStep(
            loss=loss,
            optimizer=self.optimizer or create_optimizer(config),
            group=group,
            process_gradients=self.process_gradients,
            every=every,
            checks_update=self.optimizer is not None or is_array(config.learning_rate),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the overridden parts, which the config alone does not describe."""
        return tuple(
            field.name
            for field in dataclasses.fields(self)
            if getattr(self, field.name) is not None
        )


_ARGUMENTS = "(agent, params, target_params, batch, key)"


def _require_callable(
    what: str,
    function: Callable[..., object],
    arguments: str,
    *,
    returns: str = "(loss, metrics)",
) -> None:
    """Raises `ConfigError` for a function that does not take what it is called with."""
    names = arguments.strip("()").split(", ")
    require_takes(function, names, what, f"write f{arguments} -> {returns}")
