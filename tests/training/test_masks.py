"""Training in masked environments: no action is ever forbidden, and all else holds as elsewhere."""

import jax
import numpy as np
import pytest
from algorithm_rows import NAMES, acts_in
from gymnasium import spaces
from masked_twins import HostMaskedCounter, HostStrictCounter, MaskedCounter, StrictCounter
from stopping import StopAt
from tiers import by_default
from untrained_policies import ACTIONS, LEAVES, policy_of

from rlkit.action_masks import masked_space
from rlkit.agents.registry import agent_entry, make_agent
from rlkit.algorithms.registry import algorithm_entry
from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.errors import ConfigError, EnvFailedError
from rlkit.training.config import TrainerConfig
from rlkit.training.from_config import build, reopen
from rlkit.training.run_config import EnvConfig, RunConfig
from rlkit.training.trainer import Trainer

DISCRETE = [name for name in NAMES if acts_in(name, spaces.Discrete(3))]


def environment(kind, *, strict=True, num_envs=3):
    if kind == "jittable":
        return vectorize(StrictCounter() if strict else MaskedCounter(), num_envs)
    made = HostStrictCounter if strict else HostMaskedCounter
    return GymnasiumAdapter(made, num_envs, action_masks=True)


def train(tiny, name, env, **settings) -> tuple[Trainer, list]:
    config = tiny.config(checkpointer_config=None, **settings)
    trainer = Trainer(env, None, tiny.agent(env, name), tiny.algorithm(name), config)
    return trainer, trainer.run(0)


@pytest.mark.parametrize(
    ("name", "kind", "overlap"),
    by_default(
        [("ppo", "jittable", "none")],
        [
            *((name, "jittable", "none") for name in DISCRETE),
            *((name, "host", overlap) for name in DISCRETE for overlap in ("none", "update")),
        ],
    ),
)
def test_no_action_is_ever_forbidden(tiny, name, kind, overlap):
    """Random ones of the prefill, explored ones, and both kinds in evaluation: one would be NaN."""
    trainer, history = train(tiny, name, environment(kind), overlap=overlap, num_seeds=2)
    with trainer:
        for evaluation in history:
            for values in evaluation.values():
                assert np.isfinite(values).all()


@pytest.mark.full
@pytest.mark.parametrize("name", ["ppo", "a2c", "pqn"])
def test_nor_with_memory(tiny, name):
    env = environment("jittable", num_envs=4)
    entry = algorithm_entry(name)
    settings = agent_entry(entry.agent).config(hidden_sizes=(8,), memory="gru", memory_size=4)
    agent = make_agent(entry.agent, env.observation_space, env.action_space, settings)
    config = tiny.config(checkpointer_config=None, num_seeds=2)
    with Trainer(env, None, agent, tiny.algorithm(name), config) as trainer:
        for evaluation in trainer.run(0):
            assert np.isfinite(evaluation["return"]).all()


class CutStuck(MaskedCounter):
    """Allows nothing at its time limit, where the value of what comes counts."""

    def action_mask(self, state):
        return super().action_mask(state) & (state.time < 8)


@pytest.mark.full
def test_nothing_allowed_at_a_time_limit_ends_the_run(tiny):
    with pytest.raises(EnvFailedError, match="the environment allowed no action in"):
        train(tiny, "dqn", vectorize(CutStuck(goal=100), 2))


@pytest.mark.fast
def test_a_policy_refuses_a_mask_that_allows_nothing():
    space = masked_space(LEAVES["floats"], ACTIONS["discrete"])
    policy = policy_of("q_network", space, ACTIONS["discrete"])
    obs = {"observation": np.zeros((2, 3), np.float32), "action_mask": np.ones((2, 3), np.int8)}
    obs["action_mask"][0] = [0, 1, 0]
    assert policy(obs)[0] == ACTIONS["discrete"].start + 1
    obs["action_mask"][1] = 0
    with pytest.raises(ConfigError, match="the action mask of observation 1 allows nothing"):
        policy(obs)


class Stuck(MaskedCounter):
    """Allows nothing at time 2."""

    def action_mask(self, state):
        return super().action_mask(state) & (state.time != 2)


@pytest.mark.parametrize("name", by_default(["dqn"], DISCRETE))
def test_a_state_without_an_allowed_action_ends_the_run(tiny, name):
    with pytest.raises(EnvFailedError, match="the environment allowed no action in"):
        train(tiny, name, vectorize(Stuck(), 2))


def run_config(tmp_path, name, run):
    return RunConfig(
        algorithm=name,
        env=EnvConfig(id="probe/AllowedActions", num_envs=3),
        seed=1,
        trainer=TrainerConfig(
            total_steps=20_000 if name == "dqn" else 4 * 3 * 128,
            num_checkpoints=4,
            run_dir=str(tmp_path / run),
            num_seeds=2,
            max_queued=1,
            max_evaluation_steps=10,
        ),
    )


@pytest.mark.full
@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_a_resumed_run_is_the_run_that_was_not_stopped(tmp_path, name):
    with build(run_config(tmp_path, name, "whole")) as whole:
        whole.run(whole.seed)
        wanted = jax.device_get(whole.state)
    with build(run_config(tmp_path, name, "part"), callbacks=[StopAt(2)]) as part:
        part.run(part.seed)
        assert part.env_steps < whole.env_steps
    with reopen(tmp_path / "part") as rest:
        rest.run(rest.seed)
        found = jax.device_get(rest.state)
    for one, other in zip(jax.tree.leaves(wanted), jax.tree.leaves(found), strict=True):
        if jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        np.testing.assert_array_equal(one, other)
