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
    found = updated_if(jnp.asarray(False), optimizer, bad, PARAMS, start, packing)
    assert_equal(found, (PARAMS, start))
    change, state = optimizer.update(GRADIENTS, start, PARAMS)
    found = updated_if(jnp.asarray(True), optimizer, GRADIENTS, PARAMS, start, packing)
    assert_equal(found, (optax.apply_updates(PARAMS, change), state), rounding=1e-6)
