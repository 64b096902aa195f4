import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rlkit.ops.norms import LARGE, global_norm

pytestmark = pytest.mark.fast


def test_by_hand():
    assert float(global_norm({"a": jnp.array([2.0, -3.0]), "b": (jnp.float32(6.0), [])})) == 7.0
    assert float(global_norm(())) == 0.0
    assert float(global_norm(jnp.full(4 * LARGE, 0.5))) == np.sqrt(LARGE)


@pytest.mark.parametrize("size", [1, LARGE, LARGE + 1])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_is_that_of_optax(size, dtype):
    tree = {"large": jax.random.normal(jax.random.key(0), (size,), dtype), "small": jnp.ones((3, 2), dtype)}
    tolerance = {"float32": 1e-6, "bfloat16": 1e-2}[dtype]
    np.testing.assert_allclose(global_norm(tree), np.float32(optax.tree.norm(tree)), rtol=tolerance)


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_shows_what_is_not_finite(bad):
    for size in (3, LARGE + 1):
        assert not np.isfinite(global_norm([jnp.zeros(2), jnp.zeros(size).at[1].set(bad)]))


@pytest.mark.parametrize("norm", ["optax.tree.norm", "global_norm"])
def test_squares_that_the_optimiser_needs_as_well_are_not_shared(norm):
    """Else they would be an array in memory, which the norm reads back. Compiled as users do, unlike other tests."""
    code = f"""
import jax, jax.numpy as jnp, optax
from rlkit.ops.norms import global_norm
adam = optax.scale_by_adam()
def update(gradient, state):
    change, state = adam.update(gradient, state)
    return {norm}(gradient), change, state
gradient = jnp.ones((256, 256))
text = jax.jit(update).lower(gradient, adam.init(gradient)).compile().as_text()
print(sum("%wrapped_multiply" in line and "= f32[256,256]" in line for line in text.splitlines()))
"""
    plain = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "XLA_FLAGS": ""}
    found = subprocess.run([sys.executable, "-c", code], env=plain, capture_output=True, text=True, check=True).stdout
    assert int(found) == (1 if norm == "optax.tree.norm" else 0)
