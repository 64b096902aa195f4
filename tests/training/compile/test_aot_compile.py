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
