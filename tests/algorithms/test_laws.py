"""What must hold for every algorithm: one row in ALGORITHMS brings the whole battery."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlkit.agents.registry import agent_entry
from rlkit.agents.registry import make_agent as make_agent_by_name
from rlkit.algorithms.a2c import a2c
from rlkit.algorithms.configs import A2CConfig, DiscreteSACConfig, DQNConfig, PPOConfig, PQNConfig, SACConfig, TD3Config
from rlkit.algorithms.discrete_sac import discrete_sac
from rlkit.algorithms.dqn import dqn
from rlkit.algorithms.ppo import ppo
from rlkit.algorithms.pqn import pqn
from rlkit.algorithms.registry import algorithm_entry
from rlkit.algorithms.ring import Ring
from rlkit.algorithms.sac import sac
from rlkit.algorithms.td3 import td3
from rlkit.envs import probes, space_probes
from rlkit.envs.vectorized import vectorize
from rlkit.training.module import RLModule, fit, iteration, strong_types

ALGORITHMS = {
    "ppo": lambda **fields: ppo(PPOConfig(**{"num_steps": 8, "num_minibatches": 2, "learning_rate": 0.01} | fields)),
    "a2c": lambda **fields: a2c(A2CConfig(**{"num_steps": 8, "learning_rate": 0.01, "optimizer": "adam"} | fields)),
    "pqn": lambda **fields: pqn(PQNConfig(**{"num_steps": 8, "num_minibatches": 2, "learning_rate": 0.01} | fields)),
    "sac": lambda **fields: sac(SACConfig(**SMALL_SAC | fields)),
    "td3": lambda **fields: td3(TD3Config(**SMALL_SAC | fields)),
    "discrete_sac": lambda **fields: discrete_sac(DiscreteSACConfig(**SMALL_SAC | fields)),
    "dqn": lambda **fields: dqn(
        DQNConfig(
            **{
                "num_steps": 8,
                "prefill_steps": 64,
                "capacity": 512,
                "batch_size": 64,
                "updates_per_step": 0.25,
                "n_step": 2,
                "target_period": 128,
                "learning_rate": 0.01,
            }
            | fields
        )
    ),
}
NORMALIZED = {"normalize_observations": True, "normalize_rewards": True}
SMALL_SAC = {
    "num_steps": 8,
    "prefill_steps": 64,
    "capacity": 512,
    "batch_size": 64,
    "updates_per_step": 0.25,
    "learning_rate": 0.01,
}
SPACES = {
    "sac": spaces.Box(np.float32([-1, -2]), np.float32([1, 4])),
    "td3": spaces.Box(np.float32([-1, -2]), np.float32([1, 4])),
    "ppo": spaces.Discrete(2),
    "pqn": spaces.Discrete(3, start=-1),
    "discrete_sac": spaces.Discrete(3, start=-1),
    "a2c": spaces.Box(-1.0, 1.0, (2,)),
    "dqn": spaces.Discrete(3, start=-1),
}


def agent_of(name, env, hidden_sizes=(8,)):
    """The agent that the algorithm learns by default, small."""
    agent = algorithm_entry(name).agent
    config = agent_entry(agent).config(hidden_sizes=hidden_sizes)
    return make_agent_by_name(agent, env.observation_space, env.action_space, config)


@pytest.fixture(scope="module", params=ALGORITHMS)
def module(request, make_env):
    name = request.param
    env = make_env(action_space=SPACES[name])
    fields = {field.name for field in dataclasses.fields(algorithm_entry(name).config)}
    algorithm = ALGORITHMS[name](**{field: value for field, value in NORMALIZED.items() if field in fields})
    return RLModule(
        env=env, agent=agent_of(name, env), algorithm=algorithm, total_steps=1000.0, eval_env=env, evaluation_episodes=6
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
    assert ts.learner.updates.to_int() == 3 * fresh_updates(module)
    weak = jnp.broadcast_to(jnp.asarray(0.0), fresh.local.discounted_return.shape)
    assert weak.weak_type
    with pytest.raises(AssertionError, match="traced"):
        step(fresh.replace(local=fresh.local.replace(discounted_return=weak)))


def fresh_updates(module) -> int:
    return {"ppo": 8, "a2c": 1, "pqn": 8, "dqn": 8, "sac": 8, "discrete_sac": 8, "td3": 8}[module.algorithm.spec[0]]


def test_learning_rate_and_gamma_may_be_traced(key, make_env, make_agent, quick_jit):
    """A sweep: the algorithm is built inside `vmap`."""
    env = make_env()
    agent = make_agent(env)

    def run(learning_rate, gamma):
        algorithm = ALGORITHMS["ppo"](learning_rate=learning_rate, gamma=gamma, normalize_rewards=True)
        module = RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=1000.0)
        ts, metrics = fit(module, key, num_iterations=1)
        return ts.learner.params, metrics["train"]["learning_rate"]

    params, rates = quick_jit(jax.vmap(run))(jnp.array([0.01, 0.001, 0.01]), jnp.array([0.9, 0.9, 0.5]))
    np.testing.assert_allclose(rates[:, 0], [0.01, 0.001, 0.01], rtol=1e-6)
    leaf = np.asarray(jax.tree.leaves(params)[-1])
    assert not np.allclose(leaf[0], leaf[1]) and not np.allclose(leaf[0], leaf[2])


# Probes: what must have been learned is known, and which one fails says what is broken.

PROBES = {
    "value_by_observation": (probes.ValueByObservation(), 0.9),
    "discounting": (probes.Discounting(), 0.5),
    "time_limit": (probes.TimeLimitProbe(), 0.8),
    "observation_dependent_action": (probes.ObservationDependentAction(), 0.9),
    "multi_discrete_action": (space_probes.MultiDiscreteAction(), 0.9),
    "dict_observation": (space_probes.DictObservation(), 0.9),
}
FIELDS = {
    "ppo": {"learning_rate_schedule": "constant", "clip_value_loss": False, "entropy_coef": 0.0},
    "a2c": {},
    "pqn": {},
    "dqn": {},
}
ITERATIONS = {"ppo": 300, "a2c": 400, "pqn": 300, "dqn": 150}
HIDDEN = {"dict_observation": (32, 32)}  # an exclusive or: smaller and faster learners stop at three of four
FOR_A2C = ("time_limit", "observation_dependent_action")
FOR_PQN = ("value_by_observation", "discounting", "time_limit", "observation_dependent_action")
FOR_DQN = ("value_by_observation", "discounting", "time_limit", "observation_dependent_action", "dict_observation")
CASES = [*(("ppo", probe) for probe in PROBES), *(("a2c", probe) for probe in FOR_A2C), *(("dqn", probe) for probe in FOR_DQN)]
CASES += [("pqn", probe) for probe in FOR_PQN]


@pytest.mark.parametrize(("name", "probe"), CASES)
def test_probe(key, quick_jit, name, probe):
    single, gamma = PROBES[probe]
    env = vectorize(single, 8)
    agent = agent_of(name, env, HIDDEN.get(probe, (8,)))
    algorithm = ALGORITHMS[name](gamma=gamma, **FIELDS[name], **({"learning_rate": 0.003} if probe in HIDDEN else {}))
    module = RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=1e5)
    ts, _ = quick_jit(lambda k: fit(module, k, num_iterations=ITERATIONS[name]))(key)
    obs = jax.tree.map(jnp.asarray, single.observations())
    params = ts.learner.params
    if single.best_action() is not None:
        best, _ = agent.exploit(params, obs, (), key)
        np.testing.assert_array_equal(best, single.best_action())
    np.testing.assert_allclose(agent.value(params, obs), single.expected_value(gamma), atol=0.1)


def test_probe_of_continuous_actions(key, make_agent, quick_jit):
    single = space_probes.ContinuousAction(target=0.4)
    env = vectorize(single, 8)
    agent = make_agent(env, initial_std=0.5)
    algorithm = ALGORITHMS["ppo"](**FIELDS["ppo"])
    module = RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=1e5)
    ts, _ = quick_jit(lambda k: fit(module, k, num_iterations=200))(key)
    obs = jnp.asarray(single.observations())
    best, _ = agent.exploit(ts.learner.params, obs, (), key)
    np.testing.assert_allclose(best, single.best_action(), atol=0.1)
    std = float(jnp.exp(ts.learner.params["head"]["log_std"][0]))
    assert std < 0.4
    np.testing.assert_allclose(agent.value(ts.learner.params, obs), -(std**2), atol=0.1)


def test_probe_of_soft_actions(key, quick_jit):
    """SAC finds the best action of a one-step task between asymmetric bounds, at a temperature that falls."""
    single = space_probes.ContinuousAction(target=0.4)
    env = vectorize(single, 8)
    module = RLModule(env=env, agent=agent_of("sac", env), algorithm=ALGORITHMS["sac"](), total_steps=1e5)
    ts, metrics = quick_jit(lambda k: fit(module, k, num_iterations=200))(key)
    best, _ = module.agent.exploit(ts.learner.params, jnp.asarray(single.observations()), (), key)
    np.testing.assert_allclose(best, single.best_action(), atol=0.15)
    temperature = metrics["train"]["temperature"]
    assert temperature[-1] < temperature[0] / 2 and np.isfinite(temperature).all()


def test_probe_of_deterministic_actions(key, quick_jit):
    """TD3 finds the best action of a one-step task, and its critics what it and others are worth."""
    single = space_probes.ContinuousAction(target=0.4)
    env = vectorize(single, 8)
    module = RLModule(env=env, agent=agent_of("td3", env), algorithm=ALGORITHMS["td3"](), total_steps=1e5)
    ts, _ = quick_jit(lambda k: fit(module, k, num_iterations=200))(key)
    obs, params = jnp.asarray(single.observations()), ts.learner.params
    best, _ = module.agent.exploit(params, obs, (), key)
    np.testing.assert_allclose(best, single.best_action(), atol=0.1)
    for action in (0.2, 0.4, 0.6):  # where exploration goes
        worth = module.agent.q_values(params["critic"], obs, jnp.full((1, 1), action))
        np.testing.assert_allclose(worth, -((action - 0.4) ** 2), atol=0.1)
