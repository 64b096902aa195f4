"""Choices among allowed actions, against counts by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlkit.ops.choices import allowed, has_no_choice, random_index, random_indices

pytestmark = pytest.mark.fast


def test_a_choice_without_an_action_allows_all_and_is_told():
    mask = jnp.array([[0, 1, 1, 0, 0], [0, 0, 1, 0, 1], [1, 0, 0, 1, 0]], jnp.int8)
    assert allowed(mask, (2, 3)).astype(int).tolist() == [
        [0, 1, 1, 0, 0],
        [1, 1, 1, 0, 1],
        [1, 0, 0, 1, 0],
    ]
    assert has_no_choice(mask, (2, 3)).tolist() == [False, True, False]
    assert has_no_choice(jnp.zeros((2, 2, 2), bool), (4,)).tolist() == [True, True]


def test_random_choices_are_uniform_over_what_is_allowed():
    mask = jnp.array([[0, 1, 0, 1, 1, 0]] * 30_000, bool)
    index = random_index(jax.random.bits(jax.random.key(0), (2, len(mask))), mask)
    counts = np.bincount(np.asarray(index), minlength=6)
    assert counts[[0, 2, 5]].sum() == 0
    np.testing.assert_allclose(counts[[1, 3, 4]], 10_000, atol=4 * np.sqrt(30_000 * 2 / 9))


def test_several_choices_are_drawn_apart():
    mask = jnp.array([[1, 1, 0, 0, 1, 1]] * 4000, bool)
    first, second = np.asarray(random_indices(jax.random.key(1), mask, (2, 4))).T
    assert set(first) == {0, 1} and set(second) == {2, 3}
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1
