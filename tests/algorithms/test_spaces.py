"""Spaces: every algorithm learns in those that its agent takes, and refuses others before anything
is compiled.
"""

import dataclasses
import itertools

import algorithm_rows as rows
import jax
import numpy as np
import pytest
from algorithm_rows import LEARNING, NAMES, NORMALIZED
from gymnasium import spaces
from tiers import by_default

from rlkit.agents.registry import list_agents, make_agent
from rlkit.algorithms.compatibility import check_compatible
from rlkit.envs.jittable.vectorized import vectorize
from rlkit.errors import ConfigError, SpaceError
from rlkit.spaces import clip, example, leaves
from rlkit.training.core.module import RLModule, fit


@dataclasses.dataclass(frozen=True)
class Timed:
    """An environment that observes a Dict: floats, and integers for the time."""

    env: object

    def __getattr__(self, name):
        return getattr(self.env, name)

    @property
    def observation_space(self):
        return spaces.Dict(
            {"x": self.env.observation_space, "time": spaces.Box(0, 9, (1,), np.int32)}
        )

    def look(self, state, obs):
        return {"x": obs, "time": state["time"][None]}

    def reset(self, key):
        state, obs = self.env.reset(key)
        return state, self.look(state, obs)

    def step(self, key, state, action):
        state, obs, *rest = self.env.step(key, state, action)
        return state, self.look(state, obs), *rest


CASES = [(name, kind) for name in NAMES for kind in rows.action_spaces(name)]


@pytest.mark.parametrize(
    ("name", "kind"),
    by_default([("ppo", "multi_discrete")], CASES),
)
def test_every_kind_of_space_trains_one_iteration(key, make_env, one_iteration, name, kind):
    """Every parameter moves, all numbers are finite, and actions stay within their space."""
    env = vectorize(Timed(make_env(action_space=rows.ACTION_SPACES[kind]).env), 4)
    algorithm, agent = rows.algorithm_of(name, LEARNING | NORMALIZED), rows.agent_of(name, env)
    check_compatible(algorithm, agent, env)
    before, rollout, _, learner, metrics = one_iteration(algorithm, agent, env, key)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(metrics))
    assert float(metrics["sum/skipped_updates"]) == 0.0
    for (path, one), other in zip(
        jax.tree.leaves_with_path(before.learner.params),
        jax.tree.leaves(learner.params),
        strict=True,
    ):
        assert np.abs(one - other).max() > 0, jax.tree_util.keystr(path)
    best, _ = agent.exploit(learner.params, jax.tree.map(lambda x: x[-1], rollout.obs), (), key)
    wanted = example(env.action_space, (env.num_envs,))
    for action in (best, jax.tree.map(lambda x: x[-1], rollout.action)):
        assert jax.tree.structure(action) == jax.tree.structure(wanted)
        for leaf, one, x, clipped in zip(
            leaves(env.action_space),
            *map(jax.tree.leaves, (wanted, action, clip(env.action_space, action))),
            strict=True,
        ):
            assert (x.shape, x.dtype) == (one.shape, one.dtype)
            assert all(leaf.contains(row) for row in np.asarray(clipped, leaf.dtype))


@pytest.mark.parametrize(("name", "kind"), list(itertools.product(NAMES, rows.ACTION_SPACES)))
def test_agents_of_other_parts_are_refused_before_compiling(make_env, name, kind):
    """Every agent in every space is refused, by its factory or by `check_compatible`, or else can
    be learned: nothing fails later.
    """
    env, algorithm = (
        make_env(action_space=rows.ACTION_SPACES[kind]),
        rows.algorithm_of(name, LEARNING),
    )
    for other in list_agents():
        try:
            agent = make_agent(
                other, env.observation_space, env.action_space, rows.small_agent(other)
            )
            check_compatible(algorithm, agent, env)
        except ConfigError as error:
            assert "; " in str(error)  # the fix
            continue
        module = RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=1000.0)
        jax.eval_shape(
            lambda k, module=module: fit(module, k, num_outer_iterations=1), jax.random.key(0)
        )


@pytest.mark.parametrize("name", NAMES)
def test_no_agent_and_agents_for_other_spaces_are_refused(make_env, name):
    algorithm, space = rows.algorithm_of(name, LEARNING), rows.law_space(name)
    env = make_env(action_space=space)
    with pytest.raises(ConfigError, match=f"{name} needs an agent with `"):
        check_compatible(algorithm, object(), env)
    for kind, other in rows.ACTION_SPACES.items():
        if kind in rows.action_spaces(name) and other != space:
            with pytest.raises(SpaceError, match="build"):
                check_compatible(algorithm, rows.agent_of(name, make_env(action_space=other)), env)
    with pytest.raises(SpaceError, match="build"):
        check_compatible(algorithm, rows.agent_of(name, vectorize(Timed(env.env), 4)), env)
