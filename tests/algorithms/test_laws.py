"""What must hold for every algorithm: its row in the registry brings the whole battery
(tests/support/algorithm_rows.py).
"""

import dataclasses

import algorithm_rows as rows
import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algorithm_rows import LEARNING, NAMES, NORMALIZED, VARIANTS
from tiers import REPRESENTATIVES, by_default

from rlkit.algorithms.replay_storage import Ring
from rlkit.ops.strong_types import strong_types
from rlkit.training.core.module import RLModule, fit, iteration

pytestmark = pytest.mark.gpu
EVERY = [*NAMES, *VARIANTS]


@pytest.fixture(scope="module", params=by_default(REPRESENTATIVES, EVERY))
def module(request, make_env):
    name = request.param
    env = make_env(action_space=rows.law_space(name))
    algorithm = rows.algorithm_of(name, LEARNING | NORMALIZED)
    return RLModule(
        env=env,
        agent=rows.agent_of(name, env),
        algorithm=algorithm,
        total_steps=1000.0,
        eval_env=env,
        evaluation_episodes=6,
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


@pytest.fixture(scope="module")
def compiled(module, quick_jit):
    """(the initial state of a key, one iteration), each traced once at most."""
    chex.clear_trace_counter()  # it goes by the name of the function
    one_trace = chex.assert_max_traces(lambda ts: iteration(module, ts, jnp.int32(0))[0], n=1)
    return quick_jit(module.init_train_state), quick_jit(one_trace)


@pytest.mark.parametrize("module", by_default(["ppo"], EVERY), indirect=True)
def test_jit_equals_eager(key, module, compiled):
    """Initial states to the last bits (XLA fuses the initialiser's sums differently), after one
    update to rtol 1e-5.
    """
    init, step = compiled
    eager = strong_types(module.init_train_state(key))
    assert_close(eager, init(key), rtol=1e-6, atol=1e-6)
    one, _ = iteration(module, eager, jnp.int32(0))
    assert_close(one, step(eager), rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def fitted(module, quick_jit):
    """(seeds, fit of one seed compiled, result with evaluation, result of all seeds side
    by side)
    """
    keys = jax.random.split(jax.random.key(7), 2)
    one = quick_jit(lambda k: fit(module, k, num_outer_iterations=2, skip_initial_evaluation=True))
    many = quick_jit(
        jax.vmap(lambda k: fit(without_evaluation(module), k, num_outer_iterations=2)[0])
    )
    return keys, one, [jax.device_get(one(k)) for k in keys], jax.device_get(many(keys))


fitted_rows = pytest.mark.parametrize("module", by_default(["sac"], NAMES), indirect=True)


@fitted_rows
def test_seeds_side_by_side_equal_a_loop(fitted):
    keys, _, singles, together = fitted
    for i in range(len(keys)):
        assert_close(
            jax.tree.map(lambda x, i=i: x[i], together), singles[i][0], rtol=1e-4, atol=1e-5
        )


@fitted_rows
def test_the_same_key_gives_the_same_result_bit_for_bit(fitted):
    keys, one, singles, _ = fitted
    chex.assert_trees_all_equal(one(keys[0]), singles[0])


@fitted_rows
def test_different_keys_give_different_results(fitted):
    _, _, singles, _ = fitted
    first, second = (jax.tree.leaves(ts.learner.params) for ts, _ in singles)
    assert (
        max(
            np.abs(np.asarray(one) - np.asarray(other)).max()
            for one, other in zip(first, second, strict=True)
        )
        > 1e-3
    )


@pytest.mark.parametrize("module", by_default(["sac"], EVERY), indirect=True)
def test_evaluation_changes_nothing(module, fitted, quick_jit):
    """A function of the state alone: repeated it gives the same, and the state stays as it was, bit
    for bit.
    """
    _, _, singles, _ = fitted
    ts, metrics = singles[0]
    evaluate = quick_jit(lambda ts: (module.eval_callback(ts), ts))
    before = jax.tree.map(lambda x: x.copy(), ts)
    first, after = evaluate(ts)
    second, _ = evaluate(ts)
    chex.assert_trees_all_equal(first, second)
    chex.assert_trees_all_equal(before, after)
    assert first["return"].shape == first["sampled_return"].shape == (6,)
    np.testing.assert_allclose(first["return"], metrics["eval"]["return"][-1], rtol=1e-4, atol=1e-4)


@fitted_rows
def test_training_with_and_without_evaluation_is_the_same(fitted):
    """`together` was trained without evaluation, `singles` with."""
    _, _, singles, together = fitted
    assert_close(
        jax.tree.map(lambda x: x[0], together.learner.params),
        singles[0][0].learner.params,
        rtol=1e-4,
        atol=1e-5,
    )
    chex.assert_trees_all_equal(together.local.key[0], singles[0][0].local.key)


def test_one_trace(key, module, compiled):
    """A state that went through a step has the types of a fresh one, so nothing compiles twice;
    seen failing once.
    """
    init, step = compiled
    fresh = strong_types(init(key))
    ts = step(step(step(fresh)))
    config = module.algorithm.spec[1]
    assert ts.learner.updates.to_int() == 3 * rows.updates_per_iteration(
        config, 8 * module.env.num_envs
    )
    weak = jnp.broadcast_to(jnp.asarray(0.0), fresh.local.discounted_return.shape)
    assert weak.weak_type
    with pytest.raises(AssertionError, match="traced"):
        step(fresh.replace(local=fresh.local.replace(discounted_return=weak)))


def test_learning_rate_and_gamma_may_be_traced(key, make_env, make_agent, quick_jit):
    """A sweep: the algorithm is built inside `vmap`."""
    env = make_env()
    agent = make_agent(env)

    def run(learning_rate, gamma):
        algorithm = rows.algorithm_of(
            "ppo", LEARNING, learning_rate=learning_rate, gamma=gamma, normalize_rewards=True
        )
        module = RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=1000.0)
        ts, metrics = fit(module, key, num_outer_iterations=1)
        return ts.learner.params, metrics["train"]["learning_rate"]

    params, rates = quick_jit(jax.vmap(run))(
        jnp.array([0.01, 0.001, 0.01]), jnp.array([0.9, 0.9, 0.5])
    )
    np.testing.assert_allclose(rates[:, 0], [0.01, 0.001, 0.01], rtol=1e-6)
    leaf = np.asarray(jax.tree.leaves(params)[-1])
    assert not np.allclose(leaf[0], leaf[1]) and not np.allclose(leaf[0], leaf[2])
