"""Optimisers whose learning rate follows the progress of the run, kept in the optimiser state."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from rlkit.errors import UnknownNameError, did_you_mean
from rlkit.types import PyTree
from rlkit.xla_cpu.packing import pack_small_arrays

SCHEDULES: dict[str, Callable[[Array], Array]] = {
    "constant": jnp.ones_like,
    "linear": lambda progress: 1.0 - progress,
    "cosine": lambda progress: 0.5 * (1.0 + jnp.cos(jnp.pi * progress)),
}
RULES: dict[str, Callable[[float], optax.GradientTransformation]] = {
    "adam": lambda epsilon: optax.scale_by_adam(eps=epsilon),
    "radam": lambda epsilon: optax.scale_by_radam(eps=epsilon),
    "rmsprop": lambda epsilon: optax.scale_by_rms(decay=0.99, eps=epsilon, eps_in_sqrt=False),
    "sgd": lambda epsilon: optax.identity(),
}


class Elementwise(optax.GradientTransformationExtraArgs):
    """What `elementwise` returns."""

    __slots__ = ()


def elementwise(optimizer: optax.GradientTransformation) -> Elementwise:
    """Runs `optimizer` on all small arrays as one vector, which takes far fewer kernels.

    Its state has that form on every device. The result is the same for optimisers that treat all
    numbers alike, whatever array they are in: `elementwise(optax.adamw(3e-4))`, or clipping by the
    global norm. It is not the same for rules per array, such as trust ratios, or for masks and
    labels by name. `progress` is the only extra argument that `optimizer` gets.
    """
    return Elementwise(*pack_small_arrays(optimizer))


class LearningRateState(NamedTuple):
    """State of `scale_by_progress`: the rate that the last update used, for logs and callbacks."""

    learning_rate: Array  # [] float32


def scale_by_progress(
    learning_rate: float | Array, schedule: str
) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by -learning_rate · schedule(progress).

    `progress`, [] in [0, 1], is an extra argument of `update`.
    """
    if schedule not in SCHEDULES:
        raise UnknownNameError(
            f"unknown schedule {schedule!r}; {did_you_mean(schedule, SCHEDULES)}"
        )

    def init(params: PyTree) -> PyTree:
        del params
        return LearningRateState(jnp.asarray(learning_rate, jnp.float32))

    def update(
        updates: PyTree, state: PyTree, params: PyTree = None, **extra: Any
    ) -> tuple[PyTree, PyTree]:
        del state, params
        rate = jnp.asarray(learning_rate, jnp.float32) * SCHEDULES[schedule](extra["progress"])
        return jax.tree.map(lambda u: -rate * u, updates), LearningRateState(rate)

    return optax.GradientTransformationExtraArgs(init, update)


def make_optimizer(
    name: str,
    *,
    learning_rate: float | Array,
    schedule: str = "constant",
    max_grad_norm: float | None = None,
    epsilon: float = 1e-5,
) -> Elementwise:
    """Global-norm clipping (if `max_grad_norm`), then the rule, then the scheduled learning rate.

    `epsilon` is added outside the square root, as in the RL baselines. Raises `UnknownNameError`.
    """
    if name not in RULES:
        raise UnknownNameError(
            f"unknown optimizer {name!r}; {did_you_mean(name, RULES)}, or pass any optax"
            " transformation"
        )
    clip = [] if max_grad_norm is None else [optax.clip_by_global_norm(max_grad_norm)]
    return elementwise(
        optax.chain(*clip, RULES[name](epsilon), scale_by_progress(learning_rate, schedule))
    )


def optimizer_of(config: Any) -> Elementwise:
    """The optimiser that the config of an algorithm describes."""
    return make_optimizer(
        config.optimizer,
        learning_rate=config.learning_rate,
        schedule=config.learning_rate_schedule,
        max_grad_norm=config.max_grad_norm,
        epsilon=config.optimizer_epsilon,
    )


def current_learning_rate(opt_state: PyTree) -> Array | None:
    """The learning rate in the optimiser state (ours, or `optax.inject_hyperparams`), if any."""
    rates = optax.tree_utils.tree_get_all_with_path(opt_state, "learning_rate")
    return jnp.asarray(rates[0][1]) if rates else None
