"""Options by the sizes of the matrix products of a program, wherever these are."""

import jax
import jax.numpy as jnp
import pytest

import rlkit
from rlkit.xla_cpu.xla_options import ON_ONE_THREAD, SMALL_PRODUCT

SMALL, LARGE = jnp.ones((128, 128)), jnp.ones((256, 256))  # 2^21 and 2^24 multiplications


def options(function, *arguments):
    return rlkit.compiler_options(jax.jit(function).trace(*arguments).jaxpr)


def looped(x):
    return jax.lax.scan(lambda c, _: (c @ c, None), x, length=3)[0]


def chosen(x):
    return jax.lax.cond(x[0, 0] > 0, lambda: x @ x, lambda: x)


def waited_for(x):
    return jax.lax.while_loop(lambda c: c[0, 0] < 5, lambda c: c @ c, x)


def differentiated(x):
    return jax.grad(lambda y: (y @ y).sum())(x)


@pytest.mark.parametrize(
    "function",
    [lambda x: x @ x, looped, chosen, waited_for, differentiated, jax.jit(lambda x: x @ x)],
)
def test_small_products_take_one_thread(function):
    assert options(function, SMALL) == ON_ONE_THREAD
    assert options(function, LARGE) == {}


def test_batches_count_as_a_whole():
    """As of seeds side by side."""
    assert options(jax.vmap(looped), jnp.stack([SMALL] * 2)) == ON_ONE_THREAD
    assert options(jax.vmap(looped), jnp.stack([SMALL] * 3)) == {}
    assert SMALL_PRODUCT == 2 * 128**3


def test_convolutions_are_large_and_nothing_is_small():
    image, kernel = jnp.ones((1, 8, 8, 1)), jnp.ones((3, 3, 1, 1))

    def convolve(x, k):
        return jax.lax.conv_general_dilated(
            x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    assert options(convolve, image, kernel) == {}
    assert options(lambda x: x + 1, LARGE) == ON_ONE_THREAD


def test_other_devices_are_left_alone(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert options(looped, SMALL) == {}


@pytest.mark.parametrize("setting", ["off", "no-compiler-options"])
def test_can_be_switched_off(monkeypatch, setting):
    monkeypatch.setenv("RLKIT_CPU_TUNING", setting)
    assert options(looped, SMALL) == {}
