"""Whole resets and unrolled rollouts: when they are chosen, and that they change no number."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import by_default

from rlkit.envs import make_env
from rlkit.xla_gpu import resets, rollouts
from rlkit.xla_gpu.resets import resets_all
from rlkit.xla_gpu.rollouts import scan_rollout


@pytest.fixture
def on(monkeypatch):
    for module in (resets, rollouts):
        monkeypatch.setattr(module, "is_on", lambda _: True)


@pytest.mark.fast
def test_on_a_cpu_nothing_changes(key):
    assert not resets_all(make_env("gymnax/CartPole-v1", 4).env.reset, key, 4)


@pytest.mark.parametrize(
    ("env", "num_envs", "whole"),
    [
        ("gymnax/CartPole-v1", 65_536, True),
        ("gymnax/Breakout-MinAtar", 4096, True),
        ("gymnax/Breakout-MinAtar", 65_536, False),  # too many numbers
    ],
)
def test_cheap_resets_are_whole(on, key, env, num_envs, whole):
    assert resets_all(make_env(env, 2).env.reset, key, num_envs) == whole


@pytest.mark.fast
def test_long_resets_are_not_whole(on, key):
    def long(key):
        x = jax.random.uniform(key)
        for _ in range(resets.MOST_OPERATIONS):
            x = x * x
        return x

    def endless(key):
        return jax.lax.while_loop(lambda x: x < 0.9, lambda x: x + 0.1, jax.random.uniform(key))

    assert not resets_all(long, key, 1) and not resets_all(endless, key, 1)


@pytest.mark.parametrize(
    "env",
    by_default(["gymnax/CartPole-v1"], ["gymnax/CartPole-v1", "gymnax/Breakout-MinAtar"]),
)
def test_whole_resets_equal_those_in_blocks(key, monkeypatch, env):
    def run(whole):
        monkeypatch.setattr(resets, "is_on", lambda _: whole)
        adapter = make_env(env, 40)

        def step(state, key):
            action = jnp.arange(40) % 2
            state, found = adapter.step(key, state, action)
            return state, found

        state, _ = adapter.reset(key)
        assert ("while" in str(jax.make_jaxpr(step)(state, key))) != whole
        return jax.jit(lambda s: jax.lax.scan(step, s, jax.random.split(key, 60)))(state)

    blocks, whole = run(False), run(True)
    assert blocks[1].terminated.any()
    for a, b in zip(jax.tree.leaves(blocks), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)  # two programs round apart


@pytest.mark.parametrize("num_steps", [1, 5, 8, 20])
def test_unrolled_rollouts_equal_the_loop(on, key, monkeypatch, num_steps):
    def step(carry, x):
        carry = carry + x
        return carry, (carry, 2 * x)

    rows = jnp.arange(float(num_steps))
    unrolled = scan_rollout(step, jnp.zeros(()), rows, num_steps)
    text = str(jax.make_jaxpr(lambda r: scan_rollout(step, jnp.zeros(()), r, num_steps))(rows))
    assert f"unroll={min(num_steps, rollouts.STEPS)}" in text
    monkeypatch.setattr(rollouts, "is_on", lambda _: False)
    plain = scan_rollout(step, jnp.zeros(()), rows, num_steps)
    for a, b in zip(jax.tree.leaves(unrolled), jax.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.fast
def test_long_steps_are_not_unrolled(on):
    def step(carry, x):
        for _ in range(rollouts.MOST_OPERATIONS + 1):
            carry = carry * carry
        return carry, x

    text = str(jax.make_jaxpr(lambda r: scan_rollout(step, jnp.zeros(()), r, 9))(jnp.arange(9.0)))
    assert "unroll=1" in text
