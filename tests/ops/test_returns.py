"""Advantages and λ-returns: hand-checked constants, then a Python loop on random episodes."""

import jax
import numpy as np
import pytest

from rlkit.ops import returns

pytestmark = pytest.mark.fast

discounted_sum = jax.jit(returns.discounted_sum)
gae = jax.jit(returns.gae)
lambda_returns = jax.jit(returns.lambda_returns)

# Three steps, γ = ½, λ = ½. Values V(s_t) = 1, 2, 3; true successors V(s_{t+1}) = 2, 8, 4 (8: a
# final observation of its own, as at the end of an episode). Rewards 1, 1, 1.
REWARD = np.array([1.0, 1.0, 1.0], np.float32)
VALUE = np.array([1.0, 2.0, 3.0], np.float32)
NEXT_VALUE = np.array([2.0, 8.0, 4.0], np.float32)
# δ = r + ½ V' - V = [1 + 1 - 1, 1 + 4 - 2, 1 + 2 - 3] = [1, 3, 0]; where step 1 is terminated δ_1 =
# 1 - 2 = -1.
CASES = {
    # name: (terminated, truncated, A) with A_t = δ_t + ¼ A_{t+1} unless the episode ended at t
    "neither": ([0, 0, 0], [0, 0, 0], [1.75, 3.0, 0.0]),
    "terminated": ([0, 1, 0], [0, 0, 0], [0.75, -1.0, 0.0]),
    "truncated": ([0, 0, 0], [0, 1, 0], [1.75, 3.0, 0.0]),
    "both": ([0, 1, 0], [0, 1, 0], [0.75, -1.0, 0.0]),  # termination wins
}


def flags(values) -> np.ndarray:
    return np.asarray(values, bool)


@pytest.mark.parametrize("case", CASES)
def test_gae_by_hand(case):
    terminated, truncated, wanted = CASES[case]
    found = gae(
        REWARD, VALUE, NEXT_VALUE, flags(terminated), flags(truncated), gamma=0.5, gae_lambda=0.5
    )
    np.testing.assert_array_equal(found, wanted)


def test_only_a_truncation_cuts_the_sum_and_keeps_the_bootstrap():
    """With A_2 = 4 (last reward 5): a cut episode must not see it, an uncut one adds a quarter."""
    reward = np.array([1.0, 1.0, 5.0], np.float32)
    no, cut = flags([0, 0, 0]), flags([0, 1, 0])
    uncut = gae(reward, VALUE, NEXT_VALUE, no, no, gamma=0.5, gae_lambda=0.5)
    truncated = gae(reward, VALUE, NEXT_VALUE, no, cut, gamma=0.5, gae_lambda=0.5)
    terminated = gae(reward, VALUE, NEXT_VALUE, cut, no, gamma=0.5, gae_lambda=0.5)
    np.testing.assert_array_equal(uncut, [2.0, 4.0, 4.0])
    np.testing.assert_array_equal(truncated, [1.75, 3.0, 4.0])
    np.testing.assert_array_equal(terminated, [0.75, -1.0, 4.0])


def test_truncation_equals_adding_the_bootstrap_to_the_reward():
    """The reward edit of Stable-Baselines3: r += γ V(final), then treat it as a termination."""
    no, cut = flags([0, 0, 0]), flags([0, 1, 0])
    edited = REWARD + 0.5 * NEXT_VALUE * cut
    np.testing.assert_array_equal(
        gae(REWARD, VALUE, NEXT_VALUE, no, cut, gamma=0.5, gae_lambda=0.5),
        gae(edited, VALUE, NEXT_VALUE, cut, no, gamma=0.5, gae_lambda=0.5),
    )


@pytest.mark.parametrize(
    ("gamma", "gae_lambda", "wanted"),
    [
        (0.0, 0.5, [0.0, -1.0, -2.0]),  # r - V
        (0.5, 0.0, [1.0, 3.0, 0.0]),  # one-step errors δ
        (1.0, 1.0, [11.0, 9.0, 2.0]),  # δ = [2, 7, 2], summed to the end
        (1.0, 0.0, [2.0, 7.0, 2.0]),
    ],
)
def test_gae_at_the_edges_of_gamma_and_lambda(gamma, gae_lambda, wanted):
    no = flags([0, 0, 0])
    np.testing.assert_array_equal(
        gae(REWARD, VALUE, NEXT_VALUE, no, no, gamma=gamma, gae_lambda=gae_lambda), wanted
    )


@pytest.mark.parametrize(
    ("terminated", "truncated", "td_lambda", "wanted"),
    [
        # G_2 = 1 + ½·4 = 3 in all; G_1 = 1 + ½(½·8 + ½·3) = 3.75, cut: 1 + ½·8 = 5, terminated: 1
        ([0, 0, 0], [0, 0, 0], 0.5, [2.4375, 3.75, 3.0]),
        ([0, 0, 0], [0, 1, 0], 0.5, [2.75, 5.0, 3.0]),
        ([0, 1, 0], [0, 0, 0], 0.5, [1.75, 1.0, 3.0]),
        ([0, 1, 0], [0, 1, 0], 0.5, [1.75, 1.0, 3.0]),
        ([0, 0, 0], [0, 0, 0], 0.0, [2.0, 5.0, 3.0]),
        ([0, 0, 0], [0, 0, 0], 1.0, [2.25, 2.5, 3.0]),
    ],
)
def test_lambda_returns_by_hand(terminated, truncated, td_lambda, wanted):
    found = lambda_returns(
        REWARD, NEXT_VALUE, flags(terminated), flags(truncated), gamma=0.5, td_lambda=td_lambda
    )
    np.testing.assert_array_equal(found, wanted)


def random_rollout(seed: int, num_steps: int = 40, num_envs: int = 5):
    rng = np.random.default_rng(seed)
    reward, value, next_value = rng.normal(size=(3, num_steps, num_envs)).astype(np.float32)
    terminated, truncated = rng.random((2, num_steps, num_envs)) < 0.15
    return reward, value, next_value, terminated, truncated


def loop_gae(reward, value, next_value, terminated, truncated, gamma, lam):
    advantage = np.zeros_like(reward, dtype=np.float64)
    for n in range(reward.shape[1]):
        following = 0.0
        for t in reversed(range(reward.shape[0])):
            if terminated[t, n]:
                following = reward[t, n] - value[t, n]
            elif truncated[t, n]:
                following = reward[t, n] + gamma * next_value[t, n] - value[t, n]
            else:
                following = (
                    reward[t, n] + gamma * next_value[t, n] - value[t, n] + gamma * lam * following
                )
            advantage[t, n] = following
    return advantage


def loop_lambda_returns(reward, next_value, terminated, truncated, gamma, lam):
    returns = np.zeros_like(reward, dtype=np.float64)
    last = reward.shape[0] - 1
    for n in range(reward.shape[1]):
        following = 0.0
        for t in reversed(range(reward.shape[0])):
            if terminated[t, n]:
                following = reward[t, n]
            elif truncated[t, n] or t == last:
                following = reward[t, n] + gamma * next_value[t, n]
            else:
                following = reward[t, n] + gamma * ((1 - lam) * next_value[t, n] + lam * following)
            returns[t, n] = following
    return returns


@pytest.mark.parametrize("seed", range(5))
def test_equal_to_a_python_loop(seed):
    reward, value, next_value, terminated, truncated = random_rollout(seed)
    gamma, lam = 0.97, 0.9
    found = gae(reward, value, next_value, terminated, truncated, gamma=gamma, gae_lambda=lam)
    wanted = loop_gae(reward, value, next_value, terminated, truncated, gamma, lam)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    found = lambda_returns(reward, next_value, terminated, truncated, gamma=gamma, td_lambda=lam)
    np.testing.assert_allclose(
        found,
        loop_lambda_returns(reward, next_value, terminated, truncated, gamma, lam),
        rtol=1e-4,
        atol=1e-5,
    )


def test_lambda_returns_are_gae_plus_value():
    """λ-return = A + V if the successor's value is the next row's, as within an episode."""
    reward, value, next_value, terminated, _ = random_rollout(7)
    consistent = np.concatenate([value[1:], next_value[-1:]])
    arrays = consistent, terminated, np.zeros(reward.shape, bool)
    advantage = np.asarray(gae(reward, value, *arrays, gamma=0.9, gae_lambda=0.8))
    found = lambda_returns(reward, *arrays, gamma=0.9, td_lambda=0.8)
    np.testing.assert_allclose(found, advantage + value, rtol=1e-4, atol=1e-5)


def test_traced_gamma_and_lambda():
    """γ and λ may be traced, with one of each per member of a sweep."""
    no = flags([0, 0, 0])
    gammas, lambdas = np.array([[0.5, 1.0], [0.5, 1.0]], np.float32)
    found = jax.vmap(
        lambda g, lam: gae(REWARD, VALUE, NEXT_VALUE, no, no, gamma=g, gae_lambda=lam)
    )(gammas, lambdas)
    np.testing.assert_array_equal(found, [[1.75, 3.0, 0.0], [11.0, 9.0, 2.0]])


def test_discounted_sum_takes_a_discount_per_step():
    found = discounted_sum(np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.0, 9.0]))
    np.testing.assert_array_equal(found, [2.0, 2.0, 4.0])


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 8, 16, 17, 63, 64, 65, 257])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_discounted_sum_is_the_recursion_at_any_length(length, shape):
    rng = np.random.default_rng(0)
    x, discount = rng.normal(size=(length, *shape)), rng.uniform(-0.5, 1.2, (length, *shape))
    wanted, following = np.zeros(x.shape), np.zeros(shape)
    for t in reversed(range(length)):
        following = wanted[t] = x[t] + discount[t] * following
    np.testing.assert_allclose(discounted_sum(x, discount), wanted, rtol=1e-4, atol=1e-5)


def test_discounted_sum_over_a_constant_discount_is_a_geometric_series():
    found = discounted_sum(np.ones(2000), 0.99)
    np.testing.assert_allclose(
        found, (1 - 0.99 ** np.arange(2000, 0, -1.0)) / (1 - 0.99), rtol=1e-5
    )


def test_gradient_of_discounted_sum():
    gradient = jax.jit(jax.grad(lambda x: discounted_sum(x, np.full(5, 0.5))[1]))(np.ones(5))
    np.testing.assert_allclose(gradient, [0.0, 1.0, 0.5, 0.25, 0.125])
    # y_0 = 1 + d_0 (1 + d_1 (1 + d_2 (…))), of which the derivative by d_1 = 0 is d_0 y_2, and
    # those behind it are 0.
    discount = np.array([0.5, 0.0, 0.5, 0.5, 0.5, 0.5, 2.0])
    gradient = jax.jit(jax.grad(lambda d: discounted_sum(np.ones(7), d)[0]))(discount)
    np.testing.assert_allclose(gradient, [1.0, 0.5 * 1.9375, 0.0, 0.0, 0.0, 0.0, 0.0])


def test_discounted_sums_side_by_side():
    x, discount = np.random.default_rng(0).random((2, 3, 200), np.float32)
    together = np.asarray(jax.vmap(discounted_sum)(x, discount))
    for found, one, by in zip(together, x, discount, strict=True):
        np.testing.assert_allclose(found, discounted_sum(one, by), rtol=1e-6)


def test_discounted_sum_is_a_few_kernels():
    """And no loop, which would launch kernels for each step on a GPU."""
    text = discounted_sum.lower(np.ones((128, 4)), np.ones((128, 4))).compile().as_text()
    assert " while(" not in text
    assert text.split("ENTRY")[1].count(" fusion(") <= 10
