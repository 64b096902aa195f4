"""Exactly E episodes, the same ones every time, and nothing of the training touched."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from tiers import by_default

from rlkit.envs.jittable.vectorized import vectorize
from rlkit.errors import ConfigError
from rlkit.ops.counters import StepCounter
from rlkit.ops.running_stats import fold, init_stats
from rlkit.training.core.evaluator import make_evaluator
from rlkit.training.core.module import RLModule
from rlkit.types import PolicyState

BOX = spaces.Box(-np.inf, np.inf, (1,), np.float32)
calls: list[int] = []


@dataclasses.dataclass(frozen=True)
class RandomLength:
    """Lasts 1 to `longest` steps, as the reset key says; pays its number of steps so far, reports
    them and the length.
    """

    longest: int = 9
    max_episode_steps: int | None = 1_000_000
    counted: bool = False
    observation_space = BOX
    action_space = spaces.Discrete(2)

    def reset(self, key):
        length = jax.random.randint(key, (), 1, self.longest + 1)
        return (jnp.int32(0), length), jnp.float32(length)[None]

    def step(self, key, state, action):
        time, length = state[0] + 1, state[1]
        if self.counted:
            jax.debug.callback(lambda _: calls.append(1), time)
        info = {"time": time, "twice": jnp.float32([2, 4]) * time}
        return (
            (time, length),
            jnp.float32(length)[None],
            time.astype(jnp.float32),
            time >= length,
            jnp.bool_(False),
            info,
        )


@dataclasses.dataclass(frozen=True)
class Recorder:
    """An agent without parameters; the deterministic one plays 1, the exploring one 0."""

    def initial_carry(self, num_envs):
        return ()

    def exploit(self, params, obs, carry, key):
        return jnp.ones(obs.shape[0], jnp.int32), carry

    def explore(self, params, obs, carry, key, progress):
        return jnp.zeros(obs.shape[0], jnp.int32), carry, {}


POLICY = PolicyState(
    params=(), obs_stats=None, env_steps=StepCounter.create(), total_steps=jnp.float32(1.0)
)


def first_lengths(num_envs, num_episodes, seed):
    """The lengths of the episodes that the reset keys stand for, in rounds."""
    env, lengths = vectorize(RandomLength(), num_envs), []
    for key in jax.random.split(jax.random.key(seed), -(-num_episodes // num_envs)):
        lengths += env.reset(jax.random.split(key)[0])[1][:, 0].tolist()
    return lengths[:num_episodes]


@pytest.mark.parametrize("episodes", by_default([6], [1, 3, 4, 6, 8]), ids=lambda n: f"{n}-of-4")
def test_exactly_the_first_episodes_by_index(episodes):
    evaluator = make_evaluator(vectorize(RandomLength(), 4), Recorder(), num_episodes=episodes)
    found = jax.jit(evaluator)(POLICY)
    lengths = np.array(first_lengths(4, episodes, evaluator.seed))
    for name in ("length", "sampled_length"):
        # Short episodes are not over-counted: each environment plays one.
        np.testing.assert_array_equal(found[name], lengths)
    np.testing.assert_array_equal(found["return"], lengths * (lengths + 1) / 2)
    np.testing.assert_array_equal(found["done_info"]["time"], lengths)
    np.testing.assert_array_equal(
        found["done_info"]["twice"], np.stack([2 * lengths, 4 * lengths], axis=1)
    )


def test_ends_when_the_last_episode_has():
    calls.clear()
    evaluator = make_evaluator(vectorize(RandomLength(counted=True), 4), Recorder(), num_episodes=8)
    found = jax.block_until_ready(jax.jit(evaluator)(POLICY))
    jax.effects_barrier()
    rounds = np.array(found["length"]).reshape(2, 4)
    # Deterministic and sampled, 4 environments, to the longest of each round.
    assert len(calls) == 2 * 4 * rounds.max(1).sum()


def test_a_step_limit_cuts_episodes():
    found = jax.jit(
        make_evaluator(
            vectorize(RandomLength(longest=50), 2), Recorder(), num_episodes=6, max_steps=3
        )
    )(POLICY)
    assert found["length"].max() == 3 and found["return"].max() == 6


def test_other_seeds_are_other_episodes():
    env = vectorize(RandomLength(longest=1000), 4)
    first, second = (
        jax.jit(make_evaluator(env, Recorder(), num_episodes=4, seed=seed))(POLICY)["length"]
        for seed in (1, 2)
    )
    assert (first != second).any()


@dataclasses.dataclass(frozen=True)
class Echo:
    """One step, pays the action."""

    max_episode_steps = 1
    observation_space = BOX
    action_space = spaces.Box(-100, 100, (), np.float32)

    def reset(self, key):
        obs = jax.random.uniform(key, (1,), minval=0.0, maxval=10.0)
        return obs, obs

    def step(self, key, state, action):
        return state, state, action, jnp.bool_(True), jnp.bool_(False), {}


class Mirror(Recorder):
    def exploit(self, params, obs, carry, key):
        return obs[:, 0], carry

    def explore(self, params, obs, carry, key, progress):
        return -obs[:, 0], carry, {}


def test_observations_are_normalised_by_the_frozen_statistics():
    env = vectorize(Echo(), 4)
    # Mean 6, deviation 2
    policy = POLICY.replace(obs_stats=fold(init_stats(jnp.zeros(1)), jnp.array([[4.0], [8.0]])))
    raw = jax.jit(make_evaluator(env, Mirror(), num_episodes=4))(POLICY)
    found = jax.jit(make_evaluator(env, Mirror(), num_episodes=4))(policy)
    np.testing.assert_allclose(found["return"], (raw["return"] - 6.0) / 2.0, rtol=1e-5)
    # Deterministic and sampled stand apart.
    np.testing.assert_allclose(found["sampled_return"], -found["return"], rtol=1e-6)


def test_every_training_seed_faces_the_same_episodes(tiny):
    env = vectorize(RandomLength(longest=1000), 2)
    module = tiny.module(env=env, eval_env=env)
    states = jax.jit(jax.vmap(module.init_train_state))(jax.random.split(jax.random.key(0), 3))
    found = jax.jit(jax.vmap(module.eval_callback))(states)
    assert found["length"].shape == (3, 3)
    np.testing.assert_array_equal(found["length"], np.tile(found["length"][:1], (3, 1)))
    assert len(set(found["length"][0].tolist())) > 1


@pytest.mark.fast
def test_no_limit_is_an_error(tiny):
    env = vectorize(RandomLength(max_episode_steps=None), 2)
    with pytest.raises(
        ConfigError,
        match=r"no time limit.*set max_evaluation_steps .*or add a limit: TimeLimit",
    ):
        RLModule(
            env=env,
            agent=tiny.agent(env),
            algorithm=tiny.algorithm(),
            total_steps=1.0,
            eval_env=env,
        )
    assert make_evaluator(env, Recorder(), num_episodes=1, max_steps=5).max_steps == 5


@pytest.mark.fast
@pytest.mark.parametrize("episodes", [0, -1, 2.0])
def test_a_number_of_episodes_is_positive(episodes):
    with pytest.raises(ConfigError, match="evaluation episodes must be a positive integer"):
        make_evaluator(vectorize(Echo(), 2), Mirror(), num_episodes=episodes)


@dataclasses.dataclass(frozen=True)
class CountedResets(RandomLength):
    """Counts its resets."""

    def reset(self, key):
        state, obs = super().reset(key)
        jax.debug.callback(lambda _: calls.append(1), state[1])
        return state, obs


def test_no_episode_after_the_first_is_begun():
    """A reset may take as long to compile as all else."""
    env = vectorize(CountedResets(), 4)
    evaluator = make_evaluator(env, Recorder(), num_episodes=8)
    calls.clear()
    found = jax.jit(evaluator)(POLICY)
    jax.effects_barrier()
    assert found["length"].max() > found["length"].min()
    assert len(calls) == 2 * 2 * 4  # both ways to act, two rounds of four environments
