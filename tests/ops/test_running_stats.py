"""Running statistics equal NumPy's on all values so far, however they were batched."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlkit.ops import running_stats
from rlkit.ops.running_stats import init_stats

fold = jax.jit(running_stats.fold, static_argnames="axis_name")
normalize = jax.jit(running_stats.normalize)
variance = jax.jit(lambda stats: stats.variance)


def batch(seed: int, size: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "a": rng.normal(3.0, 2.0, (size, 4)).astype(np.float32),
        "b": rng.normal(-100.0, 0.5, (size, 2, 3)).astype(np.float32),
        "c": rng.integers(0, 256, size).astype(np.uint8),
    }


def empty():
    return init_stats(
        jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), batch(0, 1))
    )


def assert_numpy(stats, data, rtol=1e-4):
    assert float(stats.count) == len(data["a"])
    variances = variance(stats)
    for name, x in data.items():
        x = x.astype(np.float64)
        np.testing.assert_allclose(stats.mean[name], x.mean(0), rtol=rtol, atol=1e-5)
        np.testing.assert_allclose(variances[name], x.var(0), rtol=rtol, atol=1e-5)


def joined(*batches):
    return jax.tree.map(lambda *x: np.concatenate(x), *batches)


def test_variance_is_one_before_anything_came():
    for leaf in jax.tree.leaves(variance(empty())):
        np.testing.assert_array_equal(leaf, np.ones(leaf.shape))


def test_one_batch_equals_numpy():
    data = batch(1, 50)
    assert_numpy(fold(empty(), data), data)


def test_batches_of_any_size_equal_numpy_on_all():
    parts = [batch(seed, size) for seed, size in enumerate((1, 7, 300, 2, 90))]
    stats = empty()
    for part in parts:
        stats = fold(stats, part)
    assert_numpy(stats, joined(*parts))


def test_two_folds_equal_one_of_both():
    first, second = batch(1, 10), batch(2, 30)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3),
        fold(fold(empty(), first), second),
        fold(empty(), joined(first, second)),
    )


def test_the_variance_does_not_grow_where_the_count_cannot():
    """float32 counts by ones up to 2**24. Values of +-1 have a variance of 1, however many."""
    at = jnp.float32(2.0**24)
    full = running_stats.RunningStats(count=at, mean=jnp.float32(0.0), m2=at)
    stats = jax.jit(
        lambda s, xs: jax.lax.scan(lambda s, x: (running_stats.fold(s, x), None), s, xs)[0]
    )
    after = stats(full, jnp.tile(jnp.array([[1.0], [-1.0]]), (2**17, 1)))
    np.testing.assert_allclose(variance(after), 1.0, rtol=1e-3)
    assert float(after.count) == running_stats.MOST_BATCHES
    shifted = stats(after, jnp.full((2**20, 1), 5.0))  # as many again: nearly two thirds of all
    np.testing.assert_allclose(shifted.mean, 5.0 * (1 - np.exp(-1.0)), rtol=1e-2)


def test_leading_time_and_env_axes_are_both_batch_axes():
    data = batch(3, 24)
    stacked = jax.tree.map(lambda x: x.reshape(4, 6, *x.shape[1:]), data)
    assert_numpy(fold(empty(), stacked), data)


def test_devices_fold_as_one():
    data = batch(4, 40)
    start = fold(empty(), batch(5, 13))
    halves = jax.tree.map(lambda x: x.reshape(2, 20, *x.shape[1:]), data)
    folded = jax.jit(jax.vmap(lambda half: fold(start, half, "d"), axis_name="d"))
    both = jax.device_get(folded(halves))
    for device in range(2):
        one = jax.tree.map(lambda x, device=device: x[device], both)
        assert_numpy(one, joined(batch(5, 13), data))


def test_constant_data():
    """Operation by operation: a compiled mean may be rounded otherwise."""
    stats = init_stats(jax.ShapeDtypeStruct((2,), jnp.float32))
    for _ in range(3):
        stats = running_stats.fold(stats, jnp.full((100, 2), 1e4))
    np.testing.assert_array_equal(stats.mean, [1e4, 1e4])
    np.testing.assert_array_equal(variance(stats), [0.0, 0.0])
    np.testing.assert_array_equal(normalize(stats, np.full((3, 2), 1e4)), np.zeros((3, 2)))


def test_normalize_by_hand_and_clip():
    # Mean 2, variance 4
    stats = fold(init_stats(jax.ShapeDtypeStruct((), jnp.float32)), np.array([0.0, 4.0]))
    found = normalize(stats, np.array([2.0, 4.0, -2.0, 1e6, -1e6]))
    np.testing.assert_allclose(found, [0.0, 1.0, -2.0, 10.0, -10.0], rtol=1e-6)
    np.testing.assert_allclose(normalize(stats, np.array([1e6]), clip=3.0), [3.0])


def test_normalize_without_statistics_is_the_identity():
    x = np.arange(3)
    assert running_stats.normalize(None, x) is x


def test_integers_pass_unchanged():
    """Networks encode categories and images: normalizing a category would destroy it."""
    data = {"category": np.array([0, 1, 2], np.int32), "x": np.array([0.0, 1.0, 2.0])}
    stats = fold(init_stats(jax.tree.map(lambda x: x[0], data)), data)
    found = normalize(stats, data)
    assert found["category"].dtype == data["category"].dtype
    np.testing.assert_array_equal(found["category"], [0, 1, 2])
    np.testing.assert_allclose(found["x"], [-np.sqrt(1.5), 0.0, np.sqrt(1.5)], rtol=1e-6)


@pytest.mark.parametrize("size", [1, 1000])
def test_variance_is_never_negative(size):
    stats = init_stats(jax.ShapeDtypeStruct((), jnp.float32))
    for seed in range(20):
        stats = fold(stats, 1e6 + np.random.default_rng(seed).normal(size=size))
        assert float(variance(stats)) >= 0.0
