"""PPO's and A2C's losses on three samples, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlkit.algorithms.a2c import a2c_loss
from rlkit.algorithms.configs import A2CConfig, PPOConfig
from rlkit.algorithms.on_policy_batches import OnPolicyBatch
from rlkit.algorithms.ppo import ppo_loss
from rlkit.ops.losses import at_index

pytestmark = pytest.mark.fast
RATIO = np.array([1.5, 0.9, 0.5])
BATCH = OnPolicyBatch(
    obs=jnp.zeros((3, 1)),
    action=jnp.zeros(3, jnp.int32),
    log_prob=jnp.array([-1.0, -2.0, -3.0]),
    value=jnp.array([1.0, 1.0, 1.0]),
    advantage=jnp.array([1.0, 2.0, -1.0]),
    target=jnp.array([3.0, 3.0, 0.0]),
)
PARAMS = {
    "log_prob": BATCH.log_prob + jnp.log(jnp.asarray(RATIO, jnp.float32)),
    "value": jnp.array([1.0, 2.0, 0.0]),
    "entropy": jnp.array([0.1, 0.2, 0.3]),
}


@pytest.mark.parametrize(
    ("clip_value_loss", "value_loss"),
    [
        # ½ [2², 1², 0²]; clipped predictions 1, 1.2, 0.8 have ½ [2², 1.8², 0.8²], of which the
        # larger counts
        (False, (2.0 + 0.5 + 0.0) / 3),
        (True, (2.0 + 1.62 + 0.32) / 3),
    ],
)
def test_ppo_loss(stub_agent, clip_value_loss, value_loss):
    config = PPOConfig(
        clip_epsilon=0.2, value_coef=0.5, entropy_coef=0.01, clip_value_loss=clip_value_loss
    )
    loss, metrics = ppo_loss(config)(stub_agent, PARAMS, (), BATCH, None)
    policy_loss = (-1.2 - 1.8 + 0.8) / 3  # min(1.5, 1.2)·1, 0.9·2, min(-0.5, -0.8)
    wanted = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": 0.2,
        "approx_kl": (RATIO - 1 - np.log(RATIO)).mean(),
        "clip_fraction": 2 / 3,
    }
    assert set(metrics) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-5, err_msg=name)
    np.testing.assert_allclose(loss, policy_loss + 0.5 * value_loss - 0.01 * 0.2, rtol=1e-5)


def test_a2c_loss(stub_agent):
    config = A2CConfig(value_coef=0.5, entropy_coef=0.1)
    loss, metrics = a2c_loss(config)(stub_agent, PARAMS, (), BATCH, None)
    log_prob = np.array([-1.0, -2.0, -3.0]) + np.log(RATIO)
    policy_loss = -(log_prob * [1.0, 2.0, -1.0]).mean()
    np.testing.assert_allclose(metrics["policy_loss"], policy_loss, rtol=1e-5)
    # [2², 1², 0²], not halved: as in SB3
    np.testing.assert_allclose(metrics["value_loss"], 5.0 / 3, rtol=1e-5)
    np.testing.assert_allclose(loss, policy_loss + 0.5 * 5.0 / 3 - 0.1 * 0.2, rtol=1e-5)


def test_at_index_picks_and_its_gradient_goes_to_what_was_picked():
    values = jnp.array(  # [2, M, A]
        [[[1.0, 2.0, jnp.inf], [3.0, 4.0, 5.0]], [[6.0, 7.0, 8.0], [9.0, 10.0, jnp.nan]]]
    )
    index = jnp.array([1, 0])
    np.testing.assert_array_equal(at_index(values, index), [[2.0, 3.0], [7.0, 9.0]])
    gradient = jax.grad(lambda v: at_index(v, index).sum())(values)
    np.testing.assert_array_equal(gradient, [[[0, 1, 0], [1, 0, 0]]] * 2)
