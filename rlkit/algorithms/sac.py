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
from rlkit.algorithms.configs import DiscreteSACConfig, SACConfig
from rlkit.algorithms.off_policy import off_policy, optimizer_of
from rlkit.algorithms.on_policy import Overrides
from rlkit.algorithms.replay_buffer import Replayed
from rlkit.algorithms.updaters import GradientStep, LossFn, TargetUpdate
from rlkit.envs.base import EnvAdapter
from rlkit.errors import SpaceError, require
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
    by_group = {"critic": critic_loss(config), "actor": actor_loss(config), "log_temperature": temperature_loss(config)}
    needs = ("policy", "q_values", "to_unit")
    return soft_off_policy("sac", config, by_group, overrides, needs=needs, agent="soft_actor_critic", check=check_bounds)


def soft_off_policy(
    name: str,
    config: SACConfig | DiscreteSACConfig,
    by_group: dict[str, LossFn],
    overrides: Overrides,
    *,
    needs: tuple[str, ...],
    agent: str,
    check: Callable[[Any, EnvAdapter], None] | None = None,
) -> Algorithm:
    """The `off_policy` algorithm that descends a loss in each group of the parameters, in this order.

    The group `log_temperature` is left out where the config fixes the temperature; targets of the critics follow by `tau`.
    """
    optimizer = overrides.optimizer or optimizer_of(config)
    steps = tuple(
        GradientStep(loss=loss, optimizer=optimizer, group=group, process_gradients=overrides.process_gradients)
        for group, loss in by_group.items()
        if group != "log_temperature" or config.temperature is None
    )
    target = TargetUpdate(groups=("critic",), tau=config.tau)
    return off_policy(name, config, steps, target, overrides, needs=needs, agent=agent, check=check)


def critic_loss(config: SACConfig) -> LossFn:
    """Half the squared error of both critics against the soft value of what follows (eq. 5), summed over the critics.

    That value has the entropy in it, so neither is bootstrapped behind a termination. Over several steps (`n_step`), the
    entropies on the way are left out.
    """

    def loss(agent: Any, params: Params, target_params: Params, batch: Replayed, key: Key) -> tuple[Array, Metrics]:
        next_action, log_prob = agent.policy(params["actor"], batch.next_obs).sample_and_log_prob(key)
        next_q = agent.q_values(target_params["critic"], batch.next_obs, next_action).min(0)
        target = batch.reward + batch.discount * (next_q - temperature(config, params) * log_prob)
        q_values = agent.q_values(params["critic"], batch.obs, agent.to_unit(batch.action))  # [2, M]
        errors = losses.squared_error(q_values, jax.lax.stop_gradient(target))
        return errors.sum(0).mean(), {"q_value": q_values.mean(), "target": target.mean()}

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


def temperature(config: SACConfig | DiscreteSACConfig, params: Params) -> Array:
    """The weight of the entropy, [] float32; a constant to whoever differentiates."""
    if config.temperature is not None:
        return jnp.asarray(config.temperature, jnp.float32)
    return jax.lax.stop_gradient(jnp.exp(params["log_temperature"]))


def check_bounds(agent: Any, env: EnvAdapter) -> None:
    """Raises `SpaceError` where the agent was built for other bounds of actions than those of `env`."""
    known = getattr(agent, "action_space", env.action_space)
    require(
        known == env.action_space,
        f"the agent acts in {known}, the environments in {env.action_space}",
        "build the agent with the action space of this environment",
        SpaceError,
    )
