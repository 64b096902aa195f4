import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.xla_metadata import set_xla_metadata
from optimizer_rows import GRADIENTS, OPTIMIZERS, PARAMS, assert_equal

from rlkit.errors import ConfigError
from rlkit.xla_cpu.conditional_update import renewed_if

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    "compiled",
    [pytest.param(False, id="eager", marks=pytest.mark.full), pytest.param(True, id="jit")],
)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_is_the_one_chosen_afterwards(name, compiled):
    optimizer = OPTIMIZERS[name]

    def renew(state):
        return optimizer.update(GRADIENTS, state, PARAMS)[::-1]

    old = renew(renew(optimizer.init(PARAMS))[0])[0]
    transform = jax.jit if compiled else lambda f: f
    found = transform(lambda valid: renewed_if(valid, old, renew))(jnp.asarray(True))
    assert_equal(found, transform(lambda: renew(old))(), rounding=1e-6)
    assert_equal(transform(lambda valid: renewed_if(valid, old, renew)[0])(jnp.asarray(False)), old)


def test_the_result_comes_from_the_chosen_state():
    def renew(old):
        new = {"x": old["x"] + 1.0, "n": old["n"] + 1}
        return new, 2.0 * new["x"]

    old = {"x": jnp.array([1.0, 2.0]), "n": jnp.int32(5)}
    assert_equal(
        renewed_if(jnp.asarray(True), old, renew),
        ({"x": jnp.array([2.0, 3.0]), "n": jnp.int32(6)}, jnp.array([4.0, 6.0])),
    )
    assert_equal(renewed_if(jnp.asarray(False), old, renew), (old, jnp.array([2.0, 4.0])))


def test_leaves_that_are_equal_unchanged_or_constant():
    def renew(old):
        moved = old[0] + 1.0
        return (moved, moved, old[2], jnp.float32(7.0)), (moved + old[1], ())

    old = (jnp.float32(1.0), jnp.float32(10.0), jnp.float32(3.0), 4.0)
    for valid in (True, False):
        state, (result, empty) = renewed_if(jnp.asarray(valid), old, renew)
        assert_equal(state, tuple(map(jnp.float32, (2.0, 2.0, 3.0, 7.0) if valid else old)))
        assert not valid or (float(result), empty) == (12.0, ())


def test_switched_off_it_is_the_choice_afterwards(monkeypatch):
    optimizer = OPTIMIZERS["chain"]
    old = optimizer.init(PARAMS)

    def renew(state):
        return optimizer.update(GRADIENTS, state, PARAMS)[::-1]

    found = {}
    for setting in ("on", "off"):
        monkeypatch.setenv("RLKIT_CPU_TUNING", setting)
        found[setting] = [renewed_if(jnp.asarray(valid), old, renew) for valid in (True, False)]
    assert_equal([state for state, _ in found["off"]], [state for state, _ in found["on"]])
    assert_equal(found["off"][0], renew(old))


def test_switched_off_the_state_is_renewed_once(monkeypatch):
    monkeypatch.setenv("RLKIT_CPU_TUNING", "off")
    calls = []

    def renew(old):
        calls.append(old)
        return old + 1.0, old

    renewed_if(jnp.asarray(True), jnp.float32(1.0), renew)
    assert len(calls) == 1


def test_seeds_side_by_side_choose_for_themselves():
    def renew(old):
        new = jnp.square(old)
        return new, new + 1.0

    state, result = jax.vmap(lambda valid, x: renewed_if(valid, x, renew))(
        jnp.array([True, False]), jnp.array([3.0, 3.0])
    )
    np.testing.assert_array_equal(state, [9.0, 3.0])
    np.testing.assert_array_equal(result, [10.0, 4.0])


@pytest.mark.parametrize("setting", ["on", "off"])
@pytest.mark.parametrize(
    "new", [lambda x: (x, x), lambda x: (), lambda x: [x]], ids=["more", "fewer", "another"]
)
def test_a_state_of_another_structure_is_refused(new, setting, monkeypatch):
    monkeypatch.setenv("RLKIT_CPU_TUNING", setting)
    with pytest.raises(
        ConfigError, match=r"was renewed to one of .* return a state of the structure"
    ):
        renewed_if(jnp.asarray(True), (jnp.float32(1.0),), lambda old: (new(old[0] + 1.0), old[0]))


@pytest.mark.parametrize("dtype", ["bfloat16", "int32"])
def test_a_leaf_of_another_dtype_is_chosen_afterwards(dtype):
    def renew(old):
        new = (2.5 * old).astype(dtype)
        return new, new * jnp.ones((), dtype)

    for valid in (True, False):
        state, result = renewed_if(jnp.asarray(valid), jnp.float32(3.0), renew)
        assert (state.dtype, float(state)) == (
            jnp.float32,
            float(renew(jnp.float32(3.0))[0]) if valid else 3.0,
        )
        assert result.dtype == dtype


def test_what_equations_were_traced_with_stays_with_them():
    def renew(old):
        with set_xla_metadata(marked="here"):
            new = old * 2.0
        return new, new

    text = jax.jit(lambda x: renewed_if(x > 0, x, renew)).lower(jnp.float32(1.0)).as_text()
    assert 'marked = "here"' in text
