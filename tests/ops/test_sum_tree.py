"""The sum tree: what it draws, and that it never drifts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import in_full

from rlkit.ops.sum_tree import FAN_OUT, SumTree

draw = jax.jit(SumTree.draw, static_argnames="num")
total = jax.jit(lambda tree: tree.total)


@functools.partial(jax.jit, static_argnames="num_leaves")
def filled(num_leaves, index, value):
    return SumTree.create(num_leaves).set(index, value)


@pytest.mark.parametrize("num_leaves", [1, 15, 16, 17, 256, 257, 5000])
def test_levels_end_in_a_single_group(num_leaves):
    tree = jax.eval_shape(lambda: SumTree.create(num_leaves))
    sizes = [level.shape[0] for level in tree.levels]
    assert sizes[0] >= num_leaves and sizes[0] - num_leaves < FAN_OUT and sizes[-1] == FAN_OUT
    assert all(size % FAN_OUT == 0 for size in sizes)
    assert len(sizes) == max(1, int(np.ceil(np.log(num_leaves) / np.log(FAN_OUT) - 1e-9)))


def test_sums_by_hand():
    tree = filled(40, np.array([0, 1, 17, 39]), np.array([1.0, 2.0, 4.0, 8.0]))
    np.testing.assert_array_equal(np.asarray(tree.levels[1])[:4], [3.0, 4.0, 8.0, 0.0])
    assert total(tree) == 15.0
    tree = jax.jit(SumTree.set)(tree, np.array([17]), np.array([0.5]))
    assert np.asarray(tree.levels[1])[1] == 0.5 and total(tree) == 11.5


def test_draws_are_proportional():
    """Chi-square against the priorities; leaves without priority are never drawn."""
    rng = np.random.default_rng(0)
    priorities = np.where(rng.random(300) < 0.3, 0.0, rng.random(300) ** 3).astype(np.float32)
    tree = filled(300, np.arange(300), priorities)
    num = 200_000
    drawn = np.asarray(draw(tree, jax.random.key(1), num))
    counts = np.bincount(drawn, minlength=tree.leaves.shape[0])
    assert counts[300:].sum() == 0 and counts[:300][priorities == 0].sum() == 0
    positive = priorities > 0
    expected = num * priorities[positive].astype(np.float64) / priorities.sum(dtype=np.float64)
    counts, expected = counts[:300][positive][expected > 5], expected[expected > 5]
    chi_square = ((counts - expected) ** 2 / expected).sum()
    degrees = len(expected) - 1
    assert chi_square < degrees + 5 * np.sqrt(2 * degrees)


def test_a_lonely_priority_among_a_million_is_always_found():
    """However small: a single random number for all levels would miss it by rounding."""
    tree = filled(1_000_000, np.array([123_456]), np.array([1e-30]))
    assert (np.asarray(draw(tree, jax.random.key(0), 100)) == 123_456).all()


def test_small_priorities_next_to_large_ones_keep_their_share():
    """A quarter of the mass is in 250,000 leaves of 1e-6, next to one of 0.75."""
    index = np.arange(250_001)
    tree = filled(250_001, index, np.where(index == 0, 0.75, 1e-6))
    drawn = np.asarray(draw(tree, jax.random.key(0), 40_000))
    assert abs((drawn == 0).mean() - 0.75) < 0.01
    small = drawn[drawn > 0]
    assert abs(small.mean() / 125_000 - 1) < 0.03 and len(np.unique(small)) > 9_000


def updated(num_rounds, size=1000, batch=256):
    """A tree after several rounds of priorities that span nine orders of magnitude."""

    def once(tree, key):
        index_key, value_key = jax.random.split(key)
        index = jax.random.randint(index_key, (batch,), 0, size)
        value = 10.0 ** jax.random.uniform(value_key, (batch,), minval=-6.0, maxval=3.0)
        return tree.set(index, value), None

    keys = jax.random.split(jax.random.key(3), num_rounds)
    return jax.jit(lambda: jax.lax.scan(once, SumTree.create(size), keys)[0])()


def assert_as_new(tree, size=1000):
    leaves = np.asarray(tree.leaves)
    fresh = filled(size, np.arange(size), leaves[:size])
    for one, other in zip(tree.levels, fresh.levels, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(total(tree), leaves.astype(np.float64).sum(), rtol=1e-6)


def test_the_tree_is_that_of_its_leaves_bit_for_bit():
    assert_as_new(updated(400))


@pytest.mark.parametrize("updates", [1_000_000, in_full(10_000_000)])
def test_many_updates_leave_no_drift(updates):
    assert_as_new(updated(updates // 256))


def test_seeds_side_by_side_equal_a_loop():
    def run(key):
        tree = SumTree.create(100).set(jnp.arange(100), jax.random.uniform(key, (100,)))
        return tree.draw(key, 50), tree.total

    keys = jax.random.split(jax.random.key(5), 3)
    together, alone = jax.device_get(jax.jit(jax.vmap(run))(keys)), jax.jit(run)
    for index, key in enumerate(keys):
        jax.tree.map(
            lambda x, y, index=index: np.testing.assert_array_equal(x[index], y),
            together,
            alone(key),
        )
