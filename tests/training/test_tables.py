"""Tables of integers in whole runs: trained, saved, loaded, told of, and counted in estimates."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algorithm_rows import algorithm_of
from gymnasium import spaces
from tiny_runs import settings_of

from rlkit.agents.actor_critic import actor_critic
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.envs.probes.value_probes import ActionChoice
from rlkit.errors import ConfigError
from rlkit.training.core.module import RLModule
from rlkit.training.files import memory_size
from rlkit.training.from_config import build
from rlkit.training.logs.records import read_records
from rlkit.training.policy import load_policy


class Integers(ActionChoice):
    observation_space = spaces.Discrete(10_000)

    def reset(self, key):
        return jnp.int32(0), jnp.int32(0)


@pytest.mark.full
def test_tables_are_trained_saved_and_loaded(tmp_path):
    """A run, its policy and its log; the flag of the probe has two values, more than a threshold of
    one.
    """
    config = settings_of(tmp_path / "run", max_evaluation_steps=1)
    network = dataclasses.replace(config.network, embedding_threshold=1, embedding_size=3)
    env = dataclasses.replace(config.env, id="probe/DictObservation")
    with build(dataclasses.replace(config, network=network, env=env)) as trainer:
        before = jax.device_get(trainer.init(0).learner.params)
        trainer.run()
        after = jax.device_get(trainer.state.learner.params)
        table = trainer.state.learner.params["network"]["critic"]["torso"]["encoders"][0]
        assert table["tables"][0]["rows"].shape == (2, 3)
    changed = jax.tree.map(lambda a, b: bool((a != b).any()), before, after)
    assert all(jax.tree.leaves(changed["network"]["critic"]["torso"]))
    policy = load_policy(tmp_path / "run")
    jax.tree.map(np.testing.assert_array_equal, policy.state.params, after)
    texts = [record.text or "" for record in read_records(tmp_path / "run" / "metrics.jsonl")]
    assert sum("['flag'] (2 values): read from learned tables, 3 numbers" in t for t in texts) == 1


def test_the_estimate_of_memory_knows_the_tables():
    """Two tables of 64 numbers for each of 10,000 values, and Adam's two moments of them."""
    env = vectorize(Integers(), 2)
    agent = actor_critic(env.observation_space, env.action_space)
    module = RLModule(env=env, agent=agent, algorithm=algorithm_of("ppo"), total_steps=1e3)
    plan = dataclasses.make_dataclass("Plan", ["epochs_per_checkpoint"])(1)
    networks, *_ = memory_size._needs(module, plan)
    tables = 2 * 10_000 * 64 * 4 * 3
    assert tables < networks.bytes < 1.05 * tables
    assert networks.cure.startswith("lower embedding_size (--embedding-size)")
    sizes = {"num_seeds": 1, "seeds_at_once": 1, "replay_bytes": 0, "available": tables}
    with pytest.raises(ConfigError, match="lower embedding_size"):
        memory_size.check_memory(module, plan, **sizes)
