import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlkit.xla_cpu.loops import pack_counters, pack_parameters, packed_scan
from rlkit.xla_cpu.packing import NO_PACKING, Packing

pytestmark = [
    pytest.mark.fast,
    pytest.mark.skipif(jax.default_backend() != "cpu", reason="packs on CPUs alone"),
]
PARAMS = {"w": jnp.ones((64, 64)), "b": jnp.ones(64)}


@pytest.mark.parametrize(("rows", "packs"), [(16, True), (2**12, False)])
def test_parameters_are_packed_where_networks_compute_little(rows, packs):
    """The largest product takes 64 · 64 · rows multiplications."""
    batch = {"obs": jnp.zeros((rows, 2)), "scale": jnp.float32(1.0)}
    packing = pack_parameters(PARAMS, batch)
    assert len(jax.tree.leaves(packing.pack(PARAMS))) == (1 if packs else 2)


def test_a_batch_without_arrays_has_one_row():
    assert isinstance(pack_parameters(PARAMS, {}), Packing)


@pytest.mark.parametrize(
    ("num_steps", "batch_size", "packs"), [(1, 16, True), (2, 16, False), (1, 2**12, False)]
)
def test_counters_are_packed_where_an_iteration_is_one_small_step(num_steps, batch_size, packs):
    state = {"params": PARAMS, "steps": jnp.uint32(3), "updates": jnp.uint32(5)}
    packing = pack_counters(state, PARAMS, num_steps=num_steps, batch_size=batch_size)
    assert (packing is not NO_PACKING) == packs
    shapes = [x.shape for x in jax.tree.leaves(packing.pack(state))]
    assert shapes == ([(2,), (64,), (64, 64)] if packs else [(64,), (64, 64), (), ()])


@pytest.mark.parametrize("setting", ["off", "no-packing"])
def test_nothing_is_packed_with_the_trick_off(setting, monkeypatch):
    monkeypatch.setenv("RLKIT_CPU_TUNING", setting)
    assert pack_parameters(PARAMS, {}) is NO_PACKING
    assert pack_counters({}, PARAMS, num_steps=1, batch_size=1) is NO_PACKING


@pytest.mark.parametrize("packing", [Packing({"x": jnp.float32(0), "n": jnp.int32(0)}), NO_PACKING])
def test_a_packed_scan_is_a_scan(packing):
    def step(state, x):
        state = {"x": state["x"] + x, "n": state["n"] + 1}
        return state, {"twice": 2 * state["x"], "seen": state["n"]}

    start = {"x": jnp.float32(1.0), "n": jnp.int32(7)}
    wanted, outputs = jax.lax.scan(step, start, jnp.arange(4.0))
    found, packed = packed_scan(step, start, jnp.arange(4.0), packing.pack, packing.unpack)
    jax.tree.map(np.testing.assert_array_equal, (found, packed.unpack()), (wanted, outputs))


def test_a_packed_scan_runs_without_jit():
    """As a user runs `fit` to look at numbers in a loss."""

    def step(total, x):
        return total + x, {"x": x, "total": total}

    with jax.disable_jit():
        total, packed = packed_scan(step, jnp.float32(0), jnp.arange(3.0), lambda s: s, lambda s: s)
    assert total == 3.0
    np.testing.assert_array_equal(packed.unpack()["total"], [0.0, 0.0, 1.0])
