"""Rollouts from a scripted environment: every number by hand."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlkit.algorithms.collectors import Collector, acting, count_episodes
from rlkit.ops.counters import StepCounter
from rlkit.types import LocalState, PolicyState, RunningEpisode, TimeStep

T, F = True, False
# Two environments, four steps. The first terminates at t=1, the second is cut at t=2.
REWARD = jnp.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0]])
TERMINATED = jnp.array([[F, F], [T, F], [F, F], [F, F]])
TRUNCATED = jnp.array([[F, F], [F, F], [F, T], [F, F]])


@dataclasses.dataclass(frozen=True)
class Scripted:
    """Plays the tables above; observations count steps, reset observations are -1; states remember
    the last action.
    """

    action_space: Any = dataclasses.field(default_factory=lambda: spaces.Box(-1.0, 1.0, ()))
    num_envs = 2

    def step(self, key, state, action):
        time = state["time"]
        done = TERMINATED[time] | TRUNCATED[time]
        next_obs = jnp.full(2, time + 1.0)
        timestep = TimeStep(
            obs=jnp.where(done, -1.0, next_obs),
            reward=REWARD[time],
            terminated=TERMINATED[time],
            truncated=TRUNCATED[time],
            next_obs=next_obs,
            info={},
        )
        return {"time": time + 1, "seen": jnp.clip(action, -1.0, 1.0)}, timestep


def local_state(carry, key):
    return LocalState(
        env_state={"time": jnp.int32(0), "seen": jnp.zeros(2)},
        obs=jnp.zeros(2),
        carry=carry,
        memory=(),
        episodes=RunningEpisode(
            return_so_far=jnp.array([100.0, 0.0]), length_so_far=jnp.array([7, 0])
        ),
        discounted_return=jnp.array([8.0, 0.0]),
        key=key,
    )


@pytest.fixture(scope="module")
def collected():
    key = jax.random.key(0)

    def explore(obs, carry, key):
        carry = {"count": carry["count"] + 1, "wide": carry["wide"] + 1}
        return obs + 5.0, carry, {"carry_before": carry["count"]}

    start = {"count": jnp.zeros(2), "wide": jnp.full((2, 3), 0.5)}
    collector = Collector(num_steps=4, reward_discount=0.5)
    return jax.jit(lambda: collector.collect(Scripted(), explore, start, local_state(start, key)))()


def test_rows_hold_what_was_acted_on_and_the_true_successor(collected):
    _, rollout, _ = collected
    np.testing.assert_array_equal(rollout.obs, [[0, 0], [1, 1], [-1, 2], [3, -1]])
    np.testing.assert_array_equal(rollout.next_obs, [[1, 1], [2, 2], [3, 3], [4, 4]])
    np.testing.assert_array_equal(rollout.reward, REWARD)
    np.testing.assert_array_equal(rollout.terminated, TERMINATED)
    np.testing.assert_array_equal(rollout.truncated, TRUNCATED)
    np.testing.assert_array_equal(rollout.done, TERMINATED | TRUNCATED)


def test_the_rollout_keeps_the_action_as_sampled(collected):
    """Actions lie far outside the Box: the environment sees them clipped, the rollout does not."""
    local, rollout, _ = collected
    np.testing.assert_array_equal(rollout.action, np.asarray(rollout.obs) + 5.0)
    np.testing.assert_array_equal(local.env_state["seen"], [1.0, 1.0])


def test_episode_statistics_by_hand(collected):
    """Ended: 100 + 1 + 2 after 7 + 2 steps, and 10 + 20 + 30 after 3; in flight: 3 + 4 (2 steps)
    and 40 (1 step).
    """
    local, _, episodes = collected
    assert (float(episodes.return_sum), float(episodes.length_sum), int(episodes.count)) == (
        163.0,
        12.0,
        2,
    )
    np.testing.assert_array_equal(local.episodes.return_so_far, [7.0, 40.0])
    np.testing.assert_array_equal(local.episodes.length_so_far, [2, 1])


def test_discounted_returns_restart_after_an_end_of_either_kind(collected):
    """R_t = ½ R_{t-1} + r_t; the row that ends an episode still holds its own return."""
    local, rollout, _ = collected
    wanted = [[0.5 * 8 + 1, 10], [0.5 * 5 + 2, 25], [3, 42.5], [5.5, 40]]
    np.testing.assert_array_equal(rollout.extras["discounted_return"], wanted)
    np.testing.assert_array_equal(local.discounted_return, [5.5, 40.0])


def test_the_carry_restarts_where_an_episode_ends(collected):
    local, rollout, _ = collected
    np.testing.assert_array_equal(rollout.extras["carry_before"], [[1, 1], [2, 2], [1, 3], [2, 1]])
    np.testing.assert_array_equal(local.carry["count"], [2, 1])
    np.testing.assert_array_equal(local.carry["wide"], [[2.5] * 3, [1.5] * 3])


def test_no_reward_statistics_unless_asked(key):
    collector = Collector(num_steps=2)
    local, rollout, _ = collector.collect(
        Scripted(), lambda obs, carry, key: (obs, carry, {}), (), local_state((), key)
    )
    assert rollout.extras == {}
    np.testing.assert_array_equal(local.discounted_return, [8.0, 0.0])


def test_two_short_rollouts_are_one_long(key):
    def explore(obs, carry, key):
        return obs, carry, {}

    def collect(num_steps, local):
        return Collector(num_steps=num_steps, reward_discount=0.5).collect(
            Scripted(), explore, (), local
        )

    local, one, first = collect(2, local_state((), key))
    local, two, second = collect(2, local)
    whole_local, whole, stats = collect(4, local_state((), key))
    jax.tree.map(
        lambda a, b, c: np.testing.assert_array_equal(np.concatenate([a, b]), c), one, two, whole
    )
    jax.tree.map(lambda a, b, c: np.testing.assert_array_equal(a + b, c), first, second, stats)
    jax.tree.map(np.testing.assert_array_equal, local.replace(key=0), whole_local.replace(key=0))


@pytest.mark.fast
def test_count_episodes_of_length_one():
    running = RunningEpisode(return_so_far=jnp.zeros(2), length_so_far=jnp.zeros(2, jnp.int32))
    for reward in (1.0, 2.0):
        running, finished = count_episodes(
            running, jnp.array([reward, reward]), jnp.array([True, False])
        )
        np.testing.assert_array_equal(finished.return_sum, [reward, 0.0])
        np.testing.assert_array_equal(finished.length_sum, [1.0, 0.0])
        np.testing.assert_array_equal(finished.count, [1, 0])
    np.testing.assert_array_equal(running.return_so_far, [0.0, 3.0])
    np.testing.assert_array_equal(running.length_so_far, [0, 2])


class Spy:
    def explore(self, params, obs, carry, key, progress):
        return (params, obs, progress), carry, {}


@pytest.mark.fast
def test_acting_normalises_and_tells_progress(key):
    from rlkit.ops.running_stats import fold, init_stats

    # Mean 2, deviation 2
    stats = fold(init_stats(jax.ShapeDtypeStruct((), jnp.float32)), jnp.array([0.0, 4.0]))
    policy = PolicyState(
        params="p",
        obs_stats=stats,
        env_steps=StepCounter.create(25),
        total_steps=jnp.float32(100.0),
    )
    (params, obs, progress), _, _ = acting(Spy(), policy)(jnp.array([4.0]), (), key)
    assert params == "p"
    np.testing.assert_allclose(obs, [1.0], rtol=1e-6)
    np.testing.assert_allclose(progress, 0.25)


@dataclasses.dataclass(frozen=True)
class ShowsItsKey(Scripted):
    """Observes the words of the key that its step was given."""

    def step(self, key, state, action):
        state, timestep = super().step(key, state, action)
        words = jax.random.key_data(key)
        return state, timestep.replace(obs=words, next_obs=words)


def test_policy_and_environments_never_share_a_key_nor_use_one_again(key):
    local = local_state((), key).replace(obs=jnp.zeros(2, jnp.uint32))
    collector, used = Collector(num_steps=2), []
    for _ in range(2):
        local, rollout, _ = collector.collect(
            ShowsItsKey(),
            lambda obs, carry, k: (jnp.zeros(2), carry, {"key": jax.random.key_data(k)}),
            (),
            local,
        )
        used += [*np.asarray(rollout.extras["key"]), *np.asarray(rollout.next_obs)]
    assert len(np.unique(used, axis=0)) == len(used) == 8
