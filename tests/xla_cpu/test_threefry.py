"""The hash in both forms, and that programs for a CPU use them without a changed bit."""

import json
import subprocess
import sys

import jax
import jax.export
import jax.extend.random
import jax.numpy as jnp
import numpy as np
import pytest

from rlkit.training.compile.aot_compile import Compiler
from rlkit.xla_cpu import threefry
from rlkit.xla_cpu.switch import VARIABLE
from rlkit.xla_cpu.threefry import SMALL, hash_rolled, hash_unrolled

pytestmark = pytest.mark.fast
JAX_LOWER = jax.stages.Traced.lower

# Known answers of the Random123 library (kat_vectors, threefry2x32, 20 rounds): key, counter,
# output.
KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]
# Draws on both sides of SMALL, of which a process without rlkit and this one must make the same.
DRAWS = f"""
SMALL = {SMALL}
import jax
def draws():
    key = jax.random.key(7)
    shapes = (), (1,), (3,), (SMALL,), (SMALL + 1,), (8, 8), (3, SMALL)
    yield from (jax.random.bits(key, shape) for shape in shapes)
    yield from (jax.random.key_data(jax.random.split(key, n)) for n in (2, SMALL, SMALL + 1))
    yield jax.random.key_data(jax.random.fold_in(key, 12))
    folded = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, jax.numpy.arange(5))
    yield jax.random.key_data(folded)
    yield jax.vmap(lambda k: jax.random.bits(k, (20,)))(jax.random.split(key, 9))
    yield jax.vmap(lambda k: jax.random.bits(k, (200,)))(jax.random.split(key, 9))
    yield jax.random.permutation(key, 100).astype("uint32")
def drawn():
    return [x.tolist() for x in jax.jit(lambda: list(draws()))()]
"""


@pytest.fixture(autouse=True)
def registered():
    """The hash in every program of the tests, and JAX's own afterwards."""
    assert threefry.register()
    yield
    assert threefry.unregister()


on_cpu = pytest.mark.skipif(jax.default_backend() != "cpu", reason="the lowering is for a CPU")


@pytest.mark.parametrize("form", [hash_rolled, hash_unrolled])
@pytest.mark.parametrize(("key", "counter", "output"), KNOWN)
def test_known_answers(form, key, counter, output):
    found = form(*(jnp.uint32(x) for x in (*key, *counter)))
    assert tuple(int(x) for x in found) == output


def test_forms_agree(key):
    words = [jax.random.bits(k, (50,)) for k in jax.random.split(key, 4)]
    np.testing.assert_array_equal(hash_rolled(*words), hash_unrolled(*words))


def test_draws_what_jax_draws_alone():
    code = DRAWS + "import json; print(json.dumps(drawn()))"
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here: dict = {}
    exec(DRAWS, here)
    assert here["drawn"]() == json.loads(alone.stdout)


@on_cpu
@pytest.mark.parametrize(("num", "loops"), [(SMALL, 0), (SMALL + 1, 1)])
def test_small_draws_are_no_loop(key, num, loops):
    program = jax.jit(lambda k: jax.random.bits(k, (num,))).lower(key).compile().as_text()
    assert program.count(" while(") == loops


@on_cpu
def test_no_hash_is_computed_for_each_that_reads_it(key):
    """In a chain of keys, as of a network and its layers, where XLA would compute each again for
    every one behind it.
    """

    def several(key):
        for _ in range(5):
            key, _ = jax.random.split(key)
        return [jax.random.normal(k, (3, 4))[i] for i, k in enumerate(jax.random.split(key, 4)[:3])]

    program = jax.jit(several).lower(key).compile().as_text()
    rounds = program.count(" shift-left(") / 20
    assert rounds <= 2 * (5 + 1 + 3)  # once for each word of the stack


@on_cpu
def test_a_large_draw_is_a_loop_over_fewer_arrays():
    code = (
        "print(jax.jit(lambda: jax.random.bits(jax.random.key(0),"
        f" ({SMALL + 1},))).lower().as_text())"
    )
    alone = subprocess.run(
        [sys.executable, "-c", "import jax; " + code], capture_output=True, text=True, check=True
    ).stdout
    here = jax.jit(lambda: jax.random.bits(jax.random.key(0), (SMALL + 1,))).lower().as_text()
    found = [text.count("%iterArg") for text in (loop_of(here), loop_of(alone))]
    assert found[0] < found[1]


def loop_of(text):
    """The line that begins the only loop of a lowered program."""
    (line,) = (line for line in text.splitlines() if "stablehlo.while" in line)
    return line


def test_sizes_that_are_known_only_later_and_none():
    (size,) = jax.export.symbolic_shape("b")
    noisy = jax.jit(lambda x: x + jax.random.normal(jax.random.key(1), x.shape))
    exported = jax.export.export(noisy)(jax.ShapeDtypeStruct((size, 3), jnp.float32))
    for rows in (2, 40):
        np.testing.assert_array_equal(
            exported.call(jnp.zeros((rows, 3))), noisy(jnp.zeros((rows, 3)))
        )
    assert jax.jit(lambda k: jax.random.bits(k, (0,)))(jax.random.key(0)).shape == (0,)


@on_cpu
@pytest.mark.parametrize("setting", ["on", "off", "no-threefry"])
def test_one_program_alone(key, monkeypatch, setting):
    """What a user compiles of the same function, before and after, keeps JAX's hash."""
    monkeypatch.setenv(VARIABLE, setting)
    threefry.unregister()

    def draw(k):
        return jax.random.bits(k, (3,))

    def loops(lower):
        return lower(jax.jit(draw).trace(key)).compile().as_text().count(" while(")

    counts = [loops(lower) for lower in (JAX_LOWER, threefry.lower, JAX_LOWER)]
    assert counts == [1, 0 if setting == "on" else 1, 1]


@on_cpu
def test_the_compiler_of_a_run_lowers_so(key):
    threefry.unregister()
    compiled = Compiler(1)(lambda k: jax.random.bits(k, (3,)))
    found = compiled(key)
    assert compiled.executable.as_text().count(" while(") == 0
    np.testing.assert_array_equal(found, jax.random.bits(key, (3,)))


def test_a_jax_without_the_primitive_draws_its_own_way(key, monkeypatch):
    threefry._primitive_and_rule.cache_clear()
    with monkeypatch.context() as patch:
        patch.delattr(jax.extend.random, "threefry2x32_p")
        assert not threefry.register()
        assert not threefry.unregister()
        assert threefry.lower(jax.jit(jax.random.bits).trace(key)).compile()(key)
    threefry._primitive_and_rule.cache_clear()


@on_cpu
def test_a_jax_without_rules_of_one_program_draws_its_own_way(key, monkeypatch):
    threefry.unregister()
    monkeypatch.setattr(threefry, "_parameters", lambda: None)
    program = threefry.lower(jax.jit(lambda k: jax.random.bits(k)).trace(key)).compile().as_text()
    assert program.count(" while(") == 1
