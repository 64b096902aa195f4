import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlkit.ops import random_bits

pytestmark = pytest.mark.fast

as_integers = jax.jit(random_bits.as_integers, static_argnums=1)
as_uniform = jax.jit(random_bits.as_uniform)
uniform_integers = jax.jit(random_bits.uniform_integers, static_argnums=(1, 2))


@pytest.mark.parametrize("limit", [1, 2, 3, 65_535, 65_536, 65_537, 1_000_003, 2**31 - 1])
def test_are_what_exact_arithmetic_makes_of_the_bits(limit):
    key = jax.random.key(limit)
    high, low = np.asarray(jax.random.bits(key, (2, 5000), jnp.uint32)).astype(object)
    drawn = uniform_integers(key, (5000,), limit)
    assert drawn.dtype == jnp.int32
    np.testing.assert_array_equal(drawn, ((high * 2**32 + low) * limit) >> 64)


@pytest.mark.parametrize(
    ("high", "low"),
    [(0, 0), (2**32 - 1, 2**32 - 1), (2**31, 0), (0, 2**32 - 1), (2**16, 2**16 - 1)],
)
def test_at_the_ends_of_the_bits(high, low):
    for limit in (1, 3, 2**16, 2**31 - 1):
        drawn = np.asarray(as_integers(np.array([[high], [low]], np.uint32), limit))
        assert int(drawn[0]) == ((high * 2**32 + low) * limit) >> 64 < limit


def test_uniform_floats_are_below_one():
    assert float(as_uniform(np.uint32(2**32 - 1))) == 1 - 2.0**-24  # rounding must not make it 1
    fractions = np.sort(as_uniform(jax.random.bits(jax.random.key(0), (10_000,), jnp.uint32)))
    # Kolmogorov-Smirnov, 1 %
    assert np.abs(fractions - np.arange(10_000) / 10_000).max() < 1.63 / np.sqrt(10_000)


@pytest.mark.parametrize("limit", [3, 7, 100])
def test_uniform(limit):
    counts = np.bincount(uniform_integers(jax.random.key(1), (100_000,), limit), minlength=limit)
    chi_square = ((counts - 100_000 / limit) ** 2 / (100_000 / limit)).sum()
    assert abs(chi_square - (limit - 1)) < 4 * np.sqrt(2 * (limit - 1))
