"""Optimisers: rules by hand or beside optax's own, momentum, weight decay, clipping, refusals."""

import dataclasses
import math
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import contrib

from rlkit.algorithms.configs import OffPolicyConfig
from rlkit.errors import ConfigError
from rlkit.optimizers import Elementwise, OptimizerConfig, create_optimizer
from rlkit.optimizers.config import OptimizerName
from rlkit.optimizers.optimizer import RULES

pytestmark = pytest.mark.fast
PARAMS = {"a": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)}
GRADS = {"a": jnp.array([3.0, 0.0]), "b": jnp.array(4.0)}  # global norm 5
MATRIX = {"kernel": jnp.array([[1.0, -2.0], [0.5, 3.0]]), "bias": jnp.array([1.0, -1.0])}
SLOPES = [
    {"kernel": jnp.array([[0.3, -0.1], [0.2, 0.4]]), "bias": jnp.array([0.5, 2.0])},
    {"kernel": jnp.array([[-0.2, 0.7], [0.1, 0.1]]), "bias": jnp.array([-1.0, 0.1])},
    {"kernel": jnp.array([[0.6, 0.2], [-0.5, 0.3]]), "bias": jnp.array([0.2, 0.3])},
]


def create(optimizer="adam", learning_rate=0.1, **settings):
    return create_optimizer(
        OptimizerConfig(optimizer=optimizer, learning_rate=learning_rate, **settings)
    )


def change(optimizer, grads=None):
    updates, _ = optimizer.update(
        grads or GRADS, optimizer.init(PARAMS), PARAMS, progress=jnp.float32(0.0)
    )
    return updates


def after(optimizer, slopes=SLOPES):
    """The parameters after a few updates."""
    update = optax.with_extra_args_support(optimizer).update
    params, state = MATRIX, optimizer.init(MATRIX)
    for slope in slopes:
        updates, state = update(slope, state, params, progress=jnp.float32(0.0))
        params = optax.apply_updates(params, updates)
    return params


def test_clipping_is_by_the_global_norm_not_by_element():
    updates = change(create("sgd", 1.0, max_grad_norm=2.5))
    np.testing.assert_allclose(updates["a"], [-1.5, 0.0], rtol=1e-6)
    np.testing.assert_allclose(updates["b"], -2.0, rtol=1e-6)
    updates = change(create("sgd", 1.0, max_grad_norm=6.0))
    np.testing.assert_allclose(updates["b"], -4.0, rtol=1e-6)


def test_clipping_by_value_comes_first():
    updates = change(create("sgd", 1.0, max_grad_value=3.5))
    np.testing.assert_allclose(updates["a"], [-3.0, 0.0])
    np.testing.assert_allclose(updates["b"], -3.5)
    updates = change(create("sgd", 1.0, max_grad_value=3.0, max_grad_norm=1.0))
    np.testing.assert_allclose(updates["a"], [-math.sqrt(0.5), 0.0], rtol=1e-6)
    np.testing.assert_allclose(updates["b"], -math.sqrt(0.5), rtol=1e-6)


@pytest.mark.parametrize("epsilon", [1e-5, 1.0])
def test_adam_by_hand(epsilon):
    """First step: m̂ = g and v̂ = g², so the change is -lr · g / (|g| + ε)."""
    updates = change(create("adam", optimizer_epsilon=epsilon))
    np.testing.assert_allclose(updates["b"], -0.1 * 4.0 / (4.0 + epsilon), rtol=2e-5)
    np.testing.assert_allclose(updates["a"], [-0.1 * 3.0 / (3.0 + epsilon), 0.0], rtol=2e-5)


def test_radam_by_hand():
    """Its first steps are plain momentum, for the variance of v is not known yet; from the sixth on
    it is Adam, rectified.
    """
    optimizer = create("radam")
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
    # 0.999**t is coarse in float32.
    np.testing.assert_allclose(sizes, 0.1 * np.array(rectified), rtol=0.02)
    assert rectified[4] == 4.0 > rectified[5]


def test_rmsprop_by_hand():
    """First step: v = 0.01 g², ε outside the root: -lr · g / (0.1 |g| + ε)."""
    updates = change(create("rmsprop", optimizer_epsilon=0.5))
    np.testing.assert_allclose(updates["b"], -0.1 * 4.0 / (0.4 + 0.5), rtol=1e-5)


def test_adagrad_by_hand():
    """Each number is divided by the root of the sum of its squares so far."""
    found = after(create("adagrad"))
    slopes = np.array([0.5, -1.0, 0.2])
    wanted = 1.0 - 0.1 * np.sum(slopes / np.sqrt(np.cumsum(slopes**2)))
    np.testing.assert_allclose(found["bias"][0], wanted, rtol=1e-5)
    tiny = change(create("adagrad", optimizer_epsilon=1e-3), {**GRADS, "b": jnp.array(1e-3)})
    np.testing.assert_allclose(tiny["b"], -0.1 / math.sqrt(2.0), rtol=1e-5)  # ε as large as g


def test_lion_by_hand():
    """Signs of 0.9 m + 0.1 g; then m becomes 0.99 m + 0.01 g."""
    found = after(create("lion"), SLOPES[:2])
    second = np.sign(0.9 * 0.01 * np.array([0.5, 2.0]) + 0.1 * np.array([-1.0, 0.1]))
    np.testing.assert_allclose(found["bias"], np.array([1.0, -1.0]) - 0.1 * (1 + second), rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"optimizer": "sgd", "momentum": 0.9}, optax.sgd(0.1, 0.9)),
        (
            {"optimizer": "sgd", "momentum": 0.9, "nesterov": True},
            optax.sgd(0.1, 0.9, nesterov=True),
        ),
        (
            {"optimizer": "rmsprop", "momentum": 0.5, "optimizer_epsilon": 1e-3},
            optax.rmsprop(1.0, 0.99, 1e-3, eps_in_sqrt=False, momentum=0.5),
        ),
        ({"optimizer": "adam", "optimizer_betas": (0.5, 0.9)}, optax.adam(0.1, 0.5, 0.9)),
        ({"optimizer": "radam", "optimizer_betas": (0.5, 0.9)}, optax.radam(0.1, 0.5, 0.9)),
        (
            {"optimizer": "lion", "optimizer_betas": (0.5, 0.9)},
            optax.lion(0.1, 0.5, 0.9, weight_decay=0),
        ),
        (
            {"optimizer": "adamw"},
            optax.adamw(0.1, weight_decay=0.01, mask={"kernel": True, "bias": False}),
        ),
        (
            {"optimizer": "lion", "weight_decay": 0.3},
            optax.lion(0.1, weight_decay=0.3, mask={"kernel": True, "bias": False}),
        ),
        ({"optimizer": "muon"}, contrib.muon(0.1, consistent_rms=0.2)),
        (
            {"optimizer": "muon", "momentum": 0.8, "nesterov": False, "weight_decay": 0.2},
            contrib.muon(0.1, beta=0.8, nesterov=False, weight_decay=0.2, consistent_rms=0.2),
        ),
    ],
    ids=lambda x: "-".join(f"{v}" for v in x.values()) if isinstance(x, dict) else "",
)
def test_it_is_the_one_of_optax(settings, wanted):
    rate = 1.0 if settings["optimizer"] == "rmsprop" else 0.1  # there it is inside the momentum
    found, expected = after(create(learning_rate=rate, **settings)), after(wanted)
    for name in MATRIX:
        np.testing.assert_allclose(found[name], expected[name], rtol=2e-5, atol=1e-6)
        assert not np.allclose(found[name], MATRIX[name])


@pytest.mark.parametrize("optimizer", get_args(OptimizerName))
def test_weight_decay_is_apart_from_the_gradient_and_spares_biases(optimizer):
    still = jax.tree.map(jnp.zeros_like, MATRIX)
    found = after(create(optimizer, weight_decay=0.2, max_grad_norm=1e-3), [still])
    np.testing.assert_allclose(found["kernel"], (1 - 0.1 * 0.2) * MATRIX["kernel"], rtol=1e-6)
    np.testing.assert_array_equal(found["bias"], MATRIX["bias"])


def test_only_adamw_decays_by_itself():
    still = jax.tree.map(jnp.zeros_like, MATRIX)
    decays = {
        name: not np.array_equal(after(create(name), [still])["kernel"], MATRIX["kernel"])
        for name in get_args(OptimizerName)
    }
    assert decays == {name: name == "adamw" for name in decays}


def test_those_that_treat_all_numbers_alike_are_elementwise():
    """Small parameters then travel as one vector."""
    alike = {name: isinstance(create(name), Elementwise) for name in get_args(OptimizerName)}
    assert alike == {name: name not in ("adamw", "muon") for name in alike}
    assert not isinstance(create("adam", weight_decay=0.1), Elementwise)
    assert isinstance(create("adamw", weight_decay=0.0), Elementwise)


def test_the_config_knows_every_rule():
    assert get_args(OptimizerName) == tuple(RULES)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "adm"}, "OptimizerConfig.optimizer: input should be 'adam', 'adamw'"),
        ({"momentum": 0.9}, "momentum has no effect with optimizer=adam; .* sgd or rmsprop or"),
        ({"optimizer": "rmsprop", "nesterov": True}, "nesterov has no effect with optimizer=rms"),
        ({"optimizer": "sgd", "optimizer_betas": (0.9, 0.9)}, "optimizer_betas has no effect"),
        ({"optimizer": "sgd", "nesterov": True}, "needs momentum, .*; set momentum=0.9"),
        ({"optimizer": "sgd", "momentum": 1.0}, "momentum: input should be less than 1, got 1.0"),
        ({"max_grad_value": 0.0}, "max_grad_value: input should be greater than 0"),
        ({"learning_rate": 10, "weight_decay": 5}, "learning_rate=10 times weight_decay=5 exceeds"),
        ({"optimizer": "sgd", "optimizer_epsilon": 1}, "optimizer_epsilon=1 has no effect with"),
        ({"learning_rate_floor": 1}, "learning_rate_floor=1 has no effect with .*=constant"),
        ({"weight_decay": -1.0}, "weight_decay: input should be greater than or equal to 0"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        create_optimizer(OptimizerConfig(**settings))


def test_what_is_no_description_is_refused():
    @dataclasses.dataclass(frozen=True)
    class Mine:
        learning_rate: float = 0.1

    with pytest.raises(ConfigError, match="Mine does not describe an optimiser; derive the config"):
        create_optimizer(Mine())
    assert isinstance(create_optimizer(OffPolicyConfig()), Elementwise)


def test_traced_settings():
    def moved(rate, decay):
        optimizer = create("adamw", rate, weight_decay=decay)
        return after(optimizer, SLOPES[:1])["kernel"][0, 0]

    found = jax.vmap(moved)(jnp.array([0.1, 0.2]), jnp.array([0.0, 0.5]))
    np.testing.assert_allclose(found, [1.0 - 0.1, 1.0 - 0.2 - 0.2 * 0.5], rtol=1e-5)
