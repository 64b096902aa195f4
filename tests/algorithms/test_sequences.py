"""Learning through memory: what a rollout is cut into, and what gradients and targets must be."""

import dataclasses
import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algorithm_rows import VARIANTS, algorithm_of
from gymnasium import spaces
from tiers import by_default, in_full

import rlkit
from rlkit.agents.base import memory_of
from rlkit.agents.memory import WithMemory, one_step
from rlkit.algorithms.collectors import acting_randomly, restart_carry
from rlkit.algorithms.configs import A2CConfig, PPOConfig, PQNConfig, check_rollout
from rlkit.algorithms.on_policy_batches import Minibatches, OnPolicyBatch, next_values
from rlkit.algorithms.sequences import as_inputs, in_sequences
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.envs.probes.value_probes import Recall
from rlkit.errors import ConfigError
from rlkit.ops.rows import flatten
from rlkit.training.core.module import RLModule, fit
from rlkit.types import NoiseState, Rollout, Sequences

T, N = 6, 2
OBS = spaces.Box(-1, 1, (3,))


def agent_with(kind, **settings):
    config = rlkit.ActorCriticConfig(hidden_sizes=(4, 5), memory=kind, memory_size=3, **settings)
    return rlkit.actor_critic(OBS, spaces.Discrete(2), config)


def played(agent, params, key, ends):
    """A rollout [T, N] of random observations that `agent` acts on, with memory from before it.

    `ends`: (step, environment) at which an episode ends.
    """
    obs = jax.random.normal(key, (T + 1, N, 3))
    done = np.zeros((T, N), bool)
    for at in ends:
        done[at] = True
    initial = agent.initial_carry(N)
    carry = jax.tree.map(lambda x: x + 0.4, initial)
    carries = []
    for t in range(T):
        carries.append(memory_of(carry))
        _, carry = agent.exploit(params, obs[t], carry, key)
        carry = restart_carry(carry, initial, jnp.asarray(done[t]))
    zeros = jnp.zeros((T, N))
    return Rollout(
        obs=obs[:T],
        action=zeros.astype(jnp.int32),
        reward=zeros,
        terminated=done,  # of NumPy, so that the loop below may ask under `jit`
        truncated=np.zeros((T, N), bool),
        next_obs=obs[1:],
        extras={"carry": jax.tree.map(lambda *x: jnp.stack(x), *carries)},
    )


def unrolled(agent, params, rollout, cut_at=()):
    """Values [T, N] by a Python loop: each episode of each environment by itself, from the memory
    that it begins with. Gradients stop at the steps `cut_at`.
    """
    columns = []
    for n in range(N):
        carry = jax.tree.map(lambda x, n=n: x[0, n : n + 1], rollout.extras["carry"])
        row = []
        for t in range(T):
            if t > 0 and rollout.done[t - 1, n]:
                carry = memory_of(agent.initial_carry(1))
            if t in cut_at:
                carry = jax.lax.stop_gradient(carry)
            step = one_step(rollout.obs[t, n : n + 1], carry.memory)
            memory, (_, value) = agent.network.apply(params["network"], step)
            carry = carry.replace(memory=memory)
            row.append(value[0])
        columns.append(jnp.stack(row))
    return jnp.stack(columns, axis=1)


def assert_close(one, other):
    def compare(path, a, b):
        name = jax.tree_util.keystr(path)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6, err_msg=name)

    jax.tree_util.tree_map_with_path(compare, one, other)


@pytest.mark.parametrize(
    ("kind", "share"),
    by_default([("gru", True)], itertools.product(("gru", "lstm", "min_gru"), (True, False))),
)
def test_gradients_are_those_of_episodes_unrolled_one_by_one(key, kind, share):
    """Episodes end in the middle, two of them in one rollout and one at its last step."""
    agent = agent_with(kind, share_torso=share)
    params = agent.init(key)
    rollout = played(agent, params, key, ends=[(1, 0), (3, 0), (5, 1)])
    weights = jax.random.normal(jax.random.key(5), (T, N))

    def found(params):
        return agent.value(params, as_inputs(rollout, rollout.obs)).reshape(T, N)

    def wanted(params):
        return unrolled(agent, params, rollout)

    assert_close(found(params), wanted(params))
    gradients = [
        jax.jit(jax.grad(lambda p, f=f: (f(p) * weights).sum()))(params) for f in (found, wanted)
    ]
    assert_close(*gradients)
    of_actor = gradients[0]["network"] if share else gradients[0]["network"]["critic"]
    assert max(np.abs(x).max() for x in jax.tree.leaves(of_actor["torso"]["cell"])) > 1e-3


@pytest.mark.full
@pytest.mark.parametrize("kind", ("gru", "lstm", "min_gru"))
def test_a_sequence_cut_in_two_is_truncated_there(key, kind):
    """By `sequence_length`: values are the same, and gradients stop where they are cut."""
    agent = agent_with(kind)
    params = agent.init(key)
    rollout = played(agent, params, key, ends=[(1, 0), (2, 1)])
    weights = jax.random.normal(jax.random.key(5), (T, N))
    samples = OnPolicyBatch(
        obs=rollout.obs,
        action=rollout.action,
        log_prob=rollout.reward,
        value=weights,  # so that the batch says which step a result belongs to
        advantage=rollout.reward,
        target=rollout.reward,
    )

    def loss(params, length):
        batch = in_sequences(rollout, samples, length).batch(None)
        return (agent.value(params, batch.obs) * batch.value).sum()

    def wanted(params, cut_at):
        return (unrolled(agent, params, rollout, cut_at) * weights).sum()

    gradients = []
    for length, cut_at in ((None, ()), (3, (3,)), (2, (2, 4))):
        value, gradient = jax.jit(jax.value_and_grad(partial(loss, length=length)))(params)
        by_hand = jax.jit(jax.value_and_grad(partial(wanted, cut_at=cut_at)))(params)
        np.testing.assert_allclose(value, by_hand[0], rtol=1e-5)
        assert_close(gradient, by_hand[1])
        gradients.append(gradient)
    difference = jax.tree.map(lambda a, b: np.abs(a - b).max(), *gradients[:2])
    assert max(jax.tree.leaves(difference)) > 1e-3


def test_minibatches_hold_whole_sequences(key):
    """In the order of time, each with the memory that it began with."""
    steps = jnp.arange(T * N).reshape(T, N)
    done = jnp.zeros((T, N), bool).at[1, 0].set(True).at[2, 1].set(True)
    rollout = Rollout(
        obs=steps,
        action=steps,
        reward=steps,
        terminated=done,
        truncated=~done & False,
        next_obs=steps,
        extras={"carry": 100 + steps},
    )
    samples = OnPolicyBatch(
        obs=steps, action=steps, log_prob=steps, value=steps, advantage=steps, target=steps
    )
    minibatches = Minibatches(num_epochs=2, num_minibatches=2, sequence_length=3)
    dataset = minibatches.dataset(rollout, samples)
    plan = minibatches.draw(dataset, key)
    assert dataset.num_sequences == 4 and plan.shape == (4, 2)
    for epoch in (plan[:2], plan[2:]):
        assert sorted(np.ravel(epoch).tolist()) == [0, 1, 2, 3]
    seen = set()
    for index in plan[:2]:
        batch = minibatches.gather(dataset, index)
        assert isinstance(batch.obs, Sequences) and batch.obs.obs.shape == (3, 2)
        np.testing.assert_array_equal(batch.action, flatten(batch.obs.obs))
        for column, carry, restart in zip(
            batch.obs.obs.T.tolist(),
            batch.obs.carry.tolist(),
            batch.obs.restart.T.tolist(),
            strict=True,
        ):
            first = column[0]
            assert column == [first, first + N, first + 2 * N] and carry == 100 + first
            # episodes of environment 0 begin with step 2, of environment 1 with step 3
            assert restart == [first == 7, False, first == 0]
            seen.add(first)
    assert seen == {0, 1, 6, 7}
    for settings, message in (
        ({"sequence_length": 4}, "sequence_length=4 does not divide num_steps=6; use .*=2 or 3"),
        ({"num_minibatches": 3}, "num_minibatches=3 does not divide the 2 sequences of a rollout"),
    ):
        minibatches = Minibatches(**settings)
        with pytest.raises(ConfigError, match=message):
            minibatches.draw(minibatches.dataset(rollout, samples), key)


class Sums:
    """Values are the sum of the observations seen in the episode, this one included."""

    def value(self, params, obs):
        def step(total, row):
            x, restart = row
            total = jnp.where(restart, 0.0, total) + x
            return total, total

        return jax.lax.scan(step, obs.carry, (obs.obs, obs.restart))[1].reshape(-1)


@pytest.mark.parametrize("truncated", [False, True])
def test_a_successor_is_valued_with_the_memory_that_belongs_to_it(truncated):
    """By hand: at a time limit it is that of the episode which ends, not a new one."""
    ends = jnp.zeros((4, 1), bool).at[1, 0].set(True)
    obs = jnp.array([[1.0], [2.0], [3.0], [4.0]])
    rollout = Rollout(
        obs=obs,
        action=obs,
        reward=obs,
        terminated=ends & (not truncated),
        truncated=ends & truncated,
        next_obs=jnp.array([[2.0], [20.0], [4.0], [40.0]]),
        extras={"carry": jnp.array([[5.0], [6.0], [0.0], [3.0]])},
    )
    agent = Sums()
    value = agent.value((), as_inputs(rollout, rollout.obs)).reshape(4, 1)
    np.testing.assert_array_equal(value[:, 0], [6, 8, 3, 7])
    learner = dataclasses.make_dataclass("Learner", ["params", "obs_stats"])((), None)
    found = next_values(agent, learner, rollout, value)[:, 0]
    if truncated:
        np.testing.assert_array_equal(found, [8, 6 + 2 + 20, 7, 3 + 4 + 40])
    else:  # what follows a termination does not matter
        np.testing.assert_array_equal(np.delete(found, 1), [8, 7, 3 + 4 + 40])


def test_noise_is_not_learned_through():
    noise = NoiseState(age=jnp.zeros(2, jnp.int32), values=jnp.zeros((2, 3)))
    carry = WithMemory(memory=jnp.ones(2), noise=noise)
    assert memory_of(carry).noise == () and memory_of(noise) == ()
    np.testing.assert_array_equal(memory_of(carry).memory, [1, 1])


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "learns"),
    [
        in_full(("ppo", False)),
        ("ppo.gru", True),
        *(in_full((n, True)) for n in ("a2c.lstm", "pqn.min_gru")),
    ],
)
def test_only_memory_recalls(key, quick_jit, name, learns):
    """A cue is shown at the first step and asked for at the last: see `probe/Recall`."""
    env = vectorize(Recall(), 8)
    kind = {"ppo": rlkit.ActorCriticConfig, "a2c": rlkit.ActorCriticConfig}.get(
        name.split(".")[0], rlkit.NormalizedQNetworkConfig
    )
    make = rlkit.normalized_q_network if "pqn" in name else rlkit.actor_critic
    settings = VARIANTS.get(name, {}) | ({"memory_size": 16} if learns else {})
    agent = make(env.observation_space, env.action_space, kind(hidden_sizes=(16,), **settings))
    table = {
        "num_steps": 16,
        "num_epochs": 4,
        "num_minibatches": 2,
        "learning_rate": 0.01,
        "learning_rate_schedule": "constant",
        "optimizer": "adam",
        "gamma": 0.9,
    }
    algorithm = algorithm_of(name, table)
    module = RLModule(
        env=env,
        agent=agent,
        algorithm=algorithm,
        total_steps=1e5,
        eval_env=env,
        evaluation_episodes=32,
        max_evaluation_steps=4,
    )
    _, metrics = quick_jit(lambda k: fit(module, k, num_outer_iterations=150))(key)
    mean = float(np.mean(metrics["eval"]["return"][-1]))
    assert mean == 1.0 if learns else 0.2 < mean < 0.8


BAD = [
    (PPOConfig(sequence_length=8), False, "sequence_length=8 has no effect on an agent without"),
    (
        PPOConfig(sequence_length=48),
        True,
        "=48 does not divide num_steps=128; use .*=16 or 32 or",
    ),
    (PPOConfig(num_minibatches=8), True, "the 4 sequences of a rollout .*use num_minibatches=1 or"),
    (PQNConfig(num_minibatches=3), False, "=3 does not divide the 512 samples"),
    (A2CConfig(sequence_length=2), True, "does not divide num_steps=5; use sequence_length=1 or 5"),
]


@pytest.mark.fast
@pytest.mark.parametrize(("config", "has_memory", "message"), BAD)
def test_what_cannot_be_cut_is_refused(config, has_memory, message):
    with pytest.raises(ConfigError, match=message):
        check_rollout(config, 4, has_memory=has_memory)


@pytest.mark.fast
def test_shorter_sequences_make_more_minibatches():
    check_rollout(PPOConfig(num_minibatches=8, sequence_length=64), 4, has_memory=True)
    check_rollout(PPOConfig(), 4, has_memory=True)
    check_rollout(A2CConfig(), 3, has_memory=True)


@pytest.mark.full
def test_random_actions_are_remembered_too(key):
    """The prefill, from which observations are normalised, leaves the memory of what was seen."""
    env = vectorize(Recall(), 3)
    config = rlkit.ActorCriticConfig(memory="gru", memory_size=4)
    agent = rlkit.actor_critic(env.observation_space, env.action_space, config)
    algorithm = algorithm_of("ppo", {"num_steps": 3, "num_minibatches": 1})
    state = algorithm.init(agent, env, key, total_steps=100.0)
    explore = acting_randomly(agent, state.learner.policy, env.action_space)
    state, rollout, _ = algorithm.collect(agent, env, state, explore)
    carry, before = agent.initial_carry(3), []
    for obs in rollout.obs:
        before.append(carry)
        _, carry = agent.exploit(state.learner.params, obs, carry, key)
    assert_close(rollout.extras["carry"], jax.tree.map(lambda *x: jnp.stack(x), *before))
    assert_close(state.local.carry, carry)
    assert len(np.unique(rollout.action)) == 2
