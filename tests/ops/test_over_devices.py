"""Packed reductions are those of JAX, leaf by leaf, in fewer collectives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlkit.ops import over_devices

TREE = {
    "a": jnp.arange(6.0).reshape(2, 3) / 7,
    "b": [jnp.float32([[1], [2]]), jnp.int32([3, 5])],
    "c": jnp.float32([0.1, 0.2]),
    "d": (),
}


@pytest.mark.fast
@pytest.mark.parametrize("name", ["psum", "pmean"])
def test_reductions_are_those_of_each_leaf(name):
    packed, plain = getattr(over_devices, name), getattr(jax.lax, name)
    found, expected = (
        jax.jit(jax.vmap(lambda tree, reduce=reduce: reduce(tree, "d"), axis_name="d"))(TREE)
        for reduce in (packed, plain)
    )
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


@pytest.mark.fast
def test_there_is_one_reduction_for_each_dtype():
    traced = jax.make_jaxpr(lambda tree: over_devices.psum(tree, "d"), axis_env=[("d", 2)])
    assert str(traced(TREE)).count("= psum") == 2
