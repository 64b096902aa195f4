"""Quantile-regression DQN: learns quantiles of the return, whose mean is the value.

Dabney et al. 2018, "Distributional Reinforcement Learning with Quantile Regression", algorithm 1.
Defaults are those of Stable-Baselines3-Contrib's `qrdqn.py` before 2.3, which are the paper's for
Atari. Differs from it in exploration and layers, which are our `q_network`'s, and in counting the
target's period over all environments. Adds double Q-learning, n-step returns and prioritised replay
(by the error of the mean) as options.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax import Array

from rlkit.agents.base import QuantileAgent
from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.configs import QRDQNConfig
from rlkit.algorithms.gradient_step import LossFn
from rlkit.algorithms.off_policy import off_policy
from rlkit.algorithms.overrides import Overrides
from rlkit.algorithms.process_batch import ProcessBatch
from rlkit.algorithms.replayed import Replayed
from rlkit.algorithms.target_update import TargetUpdate
from rlkit.ops.losses import at_index
from rlkit.types import Key, Metrics, Params, PyTree
from rlkit.validation import settings


def qr_dqn(
    config: QRDQNConfig | None = None,
    *,
    loss: LossFn | None = None,
    optimizer: optax.GradientTransformation | None = None,
    process_batch: ProcessBatch | None = None,
    process_gradients: Callable[[PyTree], PyTree] | None = None,
) -> Algorithm:
    """QR-DQN as an `Algorithm`, for agents with `quantiles` (such as `quantile_network`).

    Everything else is as for `dqn`.
    """
    config = settings(config, QRDQNConfig)
    overrides = Overrides(
        loss=loss,
        optimizer=optimizer,
        process_batch=process_batch,
        process_gradients=process_gradients,
    )
    step = overrides.step(config, qr_dqn_loss(config))
    target = TargetUpdate(period=config.target_period)
    return off_policy(
        "qr_dqn",
        config,
        (step,),
        target,
        overrides,
        needs=QuantileAgent,
        agent="quantile_network",
    )


def qr_dqn_loss(config: QRDQNConfig) -> LossFn:
    """The quantile Huber loss of the action taken, averaged over the batch with its weights.

    The target is reward + discount · the target network's quantiles of the next action with the
    highest mean.
    """

    def loss(
        agent: QuantileAgent, params: Params, target_params: Params, batch: Replayed, key: Key
    ) -> tuple[Array, Metrics]:
        # [N, M]
        quantiles = at_index(agent.quantiles(params, batch.obs), agent.index(batch.action))
        next_quantiles = agent.quantiles(target_params, batch.next_obs)  # [N, M, A]
        choosing = agent.quantiles(params, batch.next_obs) if config.double else next_quantiles
        best = choosing.mean(axis=0).argmax(axis=1)
        target = jax.lax.stop_gradient(
            batch.reward + batch.discount * at_index(next_quantiles, best)
        )
        value, target_value = quantiles.mean(axis=0), target.mean(axis=0)
        metrics = {
            "q_value": value.mean(),
            "target": target_value.mean(),
            "td_error": target_value - value,
        }
        return (batch.weight * quantile_huber(quantiles, target)).mean(), metrics

    return loss


def quantile_huber(quantiles: Array, target: Array) -> Array:
    """The quantile Huber loss (the paper's eq. 10 with κ = 1), [M].

    Summed over quantiles [N, M], averaged over target samples [N', M].
    """
    n = quantiles.shape[0]
    midpoint = ((jnp.arange(n) + 0.5) / n)[:, None, None]
    error = target - quantiles[:, None]  # [N, N', M]
    slope = jnp.abs(midpoint - (error < 0))
    return (slope * optax.huber_loss(error)).mean(axis=1).sum(axis=0)
