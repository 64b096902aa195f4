"""Pink noise: its spectrum, its distribution at every age, and what is independent of what."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from rlkit.agents.action_noise import DECAY, PinkNoise, WhiteNoise, action_noise
from rlkit.agents.base import carries_memory
from rlkit.agents.configs import DeterministicActorCriticConfig, SoftActorCriticConfig
from rlkit.agents.deterministic import deterministic_actor_critic
from rlkit.agents.soft_actor_critic import soft_actor_critic
from rlkit.errors import ConfigError
from rlkit.ops.rows import where_rows
from rlkit.types import NoiseState

OBS, BOX = spaces.Box(-1.0, 1.0, (3,)), spaces.Box(-2.0, 2.0, (2,))


def series(noise, num_envs, num_steps, *, seed=0, restart_at=()):
    """The noise of `num_steps` steps, [T, N, *shape]; new episodes begin at `restart_at`."""

    @jax.jit
    def program(keys, restarts):
        initial = noise.initial_carry(num_envs)

        def step(carry, x):
            key, restart = x
            done = jnp.broadcast_to(restart, (num_envs,))
            drawn, carry = noise.draw(where_rows(done, initial, carry), key, num_envs)
            return carry, drawn

        return jax.lax.scan(step, initial, (keys, restarts))[1]

    restarts = np.isin(np.arange(num_steps), restart_at)
    return np.asarray(program(jax.random.split(jax.random.key(seed), num_steps), restarts))


def slope(power, low, high):
    """The exponent of the power over frequencies [0, 1/2] within [low, high], a line through the
    means of ten bins to a decade.
    """
    frequency = np.linspace(0.0, 0.5, len(power))
    edges = np.geomspace(low, high, 1 + round(10 * np.log10(high / low)))
    bins = [
        (frequency[among].mean(), power[among].mean())
        for a, b in itertools.pairwise(edges)
        if (among := (frequency >= a) & (frequency < b)).any()
    ]
    return np.polyfit(*np.log(bins).T, 1)[0]


def periodogram(x):
    """The mean power of series [T, M], through a Hann window, at frequencies [T/2 + 1]."""
    window = np.hanning(len(x))[:, None]
    return (np.abs(np.fft.rfft(x * window, axis=0)) ** 2).mean(1)


def test_the_power_falls_as_one_over_f():
    """Over the two decades from 1/1000 to 1/10 per step, and in those from 1/100 and to Nyquist."""
    x = series(PinkNoise((3,)), 40, 8192).reshape(8192, -1)
    power = periodogram(x)
    for low, high in ((0.001, 0.1), (0.01, 0.1), (0.05, 0.5)):
        assert slope(power, low, high) == pytest.approx(-1.0, abs=0.1), (low, high)
    flat = periodogram(series(WhiteNoise((3,)), 40, 8192).reshape(8192, -1))
    assert slope(flat, 0.001, 0.1) == pytest.approx(0.0, abs=0.1)


def test_the_spectrum_is_that_of_the_formula():
    """The sum of the processes' spectra: within 0.7 dB of 1/f from 1/1000 to Nyquist."""
    frequency, a = np.geomspace(0.001, 0.5, 500)[:, None], DECAY.astype(np.float64)
    each = (1 - a**2) / (1 + a**2 - 2 * a * np.cos(2 * np.pi * frequency))
    ratio = each.mean(1) * frequency[:, 0]
    decibels = 10 * np.log10(ratio / np.exp(np.log(ratio).mean()))
    assert np.abs(decibels).max() < 0.7


def test_every_step_is_standard_normal():
    """From the first one on, and again after an episode has ended."""
    x = series(PinkNoise(()), 20_000, 30, restart_at=(15,))
    error = 5 / np.sqrt(20_000)
    np.testing.assert_allclose(x.mean(1), 0.0, atol=error)
    np.testing.assert_allclose(x.var(1), 1.0, atol=error * np.sqrt(2))
    np.testing.assert_allclose((x**4).mean(1), 3.0, atol=error * np.sqrt(96))


def test_what_is_correlated():
    """Steps of an episode: by the mean of DECAY**lag. Neither episodes, environments nor dimensions
    of the action.
    """
    x = series(PinkNoise((2,)), 20_000, 20, restart_at=(12,))
    error = 5 / np.sqrt(20_000)

    def correlation(one, other):
        return np.corrcoef(one, other)[0, 1]

    for lag in (1, 2, 8):
        wanted = (DECAY.astype(np.float64) ** lag).mean()
        assert correlation(x[3, :, 0], x[3 + lag, :, 0]) == pytest.approx(wanted, abs=error)
    assert (DECAY.astype(np.float64)).mean() == pytest.approx(0.797, abs=1e-3)
    assert abs(correlation(x[11, :, 0], x[12, :, 0])) < error  # across the end of an episode
    assert correlation(x[12, :, 0], x[13, :, 0]) > 0.75
    assert abs(correlation(x[10, :, 0], x[10, :, 1])) < error
    pairs = x[10, :, 0].reshape(-1, 2)
    assert abs(correlation(*pairs.T)) < error * np.sqrt(2)


def test_only_those_that_are_done_start_anew():
    noise = PinkNoise(())
    initial = noise.initial_carry(3)

    @jax.jit
    def program(keys):
        _, carry = noise.draw(initial, keys[0], 3)
        done = jnp.array([False, True, False])
        return (
            carry,
            *noise.draw(where_rows(done, initial, carry), keys[1], 3),
            noise.draw(carry, keys[1], 3)[0],
        )

    before, drawn, after, undisturbed = program(jax.random.split(jax.random.key(0), 2))
    np.testing.assert_array_equal(before.age, [1, 1, 1])
    np.testing.assert_array_equal(after.age, [2, 1, 2])
    same = np.isclose(drawn, undisturbed, rtol=1e-5)  # XLA fuses products and sums as it likes
    np.testing.assert_array_equal(same, [True, False, True])


def agents(color):
    pink = {"noise_color": color, "hidden_sizes": (8,)}
    return {
        "sac": soft_actor_critic(OBS, BOX, SoftActorCriticConfig(**pink)),
        "td3": deterministic_actor_critic(OBS, BOX, DeterministicActorCriticConfig(**pink)),
    }


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_agents_explore_with_it(name, key):
    """Its draws take the place of those of white noise; `exploit` needs none."""
    pink, white = agents("pink")[name], agents("white")[name]
    carry = pink.initial_carry(5)
    assert isinstance(carry, NoiseState) and not carries_memory(carry)
    assert white.initial_carry(5) == ()
    obs = np.linspace(-1.0, 1.0, 15, dtype=np.float32).reshape(5, 3)

    def explored(agent, params, carry, key):
        action, carry, extras = agent.explore(params, obs, carry, key, jnp.float32(0.0))
        assert extras == {}
        return action, carry

    @jax.jit
    def program(key):
        params, keys = pink.init(key), jax.random.split(key, 2)
        noise, drawn = PinkNoise((2,)).draw(carry, keys[0], 5)
        noise, _ = PinkNoise((2,)).draw(drawn, keys[1], 5)
        _, kept = explored(pink, params, carry, keys[0])
        if name == "sac":
            wanted = pink.policy(params["actor"], obs).transform(noise)[0]
            independent = pink.policy(params["actor"], obs).sample(keys[1])
        else:
            best = pink.act(params["actor"], obs)
            wanted = jnp.clip(best + 0.1 * noise, -1, 1)
            independent = jnp.clip(best + 0.1 * jax.random.normal(keys[1], best.shape), -1, 1)
        return (
            (explored(pink, params, kept, keys[1])[0], 2.0 * wanted),
            (explored(white, params, (), keys[1])[0], 2.0 * independent),
            (pink.exploit(params, obs, kept, keys[1])[0], white.exploit(params, obs, (), key)[0]),
        )

    for found, wanted in program(key):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.fast
def test_colors():
    assert action_noise("white", (2,)) == WhiteNoise((2,))
    assert action_noise("pink", (2,)) == PinkNoise((2,))
    brown = dataclasses.replace(SoftActorCriticConfig(), noise_color="brown")
    with pytest.raises(ConfigError, match="noise_color"):
        soft_actor_critic(OBS, BOX, brown)
