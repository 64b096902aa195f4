"""Optimisers: rules by hand, schedules of progress, global-norm clipping."""

import math
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlkit.algorithms import configs
from rlkit.errors import UnknownNameError
from rlkit.optimizers import RULES, current_learning_rate, make_optimizer, scale_by_progress

pytestmark = pytest.mark.fast
PARAMS = {"a": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)}
GRADS = {"a": jnp.array([3.0, 0.0]), "b": jnp.array(4.0)}  # global norm 5


def change(optimizer, grads=None, progress=0.0):
    updates, state = optimizer.update(
        grads or GRADS, optimizer.init(PARAMS), PARAMS, progress=jnp.float32(progress)
    )
    return updates, state


@pytest.mark.parametrize(
    ("schedule", "progress", "factor"),
    [
        ("constant", 0.7, 1.0),
        ("linear", 0.0, 1.0),
        ("linear", 0.25, 0.75),
        ("linear", 1.0, 0.0),
        ("cosine", 0.0, 1.0),
        ("cosine", 0.5, 0.5),
        ("cosine", 1.0, 0.0),
    ],
)
def test_schedules(schedule, progress, factor):
    optimizer = make_optimizer("sgd", learning_rate=0.1, schedule=schedule)
    updates, state = change(optimizer, progress=progress)
    np.testing.assert_allclose(updates["a"], [-0.3 * factor, 0.0], atol=1e-7)
    np.testing.assert_allclose(current_learning_rate(state), 0.1 * factor, atol=1e-7)


def test_clipping_is_by_the_global_norm_not_by_element():
    updates, _ = change(make_optimizer("sgd", learning_rate=1.0, max_grad_norm=2.5))
    np.testing.assert_allclose(updates["a"], [-1.5, 0.0], rtol=1e-6)
    np.testing.assert_allclose(updates["b"], -2.0, rtol=1e-6)
    updates, _ = change(make_optimizer("sgd", learning_rate=1.0, max_grad_norm=6.0))
    np.testing.assert_allclose(updates["b"], -4.0, rtol=1e-6)


@pytest.mark.parametrize("epsilon", [1e-5, 1.0])
def test_adam_by_hand(epsilon):
    """First step: m̂ = g and v̂ = g², so the change is -lr · g / (|g| + ε)."""
    updates, _ = change(make_optimizer("adam", learning_rate=0.1, epsilon=epsilon))
    np.testing.assert_allclose(updates["b"], -0.1 * 4.0 / (4.0 + epsilon), rtol=2e-5)
    np.testing.assert_allclose(updates["a"], [-0.1 * 3.0 / (3.0 + epsilon), 0.0], rtol=2e-5)


def test_adam_epsilon_is_that_of_the_baselines_by_default():
    """1e-5, ten million times what a gradient of 1e-12 needs to vanish; optax's own default is
    1e-8.
    """
    tiny = jax.tree.map(lambda x: jnp.full_like(x, 1e-5), GRADS)
    updates, _ = change(make_optimizer("adam", learning_rate=1.0), tiny)
    np.testing.assert_allclose(updates["b"], -0.5, rtol=1e-4)


def test_radam_by_hand():
    """Its first steps are plain momentum, for the variance of v is not known yet; from the sixth on
    it is Adam, rectified.
    """
    optimizer = make_optimizer("radam", learning_rate=0.1, epsilon=1e-8)
    state = optimizer.init(PARAMS)
    sizes = []
    for _ in range(8):
        updates, state = optimizer.update(GRADS, state, PARAMS, progress=jnp.float32(0.0))
        sizes.append(-float(updates["b"]))
    limit = 2 / (1 - 0.999) - 1  # the paper's ρ (Liu et al. 2020, algorithm 2)
    rho = [limit - 2 * t * 0.999**t / (1 - 0.999**t) for t in range(1, 9)]
    rectified = [
        math.sqrt((r - 4) * (r - 2) * limit / ((limit - 4) * (limit - 2) * r)) if r > 5 else 4.0
        for r in rho
    ]
    np.testing.assert_allclose(
        sizes, 0.1 * np.array(rectified), rtol=0.02
    )  # 0.999**t is coarse in float32
    assert rectified[4] == 4.0 > rectified[5]


def test_the_config_knows_every_optimizer():
    assert get_args(configs.Optimizer) == tuple(RULES)


def test_rmsprop_by_hand():
    """First step: v = 0.01 g², ε outside the root: -lr · g / (0.1 |g| + ε)."""
    updates, _ = change(make_optimizer("rmsprop", learning_rate=0.1, epsilon=0.5))
    np.testing.assert_allclose(updates["b"], -0.1 * 4.0 / (0.4 + 0.5), rtol=1e-5)


def test_unknown_names():
    with pytest.raises(UnknownNameError, match="did you mean 'adam'"):
        make_optimizer("adm", learning_rate=0.1)
    with pytest.raises(UnknownNameError, match="did you mean 'linear'"):
        scale_by_progress(0.1, "liner")


@pytest.mark.parametrize(
    ("optimizer", "wanted"),
    [
        (optax.inject_hyperparams(optax.adam)(learning_rate=0.25), 0.25),
        (make_optimizer("adam", learning_rate=0.5, max_grad_norm=1.0), 0.5),
        (optax.adam(0.1), None),
    ],
)
def test_current_learning_rate(optimizer, wanted):
    found = current_learning_rate(optimizer.init(PARAMS))
    assert wanted == (None if found is None else float(found))


def test_a_traced_learning_rate():
    found = jax.vmap(lambda rate: change(make_optimizer("sgd", learning_rate=rate))[0]["b"])(
        jnp.array([1.0, 0.5])
    )
    np.testing.assert_allclose(found, [-4.0, -2.0])
