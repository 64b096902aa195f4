"""Prioritised replay: what is drawn, how it is weighed, and what errors change."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlkit.agents.configs import QNetworkConfig
from rlkit.agents.q_network import q_network
from rlkit.algorithms.configs import DQNConfig
from rlkit.algorithms.dqn import dqn, dqn_loss
from rlkit.algorithms.prioritized_replay import PrioritizedReplay
from rlkit.algorithms.replay_buffer import UniformReplay
from rlkit.envs.registry import make_env
from rlkit.errors import ConfigError
from rlkit.ops.counters import StepCounter
from rlkit.training.core.module import RLModule, iteration
from rlkit.types import Transition

ALPHA, BETA = 0.5, 0.4

add = jax.jit(PrioritizedReplay.add, static_argnums=0)
cut = jax.jit(PrioritizedReplay.cut, static_argnums=0)
sample = jax.jit(PrioritizedReplay.sample, static_argnums=0)


def rollout(values, num_envs=2):
    """Rows [T, N] whose reward is a running number."""
    rewards = np.asarray(values, np.float32).reshape(-1, num_envs)
    no = np.zeros(rewards.shape, bool)
    obs = rewards[..., None]
    return Transition(
        obs=obs,
        action=rewards.astype(np.int32),
        reward=rewards,
        terminated=no,
        truncated=no,
        next_obs=obs + 1,
        extras={},
    )


def buffer_of(**settings):
    settings = {
        "capacity": 8,
        "batch_size": 4,
        "gamma": 0.5,
        "priority_exponent": ALPHA,
        "importance_exponent": BETA,
    } | settings
    return PrioritizedReplay(**settings)


def empty(buffer):
    return buffer.init(
        jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), rollout([0, 1])), 2
    )


def leaves(memory, num=8):
    return np.asarray(memory.tree.leaves)[:num]


@functools.partial(jax.jit, static_argnums=0)
def with_errors(buffer, memory, index, errors):
    batch = buffer.sample(memory, jax.random.key(0), jnp.float32(0)).replace(index=index)
    return buffer.reprioritize(memory, batch, errors)


def test_new_transitions_have_the_highest_priority_so_far():
    buffer = buffer_of(min_priority=1e-30)
    memory = add(buffer, empty(buffer), rollout([0, 1, 2, 3]))
    np.testing.assert_array_equal(leaves(memory), [1, 1, 1, 1, 0, 0, 0, 0])
    memory = with_errors(buffer, memory, np.array([1, 3]), np.array([-16.0, 0.25]))
    np.testing.assert_array_equal(leaves(memory), [1, 4, 1, 0.5, 0, 0, 0, 0])
    memory = add(buffer, memory, rollout([4, 5]))
    np.testing.assert_array_equal(leaves(memory), [1, 4, 1, 0.5, 4, 4, 0, 0])
    memory = add(buffer, memory, rollout([6, 7, 8, 9]))  # over the seam: rows 3 and 0
    np.testing.assert_array_equal(leaves(memory), [4, 4, 1, 0.5, 4, 4, 4, 4])


def test_draws_follow_priorities_and_weights_make_up_for_them():
    """Priorities 1, 4, 1, 0.5 after the exponent: probabilities are those over 6.5, weights (4 ·
    probability)^-β.
    """
    buffer = buffer_of(min_priority=1e-30, batch_size=20_000)
    memory = add(buffer, empty(buffer), rollout([0, 1, 2, 3]))
    memory = with_errors(buffer, memory, np.array([1, 3]), np.array([-16.0, 0.25]))
    probability = np.array([1, 4, 1, 0.5]) / 6.5
    for progress in (0.0, 0.5, 1.0):
        batch = sample(buffer, memory, jax.random.key(1), jnp.float32(progress))
        # Row · N + column, and that number was the reward.
        np.testing.assert_array_equal(batch.index, batch.reward)
        shares = np.bincount(np.asarray(batch.index), minlength=4) / 20_000
        np.testing.assert_allclose(shares, probability, atol=0.015)
        beta = BETA + progress * (1 - BETA)
        weight = (4 * probability) ** -beta
        np.testing.assert_allclose(
            batch.weight, (weight / weight.max())[np.asarray(batch.index)], rtol=1e-5
        )


def test_without_an_exponent_it_is_uniform():
    buffer = buffer_of(priority_exponent=0.0)
    memory = add(buffer, empty(buffer), rollout(range(8)))
    memory = with_errors(buffer, memory, np.array([0, 1]), np.array([1e6, 1e-6]))
    np.testing.assert_array_equal(leaves(memory), 1.0)
    batch = sample(buffer, memory, jax.random.key(0), jnp.float32(0))
    np.testing.assert_array_equal(batch.weight, 1.0)


@pytest.mark.parametrize("n_step", [1, 3])
def test_targets_are_those_of_uniform_replay(n_step):
    """What is read does not depend on how it was chosen, wherever the seam lies."""
    buffer = buffer_of(n_step=n_step, batch_size=64)
    memory = empty(buffer)
    for start in range(0, 12, 2):
        memory = add(buffer, memory, rollout([start, start + 1]))
    memory = cut(buffer, memory)
    found = jax.device_get(sample(buffer, memory, jax.random.key(0), jnp.float32(0)))
    uniform = UniformReplay(capacity=8, batch_size=4096, gamma=0.5, n_step=n_step)
    wanted = jax.device_get(jax.jit(uniform.sample)(memory.ring, jax.random.key(1), jnp.float32(0)))
    by_index = {
        int(i): (float(r), float(d))
        for i, r, d in zip(wanted.index, wanted.reward, wanted.discount, strict=True)
    }
    assert len(by_index) == 8
    for index, reward, discount in zip(found.index, found.reward, found.discount, strict=True):
        assert by_index[int(index)] == (float(reward), float(discount))


def test_errors_that_are_not_finite_change_nothing():
    buffer = buffer_of()
    memory = add(buffer, empty(buffer), rollout(range(8)))
    memory = with_errors(buffer, memory, np.array([0, 1, 2]), np.array([4.0, np.nan, np.inf]))
    np.testing.assert_allclose(leaves(memory, 4), [2, 1, 1, 1], rtol=1e-6)
    assert float(memory.max_priority) < 5


def test_cut():
    buffer = buffer_of()
    memory = add(buffer, empty(buffer), rollout([0, 1, 2, 3]))
    transitions = jax.jit(lambda memory: memory.ring.transitions)(cut(buffer, memory))
    assert transitions.truncated.tolist() == [
        [False] * 2,
        [True] * 2,
        [False] * 2,
        [False] * 2,
    ]


@pytest.fixture(scope="module")
def module():
    env = make_env("probe/Discounting", 2)
    agent = q_network(env.observation_space, env.action_space, QNetworkConfig(hidden_sizes=(8,)))
    config = DQNConfig(
        num_steps=8,
        prefill_steps=16,
        capacity=64,
        batch_size=4,
        updates_per_step=0.125,
        priority_exponent=ALPHA,
    )
    return RLModule(env=env, agent=agent, algorithm=dqn(config), total_steps=1000.0)


@pytest.fixture(scope="module")
def start(module):
    """A state with a full batch in its memory."""
    return module.init_train_state(jax.random.key(0))


def test_an_update_renews_the_priorities_of_its_batch(module, start):
    """Two updates of four transitions; the second one draws by what the first one left."""
    after, metrics = jax.jit(lambda ts: iteration(module, ts, jnp.int32(0)))(start)
    assert "td_error" not in metrics
    fresh = np.asarray(start.local.memory.max_priority) ** ALPHA
    found = leaves(after.local.memory, 32)
    assert 1 <= (found != fresh).sum() <= 8 and (found > 0).all()
    assert after.learner.updates.to_int() == 2


def test_the_buffer_is_what_the_config_says(module, key):
    config = DQNConfig(
        priority_exponent=0.7,
        importance_exponent=0.3,
        capacity=10,
        batch_size=3,
        n_step=2,
        gamma=0.9,
    )
    wanted = PrioritizedReplay(
        capacity=10,
        batch_size=3,
        n_step=2,
        gamma=0.9,
        priority_exponent=0.7,
        importance_exponent=0.3,
    )
    assert dqn(config).replay_buffer == wanted


def test_weights_follow_the_progress_of_the_run(module, start, key):
    """Halfway through, β is halfway between its start and 1."""
    builder, buffer = module.algorithm.batch_builder, module.algorithm.replay_buffer
    memory = with_errors(buffer, start.local.memory, np.arange(16), np.arange(16) + 0.5)
    halfway = start.learner.replace(env_steps=StepCounter.create(500))

    @jax.jit
    def program(learner, memory, key):
        rollout = jax.tree.map(lambda x: x[:8], memory.ring.transitions)
        memory, dataset, _ = builder.ingest(module.agent, learner, memory, rollout)
        return memory, builder.gather(dataset, key).weight

    memory, found = program(halfway, memory, key)
    weights = [np.asarray(sample(buffer, memory, key, jnp.float32(x)).weight) for x in (0.5, 0.0)]
    np.testing.assert_array_equal(found, weights[0])
    assert np.abs(np.asarray(found) - weights[1]).max() > 0.01


@pytest.mark.parametrize(
    ("errors", "process_batch", "message"),
    [
        (
            lambda q: q[:1, 0],
            None,
            r'"td_error" of shape \(1,\) for a batch of 4; return one for each',
        ),
        (
            lambda q: q[:, 0],
            lambda batch: {"obs": batch.obs},
            r"process_batch returned a dict; return batch.replace",
        ),
    ],
)
def test_errors_that_fit_no_batch_are_told_before_anything_compiles(
    module, errors, process_batch, message
):
    def loss(agent, params, target, batch, key):
        q_values = agent.q_values(params, batch["obs"] if isinstance(batch, dict) else batch.obs)
        return q_values.mean(), {"td_error": errors(q_values)}

    broken = dqn(module.algorithm.spec[1], loss=loss, process_batch=process_batch)
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(module, algorithm=broken)


def test_weights_scale_the_loss(module, start, key):
    params = start.learner.params
    batch = sample(module.algorithm.replay_buffer, start.local.memory, key, jnp.float32(0))
    loss = jax.jit(lambda batch: dqn_loss(DQNConfig())(module.agent, params, params, batch, key))
    one, metrics = jax.device_get(loss(batch))
    half, _ = loss(batch.replace(weight=np.full(4, 0.5, np.float32)))
    np.testing.assert_allclose(half, one / 2, rtol=1e-6)
    np.testing.assert_allclose(np.square(metrics["td_error"]).mean(), one, rtol=1e-6)


def test_a_loss_without_errors_is_told_before_anything_compiles(module):
    silent = dqn(
        module.algorithm.spec[1],
        loss=lambda agent, params, target, batch, key: agent.q_values(params, batch.obs).mean(),
    )
    with pytest.raises(
        ConfigError, match=r"no loss returns it; return .*td_error.*priority_exponent=None"
    ):
        dataclasses.replace(module, algorithm=silent)


def test_devices_weigh_and_rank_by_the_largest_of_all(key):
    """A device samples from its own ring, by the probabilities there; the largest weight of the
    joint batch is 1, and new transitions get the highest priority that any device has seen.
    """
    whole = buffer_of(capacity=16, batch_size=8)
    own = whole.divided(2, "d")
    assert (own.capacity, own.batch_size) == (8, 4)
    memory = add(buffer_of(), empty(buffer_of()), rollout(range(8)))
    memories = jax.tree.map(lambda x: jnp.stack([x, x]), memory)
    leaves = jnp.zeros((2, 16)).at[:, :8].set(jnp.array([[1.0] * 8, [4.0] + [0.25] * 7]))
    tree = jax.vmap(lambda x: memory.tree.set(jnp.arange(16), x))(leaves)
    memories = memories.replace(tree=tree)

    def device(memory, key, errors):
        batch = own.sample(memory, key, jnp.float32(0))
        return batch, own.reprioritize(memory, batch, errors)

    errors = jnp.array([[0.5] * 4, [9.0] * 4])
    batch, after = jax.jit(jax.vmap(device, axis_name="d"))(
        memories, jax.random.split(key, 2), errors
    )
    drawn = np.take_along_axis(np.asarray(leaves), np.asarray(batch.index), axis=1)
    raw = (8 * drawn / np.asarray(leaves).sum(1, keepdims=True)) ** -BETA
    assert len(np.unique(raw)) > 1
    np.testing.assert_allclose(batch.weight, raw / raw.max(), rtol=1e-5)
    np.testing.assert_allclose(after.max_priority, [9.0, 9.0], rtol=1e-5)
