"""Several integers as one vector."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlkit.ops.one_hots import one_hots


def test_by_hand():
    found = one_hots(jnp.array([[1, 0, 0, 2], [0, 2, 1, -1], [2, 3, 0, 0]]), (2, 3, 2, 3))
    np.testing.assert_array_equal(
        found,
        [
            [0, 1, 1, 0, 0, 1, 0, 0, 0, 1],
            [1, 0, 0, 0, 1, 0, 1, 0, 0, 0],  # -1 is out of range
            [0, 0, 0, 0, 0, 1, 0, 1, 0, 0],  # 2 of two values, and 3 of three
        ],
    )
    assert found.dtype == jnp.float32


@pytest.mark.parametrize(
    ("shape", "counts"),
    [((7,), (4,)), ((), (3, 3, 3)), ((2, 3), (5, 2) * 4), ((7,), (2, 3, 2)), ((7,), (2, 2, 3) * 2)],
)
def test_they_are_the_vectors_of_each_integer_in_turn(key, counts, shape):
    index = jax.random.randint(key, (*shape, len(counts)), -1, max(counts) + 1)
    each = [jax.nn.one_hot(index[..., i], count) for i, count in enumerate(counts)]
    np.testing.assert_array_equal(one_hots(index, counts), jnp.concatenate(each, axis=-1))


def test_a_grid_takes_as_many_operations_as_a_cell(key):
    """One for each kind of number, however many cells there are."""

    def operations(cells):
        index = jnp.zeros((8, 2 * cells), jnp.int32)
        return len(jax.make_jaxpr(lambda x: one_hots(x, (13, 12) * cells))(index).eqns)

    assert operations(49) == operations(2)
