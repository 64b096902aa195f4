"""Loss terms on arrays [M], one value per sample."""

import jax
import jax.numpy as jnp
from jax import Array

from rlkit.ops.over_devices import moments


def clipped_surrogate(log_ratio: Array, advantage: Array, clip_epsilon: float | Array) -> Array:
    """PPO's clipped surrogate as a loss (Schulman et al. 2017, eq. 7, negated).

    >>> log_ratio = jnp.log(jnp.array([1.5, 1.5, 0.5]))
    >>> loss = clipped_surrogate(log_ratio, jnp.array([1.0, -1.0, -1.0]), 0.2)
    >>> [round(x, 4) for x in loss.tolist()]
    [-1.2, 1.5, 0.8]
    """
    ratio = jnp.exp(log_ratio)
    return -jnp.minimum(
        ratio * advantage, jnp.clip(ratio, 1.0 - clip_epsilon, 1.0 + clip_epsilon) * advantage
    )


def outside_clip(log_ratio: Array, clip_epsilon: float | Array) -> Array:
    """1 where the probability ratio left 1 ± clip_epsilon, else 0.

    Its mean is PPO's clip fraction.
    """
    return (jnp.abs(jnp.expm1(log_ratio)) > clip_epsilon).astype(jnp.float32)


def at_index(values: Array, index: Array) -> Array:
    """The entries of values [..., M, A] at index [M], in [0, A), of the last axis: [..., M].

    >>> at_index(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([1, 0])).tolist()
    [2.0, 3.0]
    """
    # [M, A]; the gradient of a gather would be a scatter
    chosen = jnp.arange(values.shape[-1])[None] == index[:, None]
    return jnp.where(jnp.broadcast_to(chosen, values.shape), values, 0.0).sum(-1)


def squared_error(prediction: Array, target: Array) -> Array:
    """½ (prediction - target)²."""
    return 0.5 * jnp.square(prediction - target)


def clipped_squared_error(
    prediction: Array, old_prediction: Array, target: Array, clip_epsilon: float | Array
) -> Array:
    """½ max of the squared errors of the prediction and of the clipped prediction.

    The latter is kept within ±clip_epsilon of the old one. The value loss of OpenAI baselines' PPO;
    there is no evidence that it helps (Andrychowicz et al. 2021, §3.1).
    """
    kept = old_prediction + jnp.clip(prediction - old_prediction, -clip_epsilon, clip_epsilon)
    return jnp.maximum(squared_error(prediction, target), squared_error(kept, target))


def approximate_kl(log_ratio: Array) -> Array:
    """Unbiased, non-negative estimate of KL(old ‖ new) per sample: (r - 1) - log r.

    Schulman 2020, "k3".
    """
    return jnp.expm1(log_ratio) - log_ratio


def standardize(x: Array, mean: Array, variance: Array, epsilon: float = 1e-8) -> Array:
    """(x - mean) / (standard deviation + epsilon)."""
    return (x - mean) / (jnp.sqrt(variance) + epsilon)


def explained_variance(prediction: Array, target: Array, axis_name: str | None = None) -> Array:
    """1 - Var[target - prediction] / Var[target], a scalar; 0 where the target is constant.

    With `axis_name`, the variances are those over the samples of all devices.
    """
    first = target.reshape(-1)[0]
    if axis_name is not None:
        first = jax.lax.all_gather(first, axis_name)[0]
    _, unexplained = moments(target - prediction, axis_name)
    # Constant targets are exactly zero then, however their mean is rounded.
    _, variance = moments(target - first, axis_name)
    return jnp.where(variance > 0, 1.0 - unexplained / jnp.maximum(variance, 1e-12), 0.0)
