import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlkit.xla_cpu.packing import (
    LONGEST_SMALL,
    Packed,
    Packing,
    global_norm,
    pack_small_arrays,
)

pytestmark = pytest.mark.fast

TREE = {
    "loss": jnp.float32(0.1),
    "weights": jnp.asarray(np.arange(6, dtype=np.float32).reshape(2, 3) / 7),
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
    # Count; loss and nothing; done; weights.
    assert [x.shape for x in packed] == [
        (1,),
        (1,),
        (2,),
        (2, 3),
    ]
    assert packed[-1] is TREE["weights"]
    assert_same(packing.unpack(packed), TREE)


def test_leaves_of_other_dtypes_join_as_those_of_the_example():
    packing = Packing({"half": jnp.ones(2, jnp.bfloat16), "whole": jnp.ones(3)})
    update = {"half": jnp.ones(2), "whole": jnp.zeros(3)}
    assert_same(packing.unpack(packing.pack(update)), update)
    with pytest.raises(AssertionError, match="made for other shapes"):
        packing.pack({"half": jnp.ones(3), "whole": jnp.ones(2)})


# Optimisers on small arrays as one vector

PARAMS = {
    "large": jnp.asarray(np.linspace(-1.0, 1.0, LONGEST_SMALL + 1), jnp.float32),
    "matrix": jnp.asarray(np.linspace(0.0, 2.0, 12).reshape(3, 4), jnp.float32),
    "scalar": jnp.float32(0.5),
}


def test_an_optimizer_of_packed_arrays_is_the_same():
    plain = optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(0.1))
    packed = pack_small_arrays(plain)
    gradients = jax.tree.map(np.sin, PARAMS)
    (found, state), (wanted, _) = (
        jax.jit(optimizer.update)(gradients, optimizer.init(PARAMS), PARAMS)
        for optimizer in (packed, plain)
    )
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), found, wanted)
    moments = optax.tree_utils.tree_get(state, "mu")
    assert [x.shape for x in moments] == [(13,), (LONGEST_SMALL + 1,)]


def test_of_the_extra_arguments_an_optimizer_of_packed_arrays_gets_the_progress():
    seen = {}

    def update(updates, state, params=None, **extra):
        assert params is None
        seen.update(extra)
        return updates, state

    packed = pack_small_arrays(
        optax.GradientTransformationExtraArgs(lambda params: (), update)  # pyright: ignore
    )
    packed.update(PARAMS, (), progress=0.25, grad=PARAMS, value=1.0)
    assert seen == {"progress": 0.25}
    packed.update(PARAMS, ())


def test_the_norm_of_packed_arrays_is_the_global_norm():
    norms = jax.jit(lambda: (global_norm(PARAMS), optax.tree.norm(PARAMS)))()
    np.testing.assert_allclose(*norms, rtol=1e-6)
