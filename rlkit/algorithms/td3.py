"""Twin Delayed Deep Deterministic policy gradient, for continuous actions.

Fujimoto et al. 2018, "Addressing Function Approximation Error in Actor-Critic Methods". Follows
Stable-Baselines3's TD3 and the paper's code: both critics learn in every update; the actor, and
after it the targets of all networks, in every `policy_delay`-th. Differs from both in half the
squared error and in the initial weights (see `deterministic_actor_critic`). Noise applies to
actions in [-1, 1], as in Stable-Baselines3; the paper's code scales it by the environment's bound.
Exploration belongs to the agent.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax import Array

from rlkit.agents.base import DeterministicActorCriticAgent
from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.configs import TD3Config
from rlkit.algorithms.gradient_step import LossFn
from rlkit.algorithms.off_policy import check_bounds, off_policy, twin_loss
from rlkit.algorithms.overrides import Losses, Overrides
from rlkit.algorithms.process_batch import ProcessBatch
from rlkit.algorithms.replayed import Replayed
from rlkit.algorithms.target_update import TargetUpdate
from rlkit.types import Action, Key, Metrics, Params, PyTree
from rlkit.validation import settings


def td3(
    config: TD3Config | None = None,
    *,
    loss: Losses | None = None,
    optimizer: optax.GradientTransformation | None = None,
    process_batch: ProcessBatch | None = None,
    process_gradients: Callable[[PyTree], PyTree] | None = None,
) -> Algorithm:
    """TD3 as an `Algorithm`, for agents like `deterministic_actor_critic`.

    `loss={"critic": f, "actor": g}` replaces both losses, or one of them, see `critic_loss` and
    `actor_loss`. Batches are `Replayed`; everything else is as for `ppo`. Critics and actor have an
    optimiser state each; `optimizer` and `process_gradients` apply to both.
    """
    config = settings(config, TD3Config)
    overrides = Overrides(
        loss=loss,
        optimizer=optimizer,
        process_batch=process_batch,
        process_gradients=process_gradients,
    )
    steps = overrides.steps(
        config,
        critic=(critic_loss(config), "critic", 1),
        actor=(actor_loss, "actor", config.policy_delay),
    )
    return off_policy(
        "td3",
        config,
        steps,
        TargetUpdate(groups=("actor", "critic"), tau=config.tau, every=config.policy_delay),
        overrides,
        needs=DeterministicActorCriticAgent,
        agent="deterministic_actor_critic",
        check=check_bounds,
        learns_through_carry=False,
    )


def critic_loss(config: TD3Config) -> LossFn:
    """Half the squared error of both critics against the smaller target value of the next state.

    Summed over the critics. The target's action is smoothed (Algorithm 1 and eq. 14 of the paper).
    """

    def loss(
        agent: DeterministicActorCriticAgent,
        params: Params,
        target_params: Params,
        batch: Replayed,
        key: Key,
    ) -> tuple[Array, Metrics]:
        next_action = smoothed(agent.act(target_params["actor"], batch.next_obs), config, key)
        next_q = agent.q_values(target_params["critic"], batch.next_obs, next_action).min(0)
        target = batch.reward + batch.discount * next_q
        # [2, M]
        q_values = agent.q_values(params["critic"], batch.obs, agent.to_unit(batch.action))
        return twin_loss(q_values, target, batch.weight)

    return loss


def smoothed(unit_action: Action, config: TD3Config, key: Key) -> Action:
    """Unit actions plus noise clipped to ± `target_noise_clip`, then clipped to [-1, 1]."""
    noise = config.target_noise * jax.random.normal(key, unit_action.shape, unit_action.dtype)
    noise = jnp.clip(noise, -config.target_noise_clip, config.target_noise_clip)
    return jnp.clip(unit_action + noise, -1.0, 1.0)


def actor_loss(
    agent: DeterministicActorCriticAgent,
    params: Params,
    target_params: Params,
    batch: Replayed,
    key: Key,
) -> Array:
    """Minus the first critic at the actor's own actions.

    The deterministic policy gradient (line 11 of Algorithm 1).
    """
    q_values = agent.q_values(
        jax.lax.stop_gradient(params["critic"]), batch.obs, agent.act(params["actor"], batch.obs)
    )
    return -q_values[0].mean()
