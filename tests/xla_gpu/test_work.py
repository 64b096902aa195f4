"""Work counted by hand."""

import math

import jax
import jax.numpy as jnp
import pytest

from rlkit.xla_gpu.work import Work, work_of

pytestmark = pytest.mark.fast

ROW = jax.ShapeDtypeStruct((3,), jnp.float32)


def work(function, *args):
    return work_of(jax.make_jaxpr(function)(*args))


def test_operations_and_the_numbers_that_they_compute():
    assert work(lambda x: x + x, ROW) == Work(1, 3)
    assert work(lambda x: (x * x).sum(), ROW) == Work(2, 4)
    assert work(lambda x: x, ROW) == Work(0, 0)


def test_what_is_inside_counts_and_not_what_holds_it():
    assert work(lambda x: jax.jit(lambda y: y * y)(x), ROW) == Work(1, 3)


def test_a_loop_counts_as_often_as_it_runs():
    def five_times(x):
        return jax.lax.scan(lambda c, _: (c * c, None), x, length=5)[0]

    assert work(five_times, ROW) == Work(5, 15)


def test_both_branches_count():
    def either(x, flag):
        return jax.lax.cond(flag, lambda: x * x, lambda: x * x * x)

    flag = jax.ShapeDtypeStruct((), jnp.bool_)
    extra = work(lambda flag: flag.astype(jnp.int32), flag).operations  # the index of the branch
    assert work(either, ROW, flag).operations == 3 + extra


def test_a_loop_of_unknown_length_is_endless():
    def halved(x):
        return jax.lax.while_loop(lambda y: y.sum() > 1, lambda y: y / 2, x)

    assert work(halved, ROW) == Work(math.inf, math.inf)


def test_what_a_scatter_adds_with_is_no_work_of_its_own():
    assert work(lambda x: jnp.zeros(9).at[0].add(x[0]), ROW).numbers >= 9


def test_a_call_of_python_is_endless():
    def called(x):
        return jax.pure_callback(lambda x: x, ROW, x)

    assert work(called, ROW) == Work(math.inf, math.inf)


def test_an_empty_loop_is_endless_too():
    def nothing(x):
        return jax.lax.while_loop(lambda _: False, lambda y: y, x)

    assert work(nothing, ROW) == Work(math.inf, math.inf)
