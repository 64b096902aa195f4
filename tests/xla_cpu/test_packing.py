import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlkit.xla_cpu.packing import Packed, Packing

pytestmark = pytest.mark.fast

TREE = {
    "loss": jnp.float32(0.1),
    "weights": jnp.arange(6, dtype=jnp.float32).reshape(2, 3) / 7,
    "count": jnp.int32(7),
    "empty": jnp.zeros((0, 2), jnp.float32),
    "done": jnp.array([True, False]),
}


def assert_same(found, wanted):
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert (
            x.dtype == y.dtype
            and x.shape == y.shape
            and np.asarray(x).tobytes() == np.asarray(y).tobytes()
        )


def test_a_tree_comes_back_bit_for_bit():
    packing = Packing(jax.eval_shape(lambda: TREE))
    vectors = packing.pack(TREE)
    assert [(x.dtype, x.shape) for x in vectors] == [
        (jnp.int32, (1,)),
        (jnp.bool, (2,)),
        (jnp.float32, (7,)),
    ]
    assert_same(packing.unpack(vectors), TREE)


def test_vectors_may_gain_leading_axes():
    packed = jax.jit(jax.vmap(lambda scale: Packed.of({"a": scale, "b": scale * jnp.ones(2)})))(
        jnp.arange(3.0)
    )
    rows = jax.tree.map(lambda vector: np.stack([vector, vector + 10]), packed)  # [2, 3, 3]
    found = rows.unpack()
    assert found["a"].shape == (2, 3) and found["b"].shape == (2, 3, 2)
    np.testing.assert_array_equal(found["a"], [[0, 1, 2], [10, 11, 12]])
    np.testing.assert_array_equal(found["b"][1, 2], [12, 12])


def test_long_leaves_stay_as_they_are():
    packing = Packing(TREE, longest=1)
    packed = packing.pack(TREE)
    assert [x.shape for x in packed] == [
        (1,),
        (1,),
        (2,),
        (2, 3),
    ]  # count; loss and nothing; done; weights
    assert packed[-1] is TREE["weights"]
    assert_same(packing.unpack(packed), TREE)
