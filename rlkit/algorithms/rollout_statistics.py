"""Updates of a run's statistics from a rollout."""

import jax
import jax.numpy as jnp

from rlkit.ops.running_stats import fold
from rlkit.types import LearnerState, Rollout


def fold_returns(
    learner: LearnerState, rollout: Rollout, axis_name: str | None = None
) -> LearnerState:
    """Adds the rollout's discounted returns to the statistics that scale rewards, if any."""
    if learner.reward_stats is None:
        return learner
    returns = rollout.extras["discounted_return"]
    return learner.replace(reward_stats=fold(learner.reward_stats, returns, axis_name))


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
    return learner.replace(obs_stats=fold(learner.obs_stats, rollout.obs, axis_name))
