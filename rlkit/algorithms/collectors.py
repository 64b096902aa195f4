"""From an environment and a policy to rollouts."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from rlkit.agents.base import Agent, carries_memory, memory_for_losses
from rlkit.algorithms.sequences import CARRY
from rlkit.envs.base import EnvAdapter
from rlkit.errors import require_counts, require_share
from rlkit.ops.rows import where_rows
from rlkit.ops.running_stats import normalize
from rlkit.spaces import Space, sample_allowed
from rlkit.types import (
    Action,
    Carry,
    EpisodeStats,
    Key,
    LocalState,
    Obs,
    PolicyState,
    PyTree,
    Rollout,
    RunningEpisode,
    Transition,
)
from rlkit.xla_gpu.rollouts import scan_rollout

Explore = Callable[[Obs, Carry, Key], tuple[Action, Carry, dict[str, PyTree]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collector:
    """Takes `num_steps` steps in every environment of a batch.

    `collect` is pure, for jittable environments. On the host, the Trainer steps the simulators in
    Python with the same `keys`, and `count` does the rest.

    `prefill_steps` environment steps of random actions (over all environments, rounded up to whole
    rollouts) come before learning. With `reward_discount` γ, rollouts carry
    `extras["discounted_return"]` [T, N], the running discounted sum of rewards.
    """

    num_steps: int
    prefill_steps: int = 0
    reward_discount: float | Array | None = None

    def __post_init__(self) -> None:
        require_counts(self, num_steps=1, prefill_steps=0)
        require_share(self, "reward_discount")

    def collect(
        self, env: EnvAdapter, explore: Explore, initial_carry: Carry, local: LocalState
    ) -> tuple[LocalState, Rollout, EpisodeStats]:
        """One rollout [T, N, ...], continuing from `local`."""
        key, keys = self.keys(local.key)

        def step(
            local: LocalState, keys: Array
        ) -> tuple[LocalState, tuple[Transition, EpisodeStats]]:
            action, carry, extras = explore(local.obs, local.carry, keys[0])
            env_state, timestep = env.step(keys[1], local.env_state, action)
            done = timestep.terminated | timestep.truncated
            counts, (finished, counted) = self._count(
                (local.episodes, local.discounted_return), timestep.reward, done
            )
            transition = Transition(
                obs=local.obs,
                action=action,
                reward=timestep.reward,
                terminated=timestep.terminated,
                truncated=timestep.truncated,
                next_obs=timestep.next_obs,
                extras={**extras, **counted},
                non_finite=timestep.non_finite,
            )
            local = local.replace(
                env_state=env_state,
                obs=timestep.obs,
                carry=restart_carry(carry, initial_carry, done),
                episodes=counts[0],
                discounted_return=counts[1],
            )
            return local, (transition, finished)

        local, (rollout, finished) = scan_rollout(
            step, local.replace(key=key), keys, self.num_steps
        )
        return local, rollout, jax.tree.map(lambda x: x.sum(), finished)

    def count(
        self, local: LocalState, rollout: Rollout
    ) -> tuple[LocalState, Rollout, EpisodeStats]:
        """What `collect` counts, in the same arithmetic, for a host rollout [T, N, ...]."""
        counts = (local.episodes, local.discounted_return)
        counts, (finished, counted) = scan_rollout(
            lambda c, x: self._count(c, *x),
            counts,
            (rollout.reward, rollout.done),
            self.num_steps,
        )
        local = local.replace(episodes=counts[0], discounted_return=counts[1])
        rollout = rollout.replace(extras={**rollout.extras, **counted})
        return local, rollout, jax.tree.map(lambda x: x.sum(), finished)

    def keys(self, key: Key) -> tuple[Key, Key]:
        """(next key, keys of a rollout [T, 2]).

        In each step, one key to act and one for the environments. `key` is consumed.
        """
        keys = jax.random.split(key, 1 + 2 * self.num_steps)
        return keys[0], keys[1:].reshape(self.num_steps, 2)

    def _count(
        self, counts: tuple[RunningEpisode, Array], reward: Array, done: Array
    ) -> tuple[tuple[RunningEpisode, Array], tuple[EpisodeStats, dict[str, Array]]]:
        """Counts one step [N].

        Returns ((episodes in flight, running discounted return), (finished episodes, extras)).
        """
        episodes, discounted_return = counts
        episodes, finished = count_episodes(episodes, reward, done)
        if self.reward_discount is None:
            return (episodes, discounted_return), (finished, {})
        discounted_return = self.reward_discount * discounted_return + reward
        extras = {"discounted_return": discounted_return}
        return (episodes, jnp.where(done, 0.0, discounted_return)), (finished, extras)


def count_episodes(
    running: RunningEpisode, reward: Array, done: Array
) -> tuple[RunningEpisode, EpisodeStats]:
    """Adds a step [N] to the episodes in flight.

    Those that are `done` are returned in the statistics, leaves [N], and restart.
    """
    returns, lengths = running.return_so_far + reward, running.length_so_far + 1
    finished = EpisodeStats(
        return_sum=jnp.where(done, returns, 0.0),
        length_sum=jnp.where(done, lengths, 0).astype(jnp.float32),
        count=done.astype(jnp.int32),
    )
    return RunningEpisode(
        return_so_far=jnp.where(done, 0.0, returns), length_so_far=jnp.where(done, 0, lengths)
    ), finished


def restart_carry(carry: Carry, initial_carry: Carry, done: Array) -> Carry:
    """The carry, begun anew where an episode is `done` [N]."""
    return where_rows(done, initial_carry, carry)


def acting(agent: Agent, policy: PolicyState) -> Explore:
    """How `agent` explores with the parameters and statistics of `policy`."""

    def explore(obs: Obs, carry: Carry, key: Key) -> tuple[Action, Carry, dict[str, PyTree]]:
        action, after, extras = agent.explore(
            policy.params, normalize(policy.obs_stats, obs), carry, key, policy.progress
        )
        if carries_memory(carry):
            extras = {**extras, CARRY: memory_for_losses(carry)}
        return action, after, extras

    return explore


def acting_randomly(agent: Agent, policy: PolicyState, action_space: Space) -> Explore:
    """Uniformly random actions [N, ...], of those that masks allow; extras of `agent` are zero.

    Its memory takes the observations in all the same.
    """

    def explore(obs: Obs, carry: Carry, key: Key) -> tuple[Action, Carry, dict[str, PyTree]]:
        act = acting(agent, policy)
        _, _, shapes = jax.eval_shape(act, obs, carry, key)
        extras = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        if carries_memory(carry):
            _, carry, found = act(obs, carry, jax.random.fold_in(key, 1))
            extras = {**extras, CARRY: found[CARRY]}
        return sample_allowed(action_space, key, obs), carry, extras

    return explore
