"""Schedules by hand: shapes, warm-up, floor; the end of a chain; the rate in the state."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlkit.errors import ConfigError, UnknownNameError
from rlkit.optimizers import (
    OptimizerConfig,
    create_optimizer,
    create_schedule,
    current_learning_rate,
    scale_by_progress,
)

pytestmark = pytest.mark.fast


def rates(name, progress, **settings):
    return np.asarray(create_schedule(name, 2.0, **settings)(jnp.float32(progress)))


@pytest.mark.parametrize(
    ("name", "settings", "progress", "wanted"),
    [
        ("constant", {}, [0.0, 0.7, 1.0], [2.0, 2.0, 2.0]),
        ("linear", {}, [0.0, 0.25, 1.0], [2.0, 1.5, 0.0]),
        ("linear", {"floor": 0.5}, [0.0, 0.5, 1.0], [2.0, 1.5, 1.0]),
        ("cosine", {}, [0.0, 0.5, 1.0], [2.0, 1.0, 0.0]),
        ("cosine", {"floor": 0.1}, [0.0, 0.5, 1.0], [2.0, 1.1, 0.2]),
        ("cosine", {"cycles": 2}, [0.0, 0.25, 0.5, 0.75, 1.0], [2.0, 1.0, 2.0, 1.0, 0.0]),
        ("exponential", {}, [0.0, 0.5, 1.0], [2.0, 2 * 0.1**0.5, 0.2]),
        ("exponential", {"decay": 0.25, "floor": 0.4}, [0.5, 1.0], [1.0, 0.8]),
        ("step", {}, [0.2, 0.25, 0.49, 0.5, 0.8], [2.0, 0.2, 0.2, 0.02, 0.002]),
        ("step", {"decay": 0.5, "interval": 0.5}, [0.4, 0.5, 1.0], [2.0, 1.0, 1.0]),
        ("step", {"decay": 0.5, "interval": 0.1}, [0.29, 0.3, 0.7, 1.0], [0.5, 0.25, 2**-6, 2**-8]),
        ("step", {"decay": 0.5, "interval": 0.4}, [0.39, 0.4, 0.8, 1.0], [2.0, 1.0, 0.5, 0.5]),
        ("multistep", {}, [0.4, 0.5, 0.74, 0.75], [2.0, 0.2, 0.2, 0.02]),
        ("multistep", {"milestones": [0.1], "floor": 0.3}, [0.0, 0.1], [2.0, 0.6]),
    ],
)
def test_shapes(name, settings, progress, wanted):
    np.testing.assert_allclose(rates(name, progress, **settings), wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "after"),  # the rate at progress 0.2, 0.6 and 1, warm-up over
    [
        ("constant", [2.0, 2.0, 2.0]),
        ("linear", [2.0, 1.0, 0.0]),
        ("cosine", [2.0, 1.0, 0.0]),
        ("exponential", [2.0, 2 * 0.1**0.5, 0.2]),
        ("step", [2.0, 0.02, 0.002]),  # counted from the start of the run
        ("multistep", [2.0, 0.2, 0.02]),
    ],
)
def test_each_rises_from_zero_during_the_warm_up(name, after):
    found = rates(name, [0.0, 0.05, 0.1, 0.2, 0.6, 1.0], warmup=0.2)
    np.testing.assert_allclose(found, [0.0, 0.5, 1.0, *after], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["linear", "cosine", "exponential", "step"])
def test_none_falls_below_its_floor(name):
    found = rates(name, np.linspace(0.0, 1.0, 101), floor=0.25)
    assert found.min() >= 0.5 and found[0] == 2.0


def test_a_rate_under_vmap():
    found = jax.vmap(lambda rate: create_schedule("linear", rate)(jnp.float32(0.5)))(
        jnp.float32([1.0, 4.0])
    )
    np.testing.assert_allclose(found, [0.5, 2.0])


def test_a_traced_rate_out_of_range_is_nan():
    found = jax.jit(jax.vmap(lambda rate: create_schedule("constant", rate)(jnp.float32(0.5))))(
        np.float32([-1.0, 0.0, 1e-3, 100.0, 101.0])
    )
    np.testing.assert_array_equal(found, np.float32([np.nan, np.nan, 1e-3, 100.0, np.nan]))


def test_a_warm_up_and_a_floor_under_vmap():
    def rate(warmup, floor):
        return create_schedule("linear", 2.0, warmup=warmup, floor=floor)(jnp.float32(0.1))

    found = jax.vmap(rate)(jnp.float32([0.0, 0.2]), jnp.float32([0.0, 0.5]))
    np.testing.assert_allclose(found, [1.8, 1.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "liner"}, "unknown schedule 'liner'; did you mean 'linear'"),
        ({"name": "linear", "cycles": 2}, "learning_rate_cycles has no effect with .*=linear;"),
        ({"name": "cosine", "milestones": [0.5]}, "milestones has no effect .* to multistep"),
        ({"name": "multistep", "milestones": [0.5, 0.2]}, r"must rise, .*; use \(0.2, 0.5\)"),
        ({"name": "linear", "warmup": 1.0}, "learning_rate_warmup: input should be less than 1"),
        ({"name": "linear", "floor": 2.0}, "learning_rate_floor: input should be less than"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(ConfigError, match=message) as error:
        create_schedule(learning_rate=0.1, **arguments)
    assert ("unknown" in message) == isinstance(error.value, UnknownNameError)


def test_a_schedule_ends_a_chain_of_ones_own():
    optimizer = optax.chain(optax.trace(0.5), scale_by_progress(create_schedule("linear", 0.1)))
    params = {"w": jnp.float32([1.0, -2.0])}
    state = optimizer.init(params)
    np.testing.assert_allclose(current_learning_rate(state), 0.1)
    for size in (1.0, 1.5):  # the momentum of two equal gradients
        change, state = optimizer.update(params, state, params, progress=jnp.float32(0.25))
        np.testing.assert_allclose(change["w"], [-0.075 * size, 0.15 * size], rtol=1e-6)
    np.testing.assert_allclose(current_learning_rate(state), 0.075)


@pytest.mark.parametrize(
    ("optimizer", "wanted"),
    [
        (optax.inject_hyperparams(optax.adam)(learning_rate=0.25), 0.25),
        (create_optimizer(OptimizerConfig(learning_rate=0.5, max_grad_norm=1.0)), 0.5),
        (create_optimizer(OptimizerConfig(optimizer="muon", learning_rate=0.5)), 0.5),
        (create_optimizer(OptimizerConfig(learning_rate=0.5, learning_rate_warmup=0.1)), 0.0),
        (optax.adam(0.1), None),
    ],
)
def test_current_learning_rate(optimizer, wanted):
    found = current_learning_rate(optimizer.init({"w": jnp.ones((2, 2))}))
    assert wanted == (None if found is None else float(found))


def test_an_interval_and_a_decay_under_vmap():
    def rate(interval, decay):
        return create_schedule("step", 2.0, interval=interval, decay=decay)(jnp.float32(0.5))

    found = jax.vmap(rate)(jnp.float32([0.5, 0.1]), jnp.float32([0.1, 0.5]))
    np.testing.assert_allclose(found, [0.2, 2.0 * 0.5**5], rtol=1e-5)
