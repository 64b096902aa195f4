"""Losses and batch processing of one's own, for every algorithm of the registry."""

import functools

import algorithm_rows as rows
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from tiers import by_default

from rlkit.algorithms.discrete_sac import discrete_sac
from rlkit.algorithms.dqn import dqn
from rlkit.algorithms.ppo import ppo
from rlkit.algorithms.process_batch import process, takes_key
from rlkit.algorithms.registry import algorithm_entry
from rlkit.algorithms.sac import sac
from rlkit.algorithms.td3 import td3
from rlkit.errors import ConfigError
from rlkit.lazy import resolve

SEVERAL = {"sac": sac, "td3": td3, "discrete_sac": discrete_sac}


def factory(name):
    return resolve(algorithm_entry(name).factory)


def zero(agent, params, target_params, batch, key):
    return 0.0 * sum(x.sum() for x in jax.tree.leaves(params))


@pytest.mark.fast
@pytest.mark.parametrize("name", rows.NAMES)
def test_a_loss_of_ones_own_takes_the_place_of_the_algorithms(name):
    own = {"actor": zero} if name in SEVERAL else zero
    algorithm, usual = factory(name)(loss=own), factory(name)()
    assert algorithm.custom == ("loss",) and usual.custom == ()
    steps, before = algorithm.updater.steps, usual.updater.steps
    assert steps[-1].loss is zero and before[-1].loss is not zero
    assert [(step.group, step.every) for step in steps] == [(s.group, s.every) for s in before]
    if name in SEVERAL:
        assert steps[0].loss.__qualname__ == before[0].loss.__qualname__  # it keeps its critics'
        both = factory(name)(loss={"critic": zero, "actor": zero})
        assert [step.loss for step in both.updater.steps] == [zero, zero]


@pytest.mark.full
@pytest.mark.parametrize("name", rows.NAMES)
def test_a_key_for_batches_changes_no_other_draw(name, key, make_env, one_iteration):
    """Only what `process_batch` does with it: the noise that it adds here to the observations."""
    env = make_env(action_space=rows.law_space(name))
    agent = rows.agent_of(name, env)
    config = rows.config_of(name, rows.SMALL | {"prefill_steps": 64})
    drawn = []

    def noisy(batch, key, size):
        drawn.append(jax.random.normal(key, jax.tree.leaves(batch.obs)[0].shape))
        return batch.replace(obs=batch.obs + size * drawn[-1])

    def after(process_batch=None):
        algorithm = factory(name)(config, process_batch=process_batch)
        return one_iteration(algorithm, agent, env, key)[3].params

    plain, still, moved = (
        after(),
        after(lambda batch, key: noisy(batch, key, 0.0)),
        after(lambda batch, key: noisy(batch, key, 1.0)),
    )
    assert drawn
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), plain, still)
    differ = jax.tree.map(lambda a, b: not np.allclose(a, b, rtol=1e-4), plain, moved)
    assert any(jax.tree.leaves(differ))


@pytest.mark.parametrize("name", by_default(["ppo"], rows.NAMES))
def test_bfloat16_learns_what_float32_learns(name, key, make_env, quick_jit):
    """From the same rollout, to its precision: gradients differ by a few per cent of their norm."""
    env = make_env(action_space=rows.law_space(name))
    exact, rounded = (
        rows.agent_of(name, env, precision=precision) for precision in ("float32", "bfloat16")
    )
    descent = {"prefill_steps": 64, "optimizer": "sgd", "learning_rate": 1.0}
    if name == "dqn":  # which of two close actions is the better one may depend on the precision
        descent["double"] = False
    algorithm = factory(name)(rows.config_of(name, rows.SMALL | descent))

    @quick_jit
    def changes(key):
        start_key, update_key = jax.random.split(key)
        state = algorithm.init(exact, env, start_key, total_steps=1000.0)
        state, rollout, _ = algorithm.collect(exact, env, state)

        def change(agent):
            memory = state.local.memory
            after, _, _ = algorithm.update(agent, state.learner, memory, rollout, update_key)
            change = jax.tree.map(jnp.subtract, after.params, state.learner.params)
            assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(change))
            return ravel_pytree(change)[0]

        return change(exact), change(rounded)

    wanted, found = map(np.asarray, changes(key))
    assert 0.0 < np.linalg.norm(found - wanted) < 0.1 * np.linalg.norm(wanted)


@pytest.mark.fast
@pytest.mark.parametrize("name", SEVERAL)
def test_losses_that_are_not_named_are_refused(name):
    make = SEVERAL[name]
    with pytest.raises(ConfigError, match=r'several losses, .*; pass loss=\{"critic": f\}; there'):
        make(loss=zero)
    with pytest.raises(ConfigError, match="there is no loss 'actr'; did you mean 'actor'"):
        make(loss={"actr": zero})
    with pytest.raises(ConfigError, match="the loss 'actor' must be a function, got 3"):
        make(loss={"actor": 3})


@pytest.mark.fast
@pytest.mark.parametrize("make", [ppo, dqn])
def test_a_loss_that_is_no_function_is_refused(make):
    with pytest.raises(ConfigError, match=r"loss must be a function, got .*; pass loss=f"):
        make(loss={"critic": zero})


@pytest.mark.fast
@pytest.mark.parametrize(
    ("function", "asks"),
    [
        (lambda batch: batch, False),
        (lambda batch, key: batch, True),
        (lambda batch, rng: batch, True),
        (lambda batch, key=None: batch, True),
        (lambda batch, scale=2.0: batch, False),
        (lambda *batch: batch, False),
        (lambda batch, *rest: batch, False),
        (lambda batch, **rest: batch, False),
        (lambda batch, *, key=None: batch, False),
        (functools.partial(lambda batch, key: batch, key=3), False),
        (jax.jit(lambda batch, key: batch), True),
    ],
)
def test_which_functions_ask_for_a_key(function, asks):
    assert takes_key(function) == asks


@pytest.mark.fast
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (3, "process_batch must be a function, got 3; pass a function of the batch, or"),
        (lambda: None, "process_batch cannot be called .*; pass a function of the batch, or"),
        (lambda a, b, c: None, "process_batch cannot be called"),
        (lambda batch, *, scale: None, "process_batch cannot be called .*scale"),
    ],
)
def test_what_cannot_process_a_batch_is_refused(function, message):
    with pytest.raises(ConfigError, match=message):
        ppo(process_batch=function)


def test_keys_of_batches_differ_between_updates_and_devices(key):
    def draw(batch, key):
        return jax.random.uniform(key, batch.shape)

    def of(key):
        return process(draw, jnp.zeros(2), key, None)

    keys = jax.random.split(key, 3)
    alone = jax.jit(jax.vmap(of))(keys)
    assert len(np.unique(alone)) == 6
    spread = jax.pmap(lambda key: process(draw, jnp.zeros(2), key, "d"), axis_name="d")
    two = spread(jnp.broadcast_to(keys[:1], (2,)))
    assert len(np.unique(two)) == 4


@pytest.mark.fast
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"loss": lambda batch, key: 0.0},
            r"loss cannot be called .*write f\(agent, params",
        ),
        ({"optimizer": "adam"}, r"must be a gradient transformation of Optax, got 'adam'.*config"),
        ({"optimizer": optax.adam}, r"got <function adam .*; pass optax.adam\(1e-3\)"),
        (
            {"process_gradients": 0.5},
            "process_gradients must be a function of",
        ),
        (
            {"process_gradients": lambda gradients, key: gradients},
            r"process_gradients cannot be called .*'key'.*write f\(gradients\) -> gradients",
        ),
    ],
)
def test_overrides_of_another_form_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        ppo(**settings)


@pytest.mark.fast
def test_losses_by_name_of_another_form_are_refused():
    with pytest.raises(ConfigError, match=r"the loss 'actor' cannot be called .*too many"):
        sac(loss={"actor": lambda batch: 0.0})


@pytest.mark.fast
def test_process_batch_returns_a_batch():
    with pytest.raises(ConfigError, match=r"must return the batch, got None; write return"):
        process(lambda batch: None, {"obs": 1}, jax.random.key(0), None)
