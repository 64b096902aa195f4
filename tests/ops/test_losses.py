"""Loss terms by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlkit.ops import losses

pytestmark = pytest.mark.fast

approximate_kl = jax.jit(losses.approximate_kl)
clipped_squared_error = jax.jit(losses.clipped_squared_error)
clipped_surrogate = jax.jit(losses.clipped_surrogate)


@pytest.mark.parametrize(
    ("ratio", "advantage", "wanted"),
    [
        (1.0, 2.0, -2.0),
        (1.1, 2.0, -2.2),  # inside the clip
        (1.5, 2.0, -2.4),  # clipped at 1.2
        (0.5, 2.0, -1.0),  # below the clip a good action still pulls: min(0.5·2, 0.8·2)
        (1.5, -2.0, 3.0),  # above it a bad action still pushes
        (0.5, -2.0, 1.6),  # clipped at 0.8
    ],
)
def test_clipped_surrogate(ratio, advantage, wanted):
    found = clipped_surrogate(np.log([ratio]), np.array([advantage]), 0.2)
    np.testing.assert_allclose(found, [wanted], rtol=1e-6)


def test_clipped_samples_have_no_gradient():
    gradient = jax.grad(
        lambda x: clipped_surrogate(x, jnp.array([1.0, 1.0, -1.0, -1.0]), 0.2).sum()
    )
    at = np.log(np.array([1.5, 0.5, 1.5, 0.5], np.float32))
    np.testing.assert_allclose(jax.jit(gradient)(at), [0.0, -0.5, 1.5, 0.0], rtol=1e-6)


def test_outside_clip():
    ratios = np.log(np.array([1.0, 1.19, 1.21, 0.81, 0.79], np.float32))
    np.testing.assert_array_equal(jax.jit(losses.outside_clip)(ratios, 0.2), [0, 0, 1, 0, 1])


def test_squared_error():
    found = jax.jit(losses.squared_error)(np.array([3.0, 1.0]), np.array([1.0, 2.0]))
    np.testing.assert_array_equal(found, [2.0, 0.5])


@pytest.mark.parametrize(
    ("prediction", "old", "target", "wanted"),
    [
        (1.0, 1.0, 3.0, 2.0),
        (2.0, 1.0, 3.0, 1.62),  # kept at 1.2: ½·1.8² = 1.62 > ½·1² = 0.5
        (2.0, 1.0, 0.0, 2.0),  # kept at 1.2: 0.72 < 2
        (0.0, 1.0, 3.0, 4.5),
    ],
)
def test_clipped_squared_error_is_the_larger(prediction, old, target, wanted):
    found = clipped_squared_error(*(np.array([x]) for x in (prediction, old, target)), 0.2)
    np.testing.assert_allclose(found, [wanted], rtol=1e-6)


def test_approximate_kl():
    """(r - 1) - log r, never negative, and unbiased: its mean under the old policy is the KL
    divergence.
    """
    np.testing.assert_allclose(
        approximate_kl(np.log([1.0, 2.0])), [0.0, 1.0 - np.log(2.0)], atol=1e-7
    )
    assert np.all(np.asarray(approximate_kl(np.linspace(-3.0, 3.0, 101))) >= 0)
    old, new = np.array([0.2, 0.5, 0.3]), np.array([0.4, 0.4, 0.2])
    found = (old * np.asarray(approximate_kl(np.log(new / old)))).sum()
    np.testing.assert_allclose(found, (old * np.log(old / new)).sum(), rtol=1e-5)


def test_approximate_kl_is_accurate_near_zero():
    """½x² to first order, where (exp(x) - 1) - x in float32 would be rounding noise."""
    np.testing.assert_allclose(approximate_kl(np.array([1e-2])), [0.5e-4 + 1e-6 / 6], rtol=1e-2)


def test_standardize():
    standardize = jax.jit(losses.standardize)
    x = np.array([1.0, 3.0])
    np.testing.assert_allclose(standardize(x, x.mean(), x.var()), [-1.0, 1.0], rtol=1e-6)
    same = np.full(4, 7.0)
    np.testing.assert_array_equal(standardize(same, same.mean(), same.var()), np.zeros(4))


def test_explained_variance():
    explained_variance = jax.jit(losses.explained_variance)
    target = np.array([0.0, 2.0, 4.0], np.float32)
    assert float(explained_variance(target, target)) == 1.0
    assert float(explained_variance(target + 5.0, target)) == 1.0  # an offset is not variance
    assert float(explained_variance(np.zeros(3), target)) == 0.0
    assert float(explained_variance(-target, target)) == pytest.approx(-3.0)
    assert float(explained_variance(target, np.ones(3))) == 0.0  # nothing to explain


@pytest.mark.parametrize("offset", [0.0, 0.1])
def test_explained_variance_over_devices(offset):
    """That of the joint rollout: what sets the devices apart is explained as well."""
    target = np.float32([[1.0, 1.0], [5.0, 5.0], [9.0, 10.0]]) + np.float32(offset)
    value = target + np.float32([[0.0, 0.5], [0.25, 0.0], [0.5, 0.0]])

    def of_devices(*arrays):
        return jax.vmap(lambda *own: losses.explained_variance(*own, axis_name="d"), axis_name="d")(
            *arrays
        )

    joint = losses.explained_variance(value, target)
    np.testing.assert_allclose(of_devices(value, target), [joint] * 3, rtol=1e-6)
    constant = np.full_like(target, 0.1)
    np.testing.assert_array_equal(of_devices(value, constant), np.zeros(3))


def test_explained_variance_of_rollouts():
    explained_variance = jax.jit(losses.explained_variance)
    prediction, noise = np.random.default_rng(0).normal(size=(2, 128, 4)).astype(np.float32)
    target = prediction + 0.5 * noise + 3.0
    for rows in (128, 5):
        wanted = 1.0 - np.var((target - prediction)[:rows]) / np.var(target[:rows])
        np.testing.assert_allclose(
            explained_variance(prediction[:rows], target[:rows]), wanted, rtol=1e-4
        )
    many = [np.tile(x, (10, 1)) for x in (prediction, target)]
    np.testing.assert_allclose(
        explained_variance(*many), explained_variance(prediction, target), rtol=1e-4
    )
    # A tenth is no binary number: its sum is rounded, and so is a mean of it.
    tenths = np.full(prediction.shape, 0.1)
    assert float(explained_variance(prediction, tenths)) == 0.0
