"""Optimisers over optax, by name, with the settings that all of them share."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from optax import contrib

from rlkit.errors import require
from rlkit.optimizers.config import OptimizerConfig
from rlkit.optimizers.schedules import is_zero, scale_by_progress, schedule_of
from rlkit.optimizers.small_arrays import elementwise
from rlkit.types import PyTree

Rule = Callable[[OptimizerConfig], optax.GradientTransformation]
MUON_RMS = (
    0.2  # of an update: about that of Adam, so that its learning rates suit (Liu et al. 2025)
)


def create_optimizer(config: OptimizerConfig) -> optax.GradientTransformationExtraArgs:
    """Clipping, then the rule, then weight decay, then minus the scheduled learning rate.

    A gradient is clipped by value first, then by the global norm. Weight decay is apart from the
    gradient, as in AdamW (Loshchilov & Hutter 2019), and only for arrays of two and more axes:
    biases, norms, standard deviations and temperatures keep their values. Muon orthogonalises the
    updates of matrices; all else follows Adam with the same learning rate. `progress`, [] in
    [0, 1], is an extra argument of `update`, which rlkit's algorithms pass.

    Raises `ConfigError` for settings out of range, or without effect.
    """
    require(
        isinstance(config, OptimizerConfig),
        f"{type(config).__name__} does not describe an optimiser",
        "derive the config from rlkit.OptimizerConfig, or pass an optax transformation",
    )
    rate = scale_by_progress(schedule_of(config))
    rule = [*_clipping(config), RULES[config.optimizer](config)]
    decay = _weight_decay(config)
    if decay:
        return optax.chain(_chain(config, *rule), *decay, rate)
    return _chain(config, *rule, rate)


def _chain(
    config: OptimizerConfig, *parts: optax.GradientTransformation
) -> optax.GradientTransformationExtraArgs:
    """The chain of `parts`, elementwise unless the rule looks at whole matrices."""
    chained = optax.chain(*parts)
    return chained if config.optimizer == "muon" else elementwise(chained)


def _clipping(config: OptimizerConfig) -> list[optax.GradientTransformation]:
    value, norm = config.max_grad_value, config.max_grad_norm
    return [
        *([] if value is None else [optax.clip(value)]),
        *([] if norm is None else [optax.clip_by_global_norm(norm)]),
    ]


def _weight_decay(config: OptimizerConfig) -> list[optax.GradientTransformation]:
    decay = config.weight_decay
    if decay is None:
        decay = 0.01 if config.optimizer == "adamw" else 0.0
    return [] if is_zero(decay) else [optax.add_decayed_weights(decay, _is_matrix)]


def _is_matrix(params: PyTree) -> PyTree:
    return jax.tree.map(lambda x: jnp.ndim(x) > 1, params)


def _betas(config: OptimizerConfig, default: tuple[float, float]) -> tuple[float, float]:
    return default if config.optimizer_betas is None else config.optimizer_betas


def _adam(config: OptimizerConfig) -> optax.GradientTransformation:
    return optax.scale_by_adam(*_betas(config, (0.9, 0.999)), eps=config.optimizer_epsilon)


def _radam(config: OptimizerConfig) -> optax.GradientTransformation:
    return optax.scale_by_radam(*_betas(config, (0.9, 0.999)), eps=config.optimizer_epsilon)


def _rmsprop(config: OptimizerConfig) -> optax.GradientTransformation:
    """ε is outside the square root, as in the RL baselines."""
    scaled = optax.scale_by_rms(decay=0.99, eps=config.optimizer_epsilon, eps_in_sqrt=False)
    return scaled if config.momentum is None else optax.chain(scaled, _momentum(config))


def _momentum(config: OptimizerConfig) -> optax.GradientTransformation:
    if config.momentum is None:
        return optax.identity()
    return optax.trace(config.momentum, nesterov=bool(config.nesterov))


def _adagrad(config: OptimizerConfig) -> optax.GradientTransformation:
    """Optax adds ε under the root; its square there is as large as ε beside the root."""
    epsilon = config.optimizer_epsilon
    return optax.scale_by_rss(initial_accumulator_value=0.0, eps=epsilon * epsilon)


def _lion(config: OptimizerConfig) -> optax.GradientTransformation:
    return optax.scale_by_lion(*_betas(config, (0.9, 0.99)))


def _muon(config: OptimizerConfig) -> optax.GradientTransformation:
    whole = contrib.muon(
        1.0,
        beta=0.95 if config.momentum is None else config.momentum,
        eps=config.optimizer_epsilon,
        nesterov=config.nesterov is not False,
        consistent_rms=MUON_RMS,
    )
    return optax.chain(whole, optax.scale(-1.0))  # the learning rate comes after it


RULES: dict[str, Rule] = {
    "adam": _adam,
    "adamw": _adam,  # Adam, with its weight decay
    "radam": _radam,
    "sgd": _momentum,
    "rmsprop": _rmsprop,
    "adagrad": _adagrad,
    "lion": _lion,
    "muon": _muon,
}
