"""Advantage Actor-Critic (Mnih et al. 2016, synchronous).

PPO's parts, with one epoch of one batch and the plain policy gradient. Follows Stable-Baselines3's
A2C: the value loss is the full mean squared error, where `ppo` takes half of it. Bootstraps from
the final observation at time limits.
"""

from collections.abc import Callable

import jax.numpy as jnp
import optax
from jax import Array

from rlkit.agents.base import ActorCriticAgent
from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.configs import A2CConfig
from rlkit.algorithms.gradient_step import LossFn
from rlkit.algorithms.on_policy import policy_gradient
from rlkit.algorithms.on_policy_batches import Minibatches, OnPolicyBatch
from rlkit.algorithms.overrides import Overrides
from rlkit.algorithms.process_batch import ProcessBatch
from rlkit.types import Key, Metrics, Params, PyTree
from rlkit.validation import settings


def a2c(
    config: A2CConfig | None = None,
    *,
    loss: LossFn | None = None,
    optimizer: optax.GradientTransformation | None = None,
    process_batch: ProcessBatch | None = None,
    process_gradients: Callable[[PyTree], PyTree] | None = None,
) -> Algorithm:
    """A2C as an `Algorithm`; arguments as for `ppo`."""
    config = settings(config, A2CConfig)
    overrides = Overrides(
        loss=loss,
        optimizer=optimizer,
        process_batch=process_batch,
        process_gradients=process_gradients,
    )
    minibatches = Minibatches(sequence_length=config.sequence_length)
    return policy_gradient("a2c", config, a2c_loss(config), overrides, minibatches)


def a2c_loss(config: A2CConfig) -> LossFn:
    """The sum of policy, value and entropy losses, averaged over the batch.

    -advantage · log-prob + value_coef · (value - target)² - entropy_coef · entropy.
    """

    def loss(
        agent: ActorCriticAgent,
        params: Params,
        target_params: Params,
        batch: OnPolicyBatch,
        key: Key,
    ) -> tuple[Array, Metrics]:
        policy, value = agent.policy_and_value(params, batch.obs)
        policy_loss = -(batch.advantage * policy.log_prob(batch.action)).mean()
        value_loss = jnp.square(value - batch.target).mean()
        entropy = policy.entropy().mean()
        metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        return policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy, metrics

    return loss
