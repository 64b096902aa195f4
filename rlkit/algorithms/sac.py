"""Soft Actor-Critic (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications") for continuous actions.

Follows Stable-Baselines3's SAC, with the temperature learned; the three gradient steps come in CleanRL's order: critics, actor,
temperature, each by what the one before it left.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.batch_builders import ProcessBatch
from rlkit.algorithms.configs import SACConfig
from rlkit.algorithms.off_policy import check_bounds, off_policy, optimizer_of
from rlkit.algorithms.on_policy import Overrides
from rlkit.algorithms.replay_buffer import Replayed
from rlkit.algorithms.updaters import GradientStep, LossFn, TargetUpdate
from rlkit.ops import losses
from rlkit.types import Key, Metrics, Params, PyTree
from rlkit.validation import validate


def sac(
    config: SACConfig | None = None,
    *,
    optimizer: optax.GradientTransformation | None = None,
    process_batch: ProcessBatch | None = None,
    process_gradients: Callable[[PyTree], PyTree] | None = None,
) -> Algorithm:
    """SAC as an `Algorithm`, for agents like `soft_actor_critic`; batches are `Replayed`, else as for `ppo`.

    Critics, actor and temperature have an optimiser state each; `optimizer` and `process_gradients` serve all of them.
    """
    config = validate(config or SACConfig())
    overrides = Overrides(optimizer=optimizer, process_batch=process_batch, process_gradients=process_gradients)
    by_group = {"critic": critic_loss(config), "actor": actor_loss(config)}
    if config.temperature is None:
        by_group["log_temperature"] = temperature_loss(config)
    optimizer = optimizer or optimizer_of(config)
    steps = tuple(
        GradientStep(loss=loss, optimizer=optimizer, group=group, process_gradients=process_gradients)
        for group, loss in by_group.items()
    )
    return off_policy(
        "sac",
        config,
        steps,
        TargetUpdate(groups=("critic",), tau=config.tau),
        overrides,
        needs=("policy", "q_values", "to_unit"),
        agent="soft_actor_critic",
        check=check_bounds,
    )


def critic_loss(config: SACConfig) -> LossFn:
    """Half the squared error of both critics against the soft value of what follows (eq. 5), summed over the critics.

    That value has the entropy in it, so neither is bootstrapped behind a termination. Over several steps (`n_step`), the
    entropies on the way are left out. Prioritised replay goes by the mean of both critics' absolute errors.
    """

    def loss(agent: Any, params: Params, target_params: Params, batch: Replayed, key: Key) -> tuple[Array, Metrics]:
        next_action, log_prob = agent.policy(params["actor"], batch.next_obs).sample_and_log_prob(key)
        next_q = agent.q_values(target_params["critic"], batch.next_obs, next_action).min(0)
        target = batch.reward + batch.discount * (next_q - temperature(config, params) * log_prob)
        q_values = agent.q_values(params["critic"], batch.obs, agent.to_unit(batch.action))  # [2, M]
        target = jax.lax.stop_gradient(target)
        errors = losses.squared_error(q_values, target).sum(0)
        metrics = {"q_value": q_values.mean(), "target": target.mean(), "td_error": jnp.abs(q_values - target).mean(0)}
        return (batch.weight * errors).mean(), metrics

    return loss


def actor_loss(config: SACConfig) -> LossFn:
    """temperature · log-prob - the lesser critic, at actions of the policy (eq. 9 of the paper)."""

    def loss(agent: Any, params: Params, target_params: Params, batch: Replayed, key: Key) -> tuple[Array, Metrics]:
        action, log_prob = agent.policy(params["actor"], batch.obs).sample_and_log_prob(key)
        q_value = agent.q_values(jax.lax.stop_gradient(params["critic"]), batch.obs, action).min(0)
        alpha = temperature(config, params)
        return (alpha * log_prob - q_value).mean(), {"entropy": -log_prob.mean(), "temperature": alpha}

    return loss


def temperature_loss(config: SACConfig) -> LossFn:
    """-log temperature · (log-prob + target entropy), as in Stable-Baselines3.

    The paper (eq. 18) has the temperature itself in front, which scales the gradient by it; the sign is the same.
    """

    def loss(agent: Any, params: Params, target_params: Params, batch: Replayed, key: Key) -> Array:
        _, log_prob = agent.policy(params["actor"], batch.obs).sample_and_log_prob(key)
        num_dimensions = math.prod(batch.action.shape[1:])
        wanted = -float(num_dimensions) if config.target_entropy is None else config.target_entropy
        return -params["log_temperature"] * jax.lax.stop_gradient(log_prob + wanted).mean()

    return loss


def temperature(config: SACConfig, params: Params) -> Array:
    """The weight of the entropy, [] float32; a constant to whoever differentiates."""
    if config.temperature is not None:
        return jnp.asarray(config.temperature, jnp.float32)
    return jax.lax.stop_gradient(jnp.exp(params["log_temperature"]))
