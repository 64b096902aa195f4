"""Schedules of the learning rate: functions of the progress of the run, kept in no counter.

Progress is in [0, 1], so that a schedule ends with the run however long that is, and a run that is
extended continues with the part of the schedule that it is then in.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import optax
from jax import Array

from rlkit.errors import UnknownNameError, did_you_mean
from rlkit.optimizers.config import (
    LARGEST_STEP,
    OptimizerConfig,
    ScheduleName,
    check_optimizer,
)
from rlkit.types import PyTree
from rlkit.validation import is_array, validate

Schedule = Callable[[Array], Array]
"""From progress [...] to the learning rate [...], both float32."""


def create_schedule(
    name: str,
    learning_rate: float | Array,
    *,
    warmup: float = 0.0,
    floor: float = 0.0,
    cycles: int | None = None,
    decay: float | None = None,
    interval: float | None = None,
    milestones: Sequence[float] | None = None,
) -> Schedule:
    """The schedule `name`, for `scale_by_progress` or a picture.

    Args:
        name: constant, linear, cosine, exponential, step or multistep.
        learning_rate: the rate that the schedule scales, at its top.
        warmup: fraction of the run in which the rate first rises from 0, linearly.
        floor: fraction of `learning_rate` at which linear and cosine end and the others stop.
        cycles: how often cosine falls, each time from the top (Loshchilov & Hutter 2017); None: 1.
        decay: the factor of exponential over the whole run, of step and multistep each time they
            multiply; None: 0.1.
        interval: fraction of the run after which step multiplies, again and again; None: 0.25.
        milestones: fractions of the run at which multistep multiplies; None: (0.5, 0.75).

    Linear, cosine and exponential fall over what the warm-up leaves of the run; step and multistep
    count from its start. Raises `ConfigError` for values out of range, or without effect.
    """
    known = get_args(ScheduleName)
    if name not in known:
        raise UnknownNameError(f"unknown schedule {name!r}; {did_you_mean(name, known)}")
    return schedule_of(
        OptimizerConfig(
            learning_rate=learning_rate,  # pyright: ignore[reportArgumentType]
            learning_rate_schedule=name,  # pyright: ignore[reportArgumentType]
            learning_rate_warmup=warmup,
            learning_rate_floor=floor,
            learning_rate_cycles=cycles,
            learning_rate_decay=decay,
            learning_rate_interval=interval,
            learning_rate_milestones=None if milestones is None else tuple(milestones),
        )
    )


def schedule_of(config: OptimizerConfig) -> Schedule:
    """The schedule that a config describes. Raises `ConfigError`, see `create_schedule`.

    A traced learning rate out of range gives NaN, so that updates with it are skipped and counted.
    """
    check_optimizer(validate(config))
    shape, warmup = _shape(config), config.learning_rate_warmup
    rises = not is_zero(warmup)

    def rate(progress: Array) -> Array:
        top = jnp.asarray(config.learning_rate, jnp.float32)
        if is_array(config.learning_rate):  # perhaps traced, so that `validate` saw no number
            top = jnp.where((top > 0) & (top <= LARGEST_STEP), top, jnp.nan)
        if not rises:
            return top * shape(progress, progress)
        rest = jnp.clip((progress - warmup) / (1.0 - warmup), 0.0, 1.0)
        risen = jnp.where(progress < warmup, progress / warmup, 1.0)
        return top * risen * shape(progress, rest)

    return rate


def _shape(config: OptimizerConfig) -> Callable[[Array, Array], Array]:
    """The fraction of the learning rate, from the progress of the run and of what warm-up leaves.

    At a floor of 0 nothing is computed for it.
    """
    floor = config.learning_rate_floor
    has_floor = not is_zero(floor)
    decay = 0.1 if config.learning_rate_decay is None else config.learning_rate_decay

    def down_to_floor(fraction: Array) -> Array:
        return floor + (1.0 - floor) * fraction if has_floor else fraction

    def times_decay(exponent: Array) -> Array:
        fraction = jnp.power(jnp.float32(decay), exponent)
        return jnp.maximum(fraction, floor) if has_floor else fraction

    shapes: dict[str, Callable[[Array, Array], Array]] = {
        "constant": lambda run, rest: jnp.ones_like(run),
        "linear": lambda run, rest: down_to_floor(1.0 - rest),
        "cosine": lambda run, rest: down_to_floor(
            0.5 * (1.0 + jnp.cos(jnp.pi * _in_cycle(rest, config.learning_rate_cycles or 1)))
        ),
        "exponential": lambda run, rest: times_decay(rest),
        "step": lambda run, rest: times_decay(_steps(run, config.learning_rate_interval)),
        "multistep": lambda run, rest: times_decay(
            _passed(run, config.learning_rate_milestones or (0.5, 0.75))
        ),
    }
    return shapes[config.learning_rate_schedule]


def is_zero(value: float | Array) -> bool:
    """Whether a setting is known to be 0; one that is traced, as in a sweep, is not."""
    return isinstance(value, int | float) and value == 0


def _in_cycle(progress: Array, cycles: int) -> Array:
    """The progress within one of the cycles; the last one ends at 1."""
    if cycles == 1:
        return progress
    return progress * cycles - jnp.minimum(jnp.floor(progress * cycles), cycles - 1.0)


def _steps(progress: Array, interval: float | Array | None) -> Array:
    """How many multiples of an interval in (0, 1) the progress has reached, float32."""
    interval = 0.25 if interval is None else interval
    near = 1e-5  # where rounding would tell a multiple from the progress that equals it
    most = jnp.ceil(1.0 / interval - near) - 1.0
    return jnp.minimum(jnp.floor(progress / interval + near), most)


def _passed(progress: Array, fractions: Sequence[float]) -> Array:
    """How many of the fractions the progress has reached, float32."""
    return jnp.sum(progress[..., None] >= jnp.float32(fractions), axis=-1).astype(jnp.float32)


class LearningRateState(NamedTuple):
    """State of `scale_by_progress`: the rate that the last update used, for logs and callbacks."""

    learning_rate: Array  # [] float32


def scale_by_progress(schedule: Schedule) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by minus the learning rate: the end of a chain of transformations.

    `progress`, [] in [0, 1], is an extra argument of `update`, which rlkit's algorithms pass.
    """

    def init(params: PyTree) -> PyTree:
        del params
        return LearningRateState(schedule(jnp.float32(0.0)))

    def update(
        updates: PyTree, state: PyTree, params: PyTree = None, **extra: Any
    ) -> tuple[PyTree, PyTree]:
        del state, params
        rate = schedule(extra["progress"])
        return jax.tree.map(lambda u: -rate * u, updates), LearningRateState(rate)

    return optax.GradientTransformationExtraArgs(init, update)


def current_learning_rate(opt_state: PyTree) -> Array | None:
    """The learning rate in the optimiser state (ours, or `optax.inject_hyperparams`), if any."""
    rates = optax.tree_utils.tree_get_all_with_path(opt_state, "learning_rate")
    return jnp.asarray(rates[0][1]) if rates else None
