"""Soft Actor-Critic for continuous actions.

Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications". Follows Stable-Baselines3's
SAC, with the temperature learned from the same samples as the actor. Differs from it in that all
losses see the parameters from before the update, as in brax (the authors' first code runs all steps
in one call, in no stated order; Stable-Baselines3's actor sees critics that were just updated); in
that actor and temperature are one gradient step, so `max_grad_norm` clips both together; and in the
initial weights (see `soft_actor_critic`).
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax import Array

from rlkit.agents.base import Agent, SoftActorCriticAgent
from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.configs import DiscreteSACConfig, SACConfig
from rlkit.algorithms.gradient_step import LossFn
from rlkit.algorithms.off_policy import check_bounds, off_policy, twin_loss
from rlkit.algorithms.overrides import Losses, Overrides
from rlkit.algorithms.process_batch import ProcessBatch
from rlkit.algorithms.replayed import Replayed
from rlkit.algorithms.target_update import TargetUpdate
from rlkit.envs.base import EnvAdapter
from rlkit.types import Key, Metrics, Params, PyTree
from rlkit.validation import settings


def sac(
    config: SACConfig | None = None,
    *,
    loss: Losses | None = None,
    optimizer: optax.GradientTransformation | None = None,
    process_batch: ProcessBatch | None = None,
    process_gradients: Callable[[PyTree], PyTree] | None = None,
) -> Algorithm:
    """SAC as an `Algorithm`, for agents like `soft_actor_critic`.

    `loss={"critic": f, "actor": g}` replaces both losses, or one of them, see `critic_loss` and
    `actor_loss`. Batches are `Replayed`; everything else is as for `ppo`. The critics have one
    optimiser state, actor and temperature another; `optimizer` and `process_gradients` apply to
    both.
    """
    config = settings(config, SACConfig)
    overrides = Overrides(
        loss=loss,
        optimizer=optimizer,
        process_batch=process_batch,
        process_gradients=process_gradients,
    )
    return soft_off_policy(
        "sac",
        config,
        critic_loss(config),
        actor_loss(config),
        overrides,
        needs=SoftActorCriticAgent,
        agent="soft_actor_critic",
        check=check_bounds,
    )


def soft_off_policy(
    name: str,
    config: SACConfig | DiscreteSACConfig,
    critic: LossFn,
    actor: LossFn,
    overrides: Overrides,
    *,
    needs: type,
    agent: str,
    check: Callable[[Agent, EnvAdapter], None] | None = None,
) -> Algorithm:
    """The `off_policy` algorithm for critics, actor and, if learned, temperature.

    Their losses are descended simultaneously. Targets of the critics follow by `tau`.
    """
    learned = ("log_temperature",) if config.temperature is None else ()
    steps = overrides.steps(
        config, critic=(critic, ("critic",), 1), actor=(actor, ("actor", *learned), 1)
    )
    target = TargetUpdate(groups=("critic",), tau=config.tau)
    return off_policy(
        name,
        config,
        steps,
        target,
        overrides,
        needs=needs,
        agent=agent,
        check=check,
        simultaneous=True,
    )


def critic_loss(config: SACConfig) -> LossFn:
    """Half the squared error of both critics against the soft value of the next state (eq. 5).

    Summed over the critics. The soft value includes the entropy, so neither is bootstrapped after a
    termination. Over several steps (`n_step`), the entropies in between are left out.
    """

    def loss(
        agent: SoftActorCriticAgent,
        params: Params,
        target_params: Params,
        batch: Replayed,
        key: Key,
    ) -> tuple[Array, Metrics]:
        next_action, log_prob = agent.policy(params["actor"], batch.next_obs).sample_and_log_prob(
            key
        )
        next_q = agent.q_values(target_params["critic"], batch.next_obs, next_action).min(0)
        target = batch.reward + batch.discount * (next_q - temperature(config, params) * log_prob)
        # [2, M]
        q_values = agent.q_values(params["critic"], batch.obs, agent.to_unit(batch.action))
        return twin_loss(q_values, target, batch.weight)

    return loss


def actor_loss(config: SACConfig) -> LossFn:
    """temperature · log-prob - the smaller critic, at the policy's actions (eq. 9 of the paper).

    Plus the temperature's loss, see `with_temperature_loss`.
    """

    def loss(
        agent: SoftActorCriticAgent,
        params: Params,
        target_params: Params,
        batch: Replayed,
        key: Key,
    ) -> tuple[Array, Metrics]:
        action, log_prob = agent.policy(params["actor"], batch.obs).sample_and_log_prob(key)
        q_value = agent.q_values(jax.lax.stop_gradient(params["critic"]), batch.obs, action).min(0)
        num_dimensions = math.prod(batch.action.shape[1:])
        wanted = -float(num_dimensions) if config.target_entropy is None else config.target_entropy
        actor = (temperature(config, params) * log_prob - q_value).mean()
        return with_temperature_loss(config, params, actor, entropy=-log_prob.mean(), wanted=wanted)

    return loss


def with_temperature_loss(
    config: SACConfig | DiscreteSACConfig,
    params: Params,
    actor: Array,
    *,
    entropy: Array,
    wanted: float | Array,
) -> tuple[Array, Metrics]:
    """The actor's loss plus, if it is learned, the temperature's, and metrics.

    The temperature's is log temperature · (entropy - wanted entropy), as in Stable-Baselines3. The
    paper (eq. 18) has the temperature itself in front, which scales the gradient by it; the sign is
    the same. Neither loss moves the other's parameters.
    """
    metrics = {"actor_loss": actor, "entropy": entropy, "temperature": temperature(config, params)}
    if config.temperature is not None:
        return actor, metrics
    of_temperature = params["log_temperature"] * jax.lax.stop_gradient(entropy - wanted)
    return actor + of_temperature, metrics | {"temperature_loss": of_temperature}


def temperature(config: SACConfig | DiscreteSACConfig, params: Params) -> Array:
    """The weight of the entropy, [] float32; no gradient flows through it."""
    if config.temperature is not None:
        return jnp.asarray(config.temperature, jnp.float32)
    return jax.lax.stop_gradient(jnp.exp(params["log_temperature"]))
