"""Soft Actor-Critic for discrete actions.

Christodoulou 2019, "Soft Actor-Critic for Discrete Action Settings". Expectations over actions are
sums over all of them, so no loss samples.

Follows CleanRL's `sac_atari.py`, whose target entropy is a fraction of the maximum. Differs from it
in summing the actor's and the temperature's losses over actions, as the paper does, where CleanRL
averages; in half the squared error and orthogonal initial weights; in targets that move after every
update, as in `sac`; in losses that see the parameters from before the update; and in the form of
the temperature's loss, which is that of `sac`.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax import Array

from rlkit.action_masks import mask_in
from rlkit.agents.base import DiscreteSoftActorCriticAgent
from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.configs import DiscreteSACConfig
from rlkit.algorithms.gradient_step import LossFn
from rlkit.algorithms.off_policy import twin_loss
from rlkit.algorithms.overrides import Losses, Overrides
from rlkit.algorithms.process_batch import ProcessBatch
from rlkit.algorithms.replayed import Replayed
from rlkit.algorithms.sac import soft_off_policy, temperature, with_temperature_loss
from rlkit.ops import losses
from rlkit.types import Key, Metrics, Obs, Params, PyTree
from rlkit.validation import settings


def discrete_sac(
    config: DiscreteSACConfig | None = None,
    *,
    loss: Losses | None = None,
    optimizer: optax.GradientTransformation | None = None,
    process_batch: ProcessBatch | None = None,
    process_gradients: Callable[[PyTree], PyTree] | None = None,
) -> Algorithm:
    """Discrete SAC as an `Algorithm`, for agents like `discrete_soft_actor_critic`.

    Arguments are as for `sac`.
    """
    config = settings(config, DiscreteSACConfig)
    overrides = Overrides(
        loss=loss,
        optimizer=optimizer,
        process_batch=process_batch,
        process_gradients=process_gradients,
    )
    return soft_off_policy(
        "discrete_sac",
        config,
        critic_loss(config),
        actor_loss(config),
        overrides,
        needs=DiscreteSoftActorCriticAgent,
        agent="discrete_soft_actor_critic",
    )


def critic_loss(config: DiscreteSACConfig) -> LossFn:
    """Half the squared error of both critics against the soft value of the next state (eq. 10).

    Summed over the critics. Neither value nor entropy is bootstrapped after a termination. Over
    several steps (`n_step`), the entropies in between are left out.
    """

    def loss(
        agent: DiscreteSoftActorCriticAgent,
        params: Params,
        target_params: Params,
        batch: Replayed,
        key: Key,
    ) -> tuple[Array, Metrics]:
        log_probs = agent.log_probs(params["actor"], batch.next_obs)  # [M, A]
        next_q = agent.q_values(target_params["critic"], batch.next_obs).min(0)
        known = of_possible(log_probs, batch.next_obs)
        next_value = expected(log_probs, next_q - temperature(config, params) * known)
        target = batch.reward + batch.discount * next_value
        q_values = losses.at_index(  # [2, M]
            agent.q_values(params["critic"], batch.obs), agent.index(batch.action)
        )
        return twin_loss(q_values, target, batch.weight)

    return loss


def actor_loss(config: DiscreteSACConfig) -> LossFn:
    """The actor's loss (eq. 12), and the temperature's (eq. 11), see `with_temperature_loss`.

    The actor's is the expectation of temperature · log-prob - the smaller critic, over the policy's
    actions. In masked environments, the target entropy is a share of that over allowed actions.
    """

    def loss(
        agent: DiscreteSoftActorCriticAgent,
        params: Params,
        target_params: Params,
        batch: Replayed,
        key: Key,
    ) -> tuple[Array, Metrics]:
        log_probs = agent.log_probs(params["actor"], batch.obs)
        q_values = jax.lax.stop_gradient(agent.q_values(params["critic"], batch.obs).min(0))
        known = of_possible(log_probs, batch.obs)
        actor = expected(log_probs, temperature(config, params) * known - q_values).mean()
        entropy = -expected(log_probs, known).mean()
        most = math.log(log_probs.shape[-1])
        if mask_in(batch.obs) is not None:
            most = jnp.log(jnp.isfinite(log_probs).sum(axis=-1)).mean()
        wanted = config.target_entropy_ratio * most
        return with_temperature_loss(config, params, actor, entropy=entropy, wanted=wanted)

    return loss


def of_possible(log_probs: Array, obs: Obs) -> Array:
    """Log-probs [M, A], with 0 in place of the -inf that masks in observations make.

    The product of -inf with a probability of 0 is NaN.
    """
    if mask_in(obs) is None:
        return log_probs
    return jnp.where(jnp.isneginf(log_probs), 0.0, log_probs)


def expected(log_probs: Array, values: Array) -> Array:
    """The expectation of finite values [M, A] over the policy's actions, [M]."""
    return (jnp.exp(log_probs) * values).sum(axis=-1)
