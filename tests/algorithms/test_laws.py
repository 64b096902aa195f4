"""What must hold for every algorithm: its row in the registry brings the whole battery (tests/support/algorithm_rows.py)."""

import dataclasses
import itertools

import algorithm_rows as rows
import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algorithm_rows import LEARNING, NAMES, NORMALIZED, PLAIN_VALUES, PROBES
from gymnasium import spaces

from rlkit.agents.registry import list_agents, make_agent
from rlkit.algorithms.base import check_fit
from rlkit.algorithms.ring import Ring
from rlkit.envs.vectorized import vectorize
from rlkit.errors import ConfigError, SpaceError
from rlkit.spaces import clip, example
from rlkit.training.module import RLModule, fit, iteration, strong_types


@pytest.fixture(scope="module", params=NAMES)
def module(request, make_env):
    name = request.param
    env = make_env(action_space=rows.law_space(name))
    algorithm = rows.algorithm_of(name, LEARNING | NORMALIZED)
    return RLModule(
        env=env, agent=rows.agent_of(name, env), algorithm=algorithm, total_steps=1000.0, eval_env=env, evaluation_episodes=6
    )


def assert_close(one, other, rtol=1e-5, atol=1e-6):
    def compare(path, a, b):
        name = jax.tree_util.keystr(path)
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        if jnp.issubdtype(a.dtype, jnp.floating):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=name)
        else:
            np.testing.assert_array_equal(a, b, err_msg=name)

    jax.tree_util.tree_map_with_path(compare, unpacked(one), unpacked(other))


def unpacked(tree):
    """With the numbers of replay memories rather than their bits."""

    def numbers(x):
        return (x.transitions, x.head, x.size) if isinstance(x, Ring) else x

    return jax.tree.map(numbers, tree, is_leaf=lambda x: isinstance(x, Ring))


def without_evaluation(module):
    return dataclasses.replace(module, eval_env=None)


def test_jit_equals_eager(key, module, quick_jit):
    """Initial states to the last bits (XLA fuses the initialiser's sums differently), after one update to rtol 1e-5."""
    eager = module.init_train_state(key)
    assert_close(eager, quick_jit(module.init_train_state)(key), rtol=1e-6, atol=1e-6)
    one, _ = iteration(module, eager, jnp.int32(0))
    other, _ = quick_jit(lambda ts: iteration(module, ts, jnp.int32(0)))(eager)
    assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def fitted(module, quick_jit):
    """(seeds, fit of one seed compiled, result with evaluation, result of all seeds side by side)"""
    keys = jax.random.split(jax.random.key(7), 2)
    one = quick_jit(lambda k: fit(module, k, num_iterations=2))
    many = quick_jit(jax.vmap(lambda k: fit(without_evaluation(module), k, num_iterations=2)[0]))
    return keys, one, [one(k) for k in keys], many(keys)


def test_seeds_side_by_side_equal_a_loop(fitted):
    keys, _, singles, together = fitted
    for i in range(len(keys)):
        assert_close(jax.tree.map(lambda x, i=i: x[i], together), singles[i][0], rtol=1e-4, atol=1e-5)


def test_the_same_key_gives_the_same_result_bit_for_bit(fitted):
    keys, one, singles, _ = fitted
    chex.assert_trees_all_equal(one(keys[0]), singles[0])


def test_different_keys_give_different_results(fitted):
    _, _, singles, _ = fitted
    first, second = (jax.tree.leaves(ts.learner.params) for ts, _ in singles)
    assert max(np.abs(np.asarray(one) - np.asarray(other)).max() for one, other in zip(first, second, strict=True)) > 1e-3


def test_evaluation_changes_nothing(module, fitted, quick_jit):
    """A function of the state alone: repeated it gives the same, and the state stays as it was, bit for bit."""
    _, _, singles, _ = fitted
    ts, metrics = singles[0]
    evaluate = quick_jit(lambda ts: (module.eval_callback(ts), ts))
    before = jax.tree.map(jnp.copy, ts)
    first, after = evaluate(ts)
    second, _ = evaluate(ts)
    chex.assert_trees_all_equal(first, second)
    chex.assert_trees_all_equal(before, after)
    assert first["return"].shape == first["sampled_return"].shape == (6,)
    np.testing.assert_allclose(first["return"], metrics["eval"]["return"][-1], rtol=1e-4, atol=1e-4)


def test_training_with_and_without_evaluation_is_the_same(fitted):
    """`together` was trained without evaluation, `singles` with."""
    _, _, singles, together = fitted
    assert_close(jax.tree.map(lambda x: x[0], together.learner.params), singles[0][0].learner.params, rtol=1e-4, atol=1e-5)
    chex.assert_trees_all_equal(together.local.key[0], singles[0][0].local.key)


def test_one_trace(key, module, quick_jit):
    """A state that went through a step has the types of a fresh one, so nothing compiles twice; seen failing once."""
    module = without_evaluation(module)
    chex.clear_trace_counter()
    traced = chex.assert_max_traces(lambda ts: iteration(module, ts, jnp.int32(0))[0], n=1)
    step = quick_jit(traced)
    fresh = strong_types(quick_jit(module.init_train_state)(key))
    ts = step(step(step(fresh)))
    config = module.algorithm.spec[1]
    assert ts.learner.updates.to_int() == 3 * rows.updates_per_iteration(config, 8 * module.env.num_envs)
    weak = jnp.broadcast_to(jnp.asarray(0.0), fresh.local.discounted_return.shape)
    assert weak.weak_type
    with pytest.raises(AssertionError, match="traced"):
        step(fresh.replace(local=fresh.local.replace(discounted_return=weak)))


def test_learning_rate_and_gamma_may_be_traced(key, make_env, make_agent, quick_jit):
    """A sweep: the algorithm is built inside `vmap`."""
    env = make_env()
    agent = make_agent(env)

    def run(learning_rate, gamma):
        algorithm = rows.algorithm_of("ppo", LEARNING, learning_rate=learning_rate, gamma=gamma, normalize_rewards=True)
        module = RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=1000.0)
        ts, metrics = fit(module, key, num_iterations=1)
        return ts.learner.params, metrics["train"]["learning_rate"]

    params, rates = quick_jit(jax.vmap(run))(jnp.array([0.01, 0.001, 0.01]), jnp.array([0.9, 0.9, 0.5]))
    np.testing.assert_allclose(rates[:, 0], [0.01, 0.001, 0.01], rtol=1e-6)
    leaf = np.asarray(jax.tree.leaves(params)[-1])
    assert not np.allclose(leaf[0], leaf[1]) and not np.allclose(leaf[0], leaf[2])


# Spaces: an algorithm learns in those that its agent takes, and refuses others before anything is compiled.


@dataclasses.dataclass(frozen=True)
class Timed:
    """An environment that observes a Dict: floats, and integers for the time."""

    env: object

    def __getattr__(self, name):
        return getattr(self.env, name)

    @property
    def observation_space(self):
        return spaces.Dict({"x": self.env.observation_space, "time": spaces.Box(0, 9, (1,), np.int32)})

    def look(self, state, obs):
        return {"x": obs, "time": state["time"][None]}

    def reset(self, key):
        state, obs = self.env.reset(key)
        return state, self.look(state, obs)

    def step(self, key, state, action):
        state, obs, *rest = self.env.step(key, state, action)
        return state, self.look(state, obs), *rest


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name in NAMES for kind in rows.action_spaces(name)])
def test_every_kind_of_space_trains_one_iteration(key, make_env, one_iteration, name, kind):
    """Every parameter moves, all numbers are finite, and actions stay within their space."""
    env = vectorize(Timed(make_env(action_space=rows.ACTION_SPACES[kind]).env), 4)
    algorithm, agent = rows.algorithm_of(name, LEARNING | NORMALIZED), rows.agent_of(name, env)
    check_fit(algorithm, agent, env)
    before, rollout, _, learner, metrics = one_iteration(algorithm, agent, env, key)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(metrics))
    assert float(metrics["sum/skipped_updates"]) == 0.0
    for (path, one), other in zip(
        jax.tree.leaves_with_path(before.learner.params), jax.tree.leaves(learner.params), strict=True
    ):
        assert np.abs(one - other).max() > 0, jax.tree_util.keystr(path)
    best, _ = agent.exploit(learner.params, jax.tree.map(lambda x: x[-1], rollout.obs), (), key)
    wanted = example(env.action_space, (env.num_envs,))
    for action in (best, rollout.action[-1]):
        assert action.shape == wanted.shape and action.dtype == wanted.dtype
        taken = np.asarray(clip(env.action_space, action), env.action_space.dtype)
        assert all(env.action_space.contains(one) for one in taken)


@pytest.mark.parametrize(("name", "kind"), list(itertools.product(NAMES, rows.ACTION_SPACES)))
def test_agents_of_other_parts_are_refused_before_compiling(make_env, name, kind):
    """Every agent in every space is refused, by its factory or by `check_fit`, or else can be learned: nothing fails later."""
    env, algorithm = make_env(action_space=rows.ACTION_SPACES[kind]), rows.algorithm_of(name, LEARNING)
    for other in list_agents():
        try:
            agent = make_agent(other, env.observation_space, env.action_space, rows.small_agent(other))
            check_fit(algorithm, agent, env)
        except ConfigError as error:
            assert "; " in str(error)  # the cure
            continue
        module = RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=1000.0)
        jax.eval_shape(lambda k, module=module: fit(module, k, num_iterations=1), jax.random.key(0))


@pytest.mark.parametrize("name", NAMES)
def test_no_agent_and_agents_for_other_spaces_are_refused(make_env, name):
    algorithm, space = rows.algorithm_of(name, LEARNING), rows.law_space(name)
    env = make_env(action_space=space)
    with pytest.raises(ConfigError, match=f"{name} needs an agent with `"):
        check_fit(algorithm, object(), env)
    for kind, other in rows.ACTION_SPACES.items():
        if kind in rows.action_spaces(name) and other != space:
            with pytest.raises(SpaceError, match="build"):
                check_fit(algorithm, rows.agent_of(name, make_env(action_space=other)), env)
    with pytest.raises(SpaceError, match="build"):
        check_fit(algorithm, rows.agent_of(name, vectorize(Timed(env.env), 4)), env)


# Probes: what must have been learned is known, and which one fails says what is broken.

ITERATIONS = 400  # of 64 environment steps each
HIDDEN = {"dict_observation": (32, 32)}  # an exclusive or: smaller and faster learners stop at three of four


@pytest.mark.parametrize(("name", "probe"), rows.probe_cases())
def test_probe(key, quick_jit, name, probe):
    single, gamma = PROBES[probe]
    env = vectorize(single, 8)
    agent = rows.agent_of(name, env, **({"hidden_sizes": HIDDEN[probe]} if probe in HIDDEN else {}))
    slow = {"learning_rate": 0.003} if probe in HIDDEN else {}
    algorithm = rows.algorithm_of(name, LEARNING | PLAIN_VALUES | slow, gamma=gamma)
    module = RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=1e5)
    ts, _ = quick_jit(lambda k: fit(module, k, num_iterations=ITERATIONS))(key)
    obs = jax.tree.map(jnp.asarray, single.observations())
    params, values = ts.learner.params, rows.values_of(agent)
    expected = single.expected_value(gamma)
    if single.best_action() is not None:
        best, _ = agent.exploit(params, obs, (), key)
        np.testing.assert_allclose(best, single.best_action(), atol=0.1)  # integers equal
    if isinstance(env.action_space, spaces.Box):  # one step, one observation: values are those of the policy that explores
        many = jax.tree.map(lambda x: jnp.repeat(x, 1024, axis=0), obs)
        taken, _, _ = agent.explore(params, many, agent.initial_carry(1024), key, ts.learner.progress)
        expected = -np.square(np.asarray(taken) - single.best_action()).mean(0)
        assert expected > -0.16  # standard deviation below 0.4, which it began at 1
    if values is not None:
        np.testing.assert_allclose(values(params, obs), expected, atol=0.1)
