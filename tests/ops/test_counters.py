"""Counts stay exact beyond 2³¹ and 2³²."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlkit.ops.counters import StepCounter

EDGES = [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 5, 2**40 + 3, 2**63 + 1]


@pytest.mark.parametrize("value", EDGES)
def test_create_and_read(value):
    assert StepCounter.create(value).to_int() == value
    assert float(StepCounter.create(value).to_float()) == pytest.approx(value, rel=1e-7)


@pytest.mark.parametrize("start", EDGES)
@pytest.mark.parametrize("amount", [0, 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("compiled", [False, True])
def test_add_is_exact(start, amount, compiled):
    def add(counter, n):
        return counter.add(n)

    add = jax.jit(add) if compiled else add
    assert add(StepCounter.create(start), jnp.uint32(amount)).to_int() == start + amount


def test_add_across_the_carry_under_vmap_and_scan():
    starts = [2**32 - 2, 5, 2**33 - 1]
    counters = jax.tree.map(lambda *x: np.stack(x), *map(StepCounter.create, starts))
    ended = jax.jit(
        jax.vmap(lambda c: jax.lax.scan(lambda c, _: (c.add(3), None), c, length=4)[0])
    )(counters)
    for i, start in enumerate(starts):
        assert jax.tree.map(lambda x, i=i: np.asarray(x)[i], ended).to_int() == start + 12
    assert ended.to_int() == starts[0] + 12  # of several seeds the first


def test_ten_billion_steps_lose_none():
    counter, _ = jax.lax.scan(
        lambda c, _: (c.add(1_000_000_007), None), StepCounter.create(), length=10
    )
    assert counter.to_int() == 10_000_000_070


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 100, 2**16 - 1, 2**16])
def test_remainder_is_exact(divisor):
    counts = [*EDGES, 2**64 - 1]
    counters = jax.tree.map(lambda *x: np.stack(x), *map(StepCounter.create, counts))
    found = jax.jit(jax.vmap(lambda counter: counter.remainder(divisor)))(counters)
    assert found.dtype == jnp.uint32 and found.tolist() == [count % divisor for count in counts]


def test_python_integers_are_amounts_too():
    assert StepCounter.create(2**32 - 1).add(1).to_int() == 2**32
    assert np.asarray(StepCounter.create().add(7).low).dtype == np.uint32


@pytest.mark.parametrize("divisor", [1, 7, 1000, 2**16, 2**31 + 1])
def test_multiples_that_were_passed(divisor):
    passed = jax.jit(lambda since, count: count.passed_multiple(since, divisor))
    for start in (0, 1, divisor - 1, divisor, 2**32 - 7):
        for end in range(start, start + 6):
            found = passed(StepCounter.create(start), StepCounter.create(end))
            assert found == (start // divisor != end // divisor), (start, end)
    assert passed(StepCounter.create(2**32 - 1), StepCounter.create(2**32))
    assert not passed(StepCounter.create(2**32), StepCounter.create(2**32))
