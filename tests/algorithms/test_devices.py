"""Off policy on two devices: each keeps a replay memory of its own, all learn the same."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from rlkit.agents.configs import QNetworkConfig
from rlkit.agents.q_network import q_network
from rlkit.algorithms.configs import DQNConfig
from rlkit.algorithms.dqn import dqn
from rlkit.algorithms.initial_state import InitKeys
from rlkit.envs.registry import make_env
from rlkit.ops.strong_types import strong_types

NUM_DEVICES, NUM_ENVS, NUM_STEPS, NUM_ITERATIONS = 2, 2, 4, 3


@pytest.mark.parametrize(
    ("priority_exponent", "updates_per_step"),
    [
        pytest.param(None, 0.25, id="uniform", marks=pytest.mark.full),
        pytest.param(0.6, 0.25, id="prioritised", marks=pytest.mark.full),
        pytest.param(None, 0.1, id="seldom", marks=pytest.mark.full),
    ],
)
def test_replay_belongs_to_its_device(priority_exponent, updates_per_step):
    env = make_env("probe/Discounting", NUM_ENVS)
    agent = q_network(env.observation_space, env.action_space, QNetworkConfig(hidden_sizes=(8,)))
    config = DQNConfig(
        num_steps=NUM_STEPS,
        prefill_steps=0,
        capacity=64,
        batch_size=4,
        updates_per_step=updates_per_step,
        normalize_observations=True,
        priority_exponent=priority_exponent,
    )
    # Settings of each device here, which `divided` would make from those of the whole.
    algorithm = dataclasses.replace(dqn(config), axis_name="devices")

    def on_device(own_key):
        """The state of one device; its part of every array has a leading axis of 1."""
        reset, prefill, local = jax.random.split(own_key[0], 3)
        keys = InitKeys(params=jax.random.key(7), reset=reset, prefill=prefill, local=local)
        env_state, obs = env.reset(keys.reset)
        ts = algorithm.start(agent, env, keys, obs, env_state, total_steps=1000)

        def iteration(ts, index):
            ts, rollout, _ = algorithm.collect(agent, env, ts)
            update_key = jax.random.fold_in(own_key[0], index)
            learner, memory, metrics = algorithm.update(
                agent, ts.learner, ts.local.memory, rollout, update_key
            )
            return ts.replace(learner=learner, local=ts.local.replace(memory=memory)), metrics

        ts, metrics = jax.lax.scan(iteration, strong_types(ts), jnp.arange(NUM_ITERATIONS))
        return jax.tree.map(lambda x: x[None], (ts, metrics))

    mesh = jax.make_mesh((NUM_DEVICES,), ("devices",), axis_types=(jax.sharding.AxisType.Auto,))
    per_device = PartitionSpec("devices")
    run = jax.shard_map(
        on_device, mesh=mesh, in_specs=per_device, out_specs=per_device, check_vma=False
    )
    ts, metrics = jax.jit(run)(jax.random.split(jax.random.key(0), NUM_DEVICES))

    for leaf in jax.tree.leaves((ts.learner, metrics)):
        np.testing.assert_array_equal(leaf[0], leaf[1])
    steps = NUM_DEVICES * NUM_ENVS * NUM_STEPS * NUM_ITERATIONS
    assert jax.tree.map(lambda x: x[0], ts.learner.env_steps).to_int() == steps
    assert jax.tree.map(lambda x: x[0], ts.learner.updates).to_int() == int(
        updates_per_step * steps
    )
    ring = ts.local.memory if priority_exponent is None else ts.local.memory.ring
    assert ring.words.sharding.spec[0] == "devices"
    np.testing.assert_array_equal(ring.size, [NUM_STEPS * NUM_ITERATIONS] * NUM_DEVICES)
    first, second = (np.asarray(x) for x in ring.transitions.action)
    assert (first != second).any()
    if priority_exponent is not None:
        leaves = ts.local.memory.tree.leaves
        assert jnp.any(leaves[0] != leaves[1])
