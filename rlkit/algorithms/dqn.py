"""Deep Q-Network (Mnih et al. 2015), optionally double (van Hasselt et al. 2016) and n-step.

Follows CleanRL's `dqn.py`, time limits included. Differs from it in double Q-learning by default,
in counting the target's period in environment steps over any number of environments, and in a
prefill of random actions (ε-greedy ones there). First weights are those of `dqn_jax.py`. Dueling
networks (Wang et al. 2016) and exploration belong to the agent, see `QNetworkConfig`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax import Array

from rlkit.agents.base import QAgent
from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.configs import DQNConfig
from rlkit.algorithms.gradient_step import LossFn
from rlkit.algorithms.off_policy import check_values, off_policy
from rlkit.algorithms.overrides import Overrides
from rlkit.algorithms.process_batch import ProcessBatch
from rlkit.algorithms.replayed import Replayed
from rlkit.algorithms.target_update import TargetUpdate
from rlkit.ops.losses import at_index
from rlkit.types import Key, Metrics, Params, PyTree
from rlkit.validation import settings


def dqn(
    config: DQNConfig | None = None,
    *,
    loss: LossFn | None = None,
    optimizer: optax.GradientTransformation | None = None,
    process_batch: ProcessBatch | None = None,
    process_gradients: Callable[[PyTree], PyTree] | None = None,
) -> Algorithm:
    """DQN as an `Algorithm`, for agents with `q_values` (such as `q_network`).

    Batches are `Replayed`; everything else is as for `ppo`.
    """
    config = settings(config, DQNConfig)
    overrides = Overrides(
        loss=loss,
        optimizer=optimizer,
        process_batch=process_batch,
        process_gradients=process_gradients,
    )
    step = overrides.step(config, dqn_loss(config))
    target = TargetUpdate(period=config.target_period)
    return off_policy(
        "dqn",
        config,
        (step,),
        target,
        overrides,
        needs=QAgent,
        agent="q_network",
        check=check_values,
    )


def dqn_loss(config: DQNConfig) -> LossFn:
    """The error of Q(s, a) against reward + discount · max Q_target(s', ·).

    Averaged over the batch with its weights.
    """

    def loss(
        agent: QAgent, params: Params, target_params: Params, batch: Replayed, key: Key
    ) -> tuple[Array, Metrics]:
        q_values = agent.q_values(params, batch.obs)  # [M, A]
        value = at_index(q_values, agent.index(batch.action))
        next_values = agent.q_values(target_params, batch.next_obs)
        best = (agent.q_values(params, batch.next_obs) if config.double else next_values).argmax(
            axis=1
        )
        target = batch.reward + batch.discount * at_index(next_values, best)
        target = jax.lax.stop_gradient(target)
        metrics = {"q_value": value.mean(), "target": target.mean(), "td_error": target - value}
        return (batch.weight * errors(value, target)).mean(), metrics

    def errors(value: Array, target: Array) -> Array:
        return (
            optax.huber_loss(value, target)
            if config.loss == "huber"
            else jnp.square(value - target)
        )

    return loss
