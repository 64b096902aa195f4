"""The sort-free shuffle: always a permutation, and uniform by the statistics' own spread."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import in_full

from rlkit.ops import shuffle
from rlkit.ops.shuffle import shuffled_indices

# a fair shuffle passes both tests below with probability above 1 - 1e-5; keys are fixed, so the
# outcome is too
SIGMAS = 5.0

shuffled = jax.jit(shuffled_indices, static_argnums=1)


def permutations(n: int, num: int) -> np.ndarray:
    """`num` shuffles of 0 … n-1, [num, n]."""
    return np.asarray(
        jax.jit(jax.vmap(lambda k: shuffled_indices(k, n)))(
            jax.random.split(jax.random.key(n), num)
        )
    )


def position_excess(found: np.ndarray) -> float:
    """Standard deviations between Σ (count - K/n)² / (K/n), over values × positions, and its
    expectation.
    """
    num, n = found.shape
    count = np.bincount((np.arange(n) * n + found).ravel(), minlength=n * n)
    statistic = np.square(count - num / n).sum() / (num / n)
    return float((statistic - n * (n - 1)) / (n * np.sqrt(2)))


def neighbour_excess(found: np.ndarray) -> float:
    """The same for ordered pairs of neighbours: n(n-1) cells of mean K/n, variance K (n-1)/n² and
    so expectation (n-1)².
    """
    num, n = found.shape
    count = np.bincount(
        (found[:, :-1].astype(int) * n + found[:, 1:]).ravel(), minlength=n * n
    ).reshape(n, n)
    statistic = np.square(count[~np.eye(n, dtype=bool)] - num / n).sum() / (num / n)
    return float((statistic - (n - 1) ** 2) / (np.sqrt(2) * (n - 1)))


def in_numpy(monkeypatch):
    """Runs the body of `shuffled_indices` on NumPy, since 300 sizes would compile for a minute."""

    def while_loop(condition, body, x):
        while condition(x):
            x = body(x)
        return x

    random = SimpleNamespace(
        bits=lambda key, shape, dtype: np.asarray(jax.random.bits(key, shape, dtype)),
        permutation=permute,
    )
    monkeypatch.setattr(shuffle, "jnp", np)
    monkeypatch.setattr(
        shuffle, "jax", SimpleNamespace(random=random, lax=SimpleNamespace(while_loop=while_loop))
    )


def permute(key, n):
    return np.random.default_rng(np.asarray(jax.random.key_data(key))).permutation(n)


def test_a_permutation_for_every_small_n(monkeypatch):
    keys = list(jax.random.split(jax.random.key(1), 3))
    compiled = {n: [np.asarray(shuffled(k, n)) for k in keys] for n in (33, 64, 77)}
    in_numpy(monkeypatch)
    for n in range(1, 301):
        for k in keys:
            np.testing.assert_array_equal(np.sort(shuffled_indices(k, n)), np.arange(n))
    for n, wanted in compiled.items():  # NumPy did run the same function
        np.testing.assert_array_equal([shuffled_indices(k, n) for k in keys], wanted)


@pytest.mark.parametrize("n", [1, 2, 3, shuffle.SMALL, shuffle.SMALL + 1])
def test_a_permutation_of_few(key, n):
    np.testing.assert_array_equal(np.sort(shuffled(key, n)), np.arange(n))


@pytest.mark.parametrize("n", [1023, 1024, 1025, 4096, 50_000, 2**17 + 1])
def test_a_permutation_for_large_n(key, n):
    found = shuffled(key, n)
    assert found.dtype == jnp.int32
    np.testing.assert_array_equal(np.sort(found), np.arange(n))


@pytest.mark.parametrize("n", [33, 64, 200])
def test_different_keys_different_orders(n):
    found = permutations(n, 500)
    assert len(np.unique(found, axis=0)) == 500
    np.testing.assert_array_equal(found, permutations(n, 500))  # and the same key the same order


@pytest.mark.parametrize("n", [33, *map(in_full, (50, 64, 65, 128, 200))])
def test_positions_and_neighbours_are_even(n):
    found = permutations(n, 20_000)
    assert abs(position_excess(found)) < SIGMAS
    assert abs(neighbour_excess(found)) < SIGMAS


def test_the_statistics_are_calibrated():
    """On NumPy's shuffles both statistics are near their expectation, with a spread near 1."""
    rng = np.random.default_rng(0)
    z = np.array(
        [
            (position_excess(found), neighbour_excess(found))
            for found in (
                rng.permuted(np.tile(np.arange(40), (2000, 1)), axis=1) for _ in range(30)
            )
        ]
    )
    assert np.all(np.abs(z.mean(0)) < SIGMAS / np.sqrt(30))
    assert np.all((z.std(0) > 0.6) & (z.std(0) < 1.6))


def test_the_bounds_can_fail(monkeypatch):
    """One round of mixing is a bijection but a poor shuffle; the same bounds must detect it."""
    monkeypatch.setattr(shuffle, "ROUNDS", 1)
    found = permutations(64, 20_000)
    np.testing.assert_array_equal(np.sort(found, axis=1), np.tile(np.arange(64), (20_000, 1)))
    assert abs(neighbour_excess(found)) > SIGMAS


def test_minibatches_are_not_contiguous_blocks():
    """For minibatches: of two neighbouring samples, about 1/4 share one of 4 minibatches."""
    n, num = 512, 400
    found = permutations(n, num)
    where = np.argsort(found, axis=1) // (n // 4)  # the minibatch of every sample
    share = (where[:, :-1] == where[:, 1:]).mean()
    expected = (n / 4 - 1) / (n - 1)
    spread = np.sqrt(expected * (1 - expected) / (num * (n - 1)))
    assert abs(share - expected) < SIGMAS * spread
