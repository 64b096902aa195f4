"""`assert_same`: what differs, and where."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlkit.testing import assert_same


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ({"a": 1}, {"b": 1}, "it: PyTreeDef"),
        ({"a": np.float32(1)}, {"a": np.float64(1)}, r"it\['a'\]: float32\[\] is not float64\[\]"),
        (np.zeros(2), np.zeros(3), r"it: float64\[2\] is not float64\[3\]"),
        (
            [np.array([[1, 2], [3, 4]])],
            [np.array([[1, 2], [3, 5]])],
            r"it\[0\]\[1, 1\]: 4 is not 5",
        ),
        (np.nan, 0.0, "it: nan is not 0.0"),
        (1.0, 1.0 + 1e-7, "it: 1.0 is not 1.0000001"),
    ],
)
def test_differences_are_named(first, second, told):
    with pytest.raises(AssertionError, match=told):
        assert_same(first, second, "it")


def test_what_is_the_same():
    tree = {"key": jax.random.key(3), "nan": np.array([np.nan, 1]), "b": jnp.bfloat16(2), "n": None}
    assert_same(tree, dict(tree), "it")
    assert_same(1.0, 1.0 + 1e-7, "it", rtol=1e-5, atol=0.0)
    with pytest.raises(AssertionError):  # integers have no rounding
        assert_same(10**6, 10**6 + 1, "it", rtol=1e-5, atol=1.0)
    with pytest.raises(AssertionError, match=r"it\['key'\]"):
        assert_same(tree, tree | {"key": jax.random.key(4)}, "it")
