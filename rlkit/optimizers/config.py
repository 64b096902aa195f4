"""`OptimizerConfig`: what the configs of all algorithms say about their optimiser. No JAX."""

import dataclasses
import itertools
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Len, Lt

from rlkit.errors import require
from rlkit.validation import PositiveInt

PositiveFloat = Annotated[float, Gt(0)]
# With these limits, a step is finite whenever the gradient is, so that nothing has to test it.
LARGEST_STEP = 100.0
StepSize = Annotated[float, Gt(0), Le(LARGEST_STEP)]
LARGEST_DECAY = 1.0  # of a matrix in one step; beyond 2, weights would grow without limit
UnitInterval = Annotated[float, Ge(0), Le(1)]
Decay = Annotated[float, Ge(0), Lt(1)]
ScheduleName = Literal["constant", "linear", "cosine", "exponential", "step", "multistep"]
OptimizerName = Literal["adam", "adamw", "radam", "sgd", "rmsprop", "adagrad", "lion", "muon"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """An optimiser and the schedule of its learning rate. A part of each algorithm's config.

    Schedules are functions of the progress of the run, from 0 to 1, see `create_schedule`.
    """

    learning_rate: StepSize = 3e-4
    """Step size of the optimiser, which its schedule scales."""
    learning_rate_schedule: ScheduleName = "constant"
    """How the step size falls over the run. linear and cosine end at 0 (or at the floor);
    exponential, step and multistep multiply it by learning_rate_decay.
    """
    learning_rate_warmup: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Fraction of the run in which the step size first rises from 0."""
    learning_rate_floor: UnitInterval = 0.0
    """Fraction of learning_rate below which the schedule never falls."""
    learning_rate_cycles: PositiveInt | None = None
    """Number of times that cosine falls, each time from the top; None: 1."""
    learning_rate_decay: Annotated[float, Gt(0), Le(1)] | None = None
    """Factor of exponential over the whole run, of step and multistep each time; None: 0.1."""
    learning_rate_interval: Annotated[float, Gt(0), Lt(1)] | None = None
    """Fraction of the run after which step multiplies, again and again; None: 0.25."""
    learning_rate_milestones: (
        Annotated[tuple[Annotated[float, Gt(0), Lt(1)], ...], Len(1)] | None
    ) = None
    """Fractions of the run at which multistep multiplies, in order; None: 0.5 0.75."""
    optimizer: OptimizerName = "adam"
    """Update rule."""
    optimizer_epsilon: PositiveFloat = 1e-8
    """Added to the denominator of adaptive update rules."""
    optimizer_betas: tuple[Decay, Decay] | None = None
    """Decay of the averages of the gradient and its square, for adam, adamw, radam and lion.
    None: 0.9 0.999, for lion 0.9 0.99.
    """
    momentum: Decay | None = None
    """Momentum of sgd, rmsprop and muon; None: 0, for muon 0.95."""
    nesterov: bool | None = None
    """Nesterov's form of momentum, for sgd and muon; None: only for muon."""
    weight_decay: Annotated[float, Ge(0)] | None = None
    """Decay of weight matrices, times the step size and apart from the gradient, as in AdamW.
    None: 0.01 for adamw, otherwise 0.
    """
    max_grad_norm: PositiveFloat | None = None
    """Largest global norm of the gradient; None: no clipping."""
    max_grad_value: PositiveFloat | None = None
    """Largest size of each number of the gradient, before the norm is clipped; None: no clipping.
    """


SCHEDULES_THAT_USE = {
    "learning_rate_cycles": ("cosine",),
    "learning_rate_decay": ("exponential", "step", "multistep"),
    "learning_rate_interval": ("step",),
    "learning_rate_milestones": ("multistep",),
}
OPTIMIZERS_THAT_USE = {
    "optimizer_betas": ("adam", "adamw", "radam", "lion"),
    "momentum": ("sgd", "rmsprop", "muon"),
    "nesterov": ("sgd", "muon"),
}


def check_optimizer(config: "OptimizerConfig") -> None:
    """Raises `ConfigError` if a setting would have no effect, or if they contradict each other."""
    _require_used(config, "learning_rate_schedule", SCHEDULES_THAT_USE)
    _require_used(config, "optimizer", OPTIMIZERS_THAT_USE)
    _require_defaults(config)
    require(
        not config.nesterov or config.optimizer != "sgd" or config.momentum is not None,
        "nesterov=True needs momentum, of which sgd has none by default",
        "set momentum=0.9, for instance",
    )
    rate, decay = config.learning_rate, config.weight_decay
    both = [x for x in (rate, decay) if isinstance(x, int | float)]  # not those that are traced
    require(
        len(both) < 2 or both[0] * both[1] <= LARGEST_DECAY,
        f"learning_rate={rate} times weight_decay={decay} exceeds {LARGEST_DECAY:g}: each step"
        " would turn the weights around",
        "lower one of them; weight_decay=0.01 is usual",
    )
    milestones = config.learning_rate_milestones or ()
    require(
        all(a < b for a, b in itertools.pairwise(milestones)),
        f"learning_rate_milestones must rise, got {milestones}",
        f"use {tuple(sorted(set(milestones)))}",
    )


def _require_defaults(config: "OptimizerConfig") -> None:
    """Raises `ConfigError` for settings without effect whose default is a number."""
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    rule, schedule = config.optimizer, config.learning_rate_schedule
    unused = {
        "optimizer_epsilon": ("optimizer", rule, ("sgd", "lion")),
        "learning_rate_floor": ("learning_rate_schedule", schedule, ("constant",)),
    }
    for name, (chosen_by, chosen, without) in unused.items():
        value = getattr(config, name)
        require(
            chosen not in without or not isinstance(value, int | float) or value == defaults[name],
            f"{name}={value} has no effect with {chosen_by}={chosen}",
            f"leave it at {defaults[name]}, or set another {chosen_by}",
        )


def _require_used(
    config: "OptimizerConfig", chosen_by: str, used_by: dict[str, tuple[str, ...]]
) -> None:
    chosen = getattr(config, chosen_by)
    for name, users in used_by.items():
        require(
            getattr(config, name) is None or chosen in users,
            f"{name} has no effect with {chosen_by}={chosen}",
            f"leave it out, or set {chosen_by} to {' or '.join(users)}",
        )
