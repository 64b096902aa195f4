"""Updates of a run's statistics from a rollout; one that would make them NaN changes nothing."""

import jax
import jax.numpy as jnp

from rlkit.algorithms.finite import finite_or
from rlkit.errors import require
from rlkit.ops.running_stats import fold
from rlkit.types import LearnerState, Rollout


def fold_returns(
    learner: LearnerState, rollout: Rollout, axis_name: str | None = None
) -> LearnerState:
    """Adds the rollout's discounted returns to the statistics that scale rewards, if any.

    Raises `ConfigError` if the collector did not count them.
    """
    if learner.reward_stats is None:
        return learner
    require(
        "discounted_return" in rollout.extras,
        "normalize_rewards=True needs discounted returns, which the collector does not count",
        "give it reward_discount, such as Collector(num_steps=128, reward_discount=0.99)",
    )
    returns = rollout.extras["discounted_return"]
    stats = fold(learner.reward_stats, returns, axis_name)
    return learner.replace(reward_stats=finite_or(stats, learner.reward_stats))


def fold_observations(
    learner: LearnerState, rollout: Rollout, axis_name: str | None = None
) -> LearnerState:
    """Counts the rollout's environment steps and updates the observation statistics, if any."""
    num_steps = jnp.uint32(rollout.reward.size)
    if axis_name is not None:
        num_steps = jax.lax.psum(num_steps, axis_name)
    learner = learner.replace(env_steps=learner.env_steps.add(num_steps))
    if learner.obs_stats is None:
        return learner
    stats = fold(learner.obs_stats, rollout.obs, axis_name)
    return learner.replace(obs_stats=finite_or(stats, learner.obs_stats))
