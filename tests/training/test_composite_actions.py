"""Training with actions that are dicts and tuples: on both kinds of environments, with memory and
several seeds, to checkpoints, policies and videos.
"""

import jax
import numpy as np
import pytest
from algorithm_rows import NORMALIZED, SMALL, config_of, small_agent
from composite_twins import HostLevers, Levers
from gymnasium import spaces
from stopping import StopAt

from rlkit import actor_critic
from rlkit.agents.registry import make_agent
from rlkit.algorithms.compatibility import check_compatible
from rlkit.envs import registry
from rlkit.envs.host.gymnasium import GymnasiumAdapter
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.errors import SpaceError
from rlkit.spaces import leaves
from rlkit.training.config import TrainerConfig
from rlkit.training.files.checkpoint_leaves import tree_digest
from rlkit.training.from_config import build, reopen
from rlkit.training.policy import load_policy
from rlkit.training.run_config import EnvConfig, RunConfig
from rlkit.training.trainer import Trainer

JITTABLE, HOST = "own/Levers", "own/HostLevers"
SPACE = Levers.action_space


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    registry.register_env(JITTABLE, Levers)
    registry.register_env(HOST, HostLevers)


def require_actions(actions, shape):
    """They have the space's structure, and are in it."""
    assert set(actions) == {"flip", "pull"} and isinstance(actions["flip"], tuple)
    for leaf, x in zip(leaves(SPACE), jax.tree.leaves(actions), strict=True):
        assert x.shape == (*shape, *leaf.shape)
        rows = np.asarray(x, leaf.dtype).reshape(-1, *leaf.shape)
        assert all(leaf.contains(row) for row in rows)


def run_config(run_dir, name, env_id, memory, num_seeds=2, **arguments):
    return RunConfig(
        algorithm=name,
        env=EnvConfig(id=env_id, num_envs=3, arguments=arguments),
        network=small_agent("actor_critic", memory=memory),
        hyperparameters=config_of(name, SMALL | NORMALIZED | {"num_minibatches": 3}),
        seed=1,
        trainer=TrainerConfig(
            num_checkpoints=3,
            epochs_per_checkpoint=2,
            run_dir=str(run_dir),
            num_seeds=num_seeds,
            evaluation_episodes=3,
            max_queued=1,
        ),
    )


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "env_id", "memory", "arguments"),
    [
        ("ppo", JITTABLE, "gru", {}),
        ("a2c", JITTABLE, None, {}),
        ("ppo", HOST, "gru", {}),
        ("a2c", HOST, None, {"vectorization": "async"}),
    ],
)
def test_a_resumed_run_is_the_run_that_was_not_stopped(tmp_path, name, env_id, memory, arguments):
    """And its policy acts, evaluates and is filmed."""

    def digests(trainer):
        found = jax.tree.leaves_with_path(trainer.state)
        return {jax.tree_util.keystr(path): tree_digest(leaf) for path, leaf in found}

    with build(run_config(tmp_path / "whole", name, env_id, memory, **arguments)) as whole:
        whole.run(whole.seed)
        wanted = digests(whole)
    config = run_config(tmp_path / "part", name, env_id, memory, **arguments)
    with build(config, callbacks=[StopAt(1)]) as part:
        part.run(part.seed)
        assert part.env_steps < whole.env_steps
    with reopen(tmp_path / "part") as rest:
        rest.run(rest.seed)
        assert digests(rest) == wanted
    policy = load_policy(tmp_path / "part", seed_index=1)
    for deterministic in (True, False):
        carry = policy.initial_carry(5)
        actions, carry = policy.act(np.zeros((5, 2)), carry, deterministic=deterministic)
        require_actions(actions, (5,))
    assert np.isfinite(policy.evaluate(episodes=3)["return"]).all()
    filmed = policy.record_video(tmp_path / "film.gif", episodes=1)
    assert filmed.path.is_file() and 0 < filmed.lengths[0] <= 8


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "overlap"),
    [("jittable", "none"), *(("host", overlap) for overlap in ("none", "acting", "update"))],
)
def test_rollouts_record_actions_within_their_space(tiny, kind, overlap):
    env = vectorize(Levers(), 2) if kind == "jittable" else GymnasiumAdapter(HostLevers, 2)
    config = tiny.config(checkpointer_config=None, num_seeds=2, overlap=overlap)
    with Trainer(env, None, tiny.agent(env), tiny.algorithm(), config) as trainer:
        trainer.run(0)
        played = trainer.rollout(3, jax.random.key(0), deterministic=False)
        require_actions(played["action"], played["reward"].shape)


OTHERS = [
    ("q_network", "a Q-network needs Discrete actions"),
    ("quantile_network", "a quantile network needs Discrete actions"),
    ("discrete_soft_actor_critic", "discrete_soft_actor_critic needs Discrete actions"),
    ("soft_actor_critic", "soft_actor_critic needs a Box of continuous actions"),
    ("deterministic_actor_critic", "deterministic_actor_critic needs a Box of continuous actions"),
]


@pytest.mark.parametrize(("agent", "told"), OTHERS)
def test_other_agents_say_which_one_to_take(agent, told):
    with pytest.raises(SpaceError, match=rf"{told}, got Dict\(.*use actor_critic \(PPO, A2C\)"):
        make_agent(agent, Levers.observation_space, SPACE)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (spaces.Discrete(2), r"are int32\[2\], .* need \['flip'\]\[0\] int32\[2, 2\], "),
        (spaces.Dict({"pull": SPACE["pull"]}), r"are \['pull'\] float32\[2, 2\], the environ"),
        (
            spaces.Dict({"push": SPACE["pull"], "flip": SPACE["flip"]}),
            r"are .*\['push'\] float32\[2, 2\], the environ",
        ),
        (
            spaces.Dict({**SPACE.spaces, "flip": spaces.Tuple([spaces.MultiDiscrete([2, 4])] * 2)}),
            r"are .*\['flip'\]\[1\] int32\[2, 2\], .* need .*\['flip'\]\[1\] int32\[2\]",
        ),
        (
            spaces.Dict(
                {
                    **SPACE.spaces,
                    "flip": spaces.Tuple([spaces.MultiDiscrete([2, 4]), spaces.Discrete(3)]),
                }
            ),
            r"chooses from Dict.*, the environments from Dict.*; build the agent with the action",
        ),
    ],
    ids=["one array", "a part missing", "another name", "another shape", "other choices"],
)
def test_agents_for_other_parts_are_refused(tiny, other, told):
    env = vectorize(Levers(), 2)
    with pytest.raises(SpaceError, match=told):
        check_compatible(tiny.algorithm(), actor_critic(env.observation_space, other), env)


def test_bounds_may_differ_between_agent_and_environment(tiny):
    """As for a single Box: samples are not clipped, and environments clip."""
    env = vectorize(Levers(), 2)
    wide = spaces.Dict({**SPACE.spaces, "pull": spaces.Box(-2.0, 2.0, (2,))})
    check_compatible(tiny.algorithm(), actor_critic(env.observation_space, wide), env)
