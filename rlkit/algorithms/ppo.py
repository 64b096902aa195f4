"""Proximal Policy Optimisation (Schulman et al. 2017), for discrete and continuous actions.

Follows CleanRL's `ppo.py` and `ppo_continuous_action.py`, with the details listed in "The 37
implementation details of PPO" (Huang et al. 2022). Differs from them at time limits: a truncated
episode bootstraps from its true final observation.
"""

from collections.abc import Callable

import optax
from jax import Array

from rlkit.agents.base import ActorCriticAgent
from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.configs import PPOConfig
from rlkit.algorithms.gradient_step import LossFn
from rlkit.algorithms.on_policy import policy_gradient
from rlkit.algorithms.on_policy_batches import Minibatches, OnPolicyBatch
from rlkit.algorithms.overrides import Overrides
from rlkit.algorithms.process_batch import ProcessBatch
from rlkit.ops import losses
from rlkit.types import Key, Metrics, Params, PyTree
from rlkit.validation import settings


def ppo(
    config: PPOConfig | None = None,
    *,
    loss: LossFn | None = None,
    optimizer: optax.GradientTransformation | None = None,
    process_batch: ProcessBatch | None = None,
    process_gradients: Callable[[PyTree], PyTree] | None = None,
) -> Algorithm:
    """PPO as an `Algorithm`, for agents with `policy_and_value` (such as `actor_critic`).

    `loss` replaces `ppo_loss(config)`. `optimizer` replaces the configured one, together with its
    learning rate and clipping. `process_batch(batch) -> batch` runs on every `OnPolicyBatch` before
    the loss, `process_gradients(gradients) -> gradients` before the optimiser. Raises `ConfigError`
    for settings out of range.
    """
    config = settings(config, PPOConfig)
    overrides = Overrides(
        loss=loss,
        optimizer=optimizer,
        process_batch=process_batch,
        process_gradients=process_gradients,
    )
    minibatches = Minibatches(
        num_epochs=config.num_epochs,
        num_minibatches=config.num_minibatches,
        sequence_length=config.sequence_length,
    )
    return policy_gradient("ppo", config, ppo_loss(config), overrides, minibatches)


def ppo_loss(config: PPOConfig) -> LossFn:
    """Clipped surrogate + value loss - entropy bonus (eq. 9), averaged over the batch."""

    def loss(
        agent: ActorCriticAgent,
        params: Params,
        target_params: Params,
        batch: OnPolicyBatch,
        key: Key,
    ) -> tuple[Array, Metrics]:
        policy, value = agent.policy_and_value(params, batch.obs)
        log_ratio = policy.log_prob(batch.action) - batch.log_prob
        surrogate = losses.clipped_surrogate(log_ratio, batch.advantage, config.clip_epsilon)
        policy_loss = surrogate.mean()
        value_loss = value_error(value, batch).mean()
        entropy = policy.entropy().mean()
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": losses.approximate_kl(log_ratio).mean(),
            "clip_fraction": losses.outside_clip(log_ratio, config.clip_epsilon).mean(),
        }
        return policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy, metrics

    def value_error(value: Array, batch: OnPolicyBatch) -> Array:
        if not config.clip_value_loss:
            return losses.squared_error(value, batch.target)
        return losses.clipped_squared_error(value, batch.value, batch.target, config.clip_epsilon)

    return loss
