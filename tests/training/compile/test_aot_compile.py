"""Programs of a run compute what the plain function computes."""

import jax
import jax.numpy as jnp
import pytest

from rlkit.training.compile.aot_compile import Compiler

SMALL, LARGE = jnp.ones((128, 128)), jnp.ones((256, 256))  # 2^21 and 2^24 multiplications


@pytest.mark.parametrize("x", [SMALL, LARGE])
def test_compiled_programs_compute_the_same(x):
    def looped(x):
        return jax.lax.scan(lambda c, _: (c @ c, None), x, length=3)[0]

    x = x / len(x)
    assert jnp.allclose(Compiler(1)(looped)(x), jax.jit(looped)(x), rtol=1e-6)


@jax.tree_util.register_pytree_node_class
class Interrupted:
    """A pytree that gets a Ctrl-C while JAX compares its static data."""

    def __init__(self, leaf):
        self.leaf = leaf

    def tree_flatten(self):
        return (self.leaf,), self

    @classmethod
    def tree_unflatten(cls, static, leaves):
        return cls(*leaves)

    def __eq__(self, other):
        raise KeyboardInterrupt

    __hash__ = object.__hash__


def test_ctrl_c_is_one_also_while_jax_compares_pytrees():
    """JAX raises a `ValueError` in its place."""

    def compares(x):
        one, other = (jax.tree.structure(Interrupted(x)) for _ in range(2))
        return x if one == other else -x

    with pytest.raises(ValueError, match="equality of metadata"):
        jax.jit(compares).trace(jnp.ones(()))
    with pytest.raises(KeyboardInterrupt):
        Compiler(1)(compares).compile(jnp.ones(()))
