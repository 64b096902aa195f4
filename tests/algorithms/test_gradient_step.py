import jax
import jax.numpy as jnp
import optax
import pytest
from optimizer_rows import GRADIENTS, OPTIMIZERS, PARAMS, assert_equal

from rlkit.algorithms.gradient_step import updated_if
from rlkit.xla_cpu.packing import NO_PACKING, Packing

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("packing", [NO_PACKING, Packing(PARAMS)], ids=["as-they-are", "packed"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_invalid_update_is_skipped_and_leaves_no_trace(name, packing):
    optimizer = OPTIMIZERS[name]
    start = optimizer.init(PARAMS)
    bad = jax.tree.map(lambda x: x * jnp.nan, GRADIENTS)
    updated = jax.jit(lambda ok, g: updated_if(ok, optimizer, g, PARAMS, start, packing))
    assert_equal(updated(False, bad), (PARAMS, start))
    change, state = jax.jit(optimizer.update)(GRADIENTS, start, PARAMS)
    found = updated(True, GRADIENTS)
    assert_equal(found, (optax.apply_updates(PARAMS, change), state), rounding=1e-6)
