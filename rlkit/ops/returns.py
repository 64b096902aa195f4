"""Returns and advantages over rollouts [T, ...]; `terminated` and `truncated` are kept apart."""

import jax.numpy as jnp
from jax import Array

# 8 slows down PPO with 512 environments; with 2, XLA recomputes sums repeatedly
RADIX = 4


def gae(
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    *,
    gamma: float | Array,
    gae_lambda: float | Array,
) -> Array:
    """Generalized advantage estimation, [T, ...] (Schulman et al. 2016, eq. 16).

    `next_value` [T, ...] is the value of the true successor of every step (of the last observation
    at the end of an episode). Termination stops bootstrapping (Pardo et al. 2018). Both kinds of
    episode end cut the sum:

        δ_t = r_t + γ V(s_{t+1}) (1 - terminated_t) - V(s_t)
        A_t = δ_t + γ λ (1 - done_t) A_{t+1}

    >>> ones, no = jnp.ones(2), jnp.zeros(2, bool)
    >>> cut = jnp.array([False, True])
    >>> gae(ones, 0 * ones, 10 * ones, no, cut, gamma=0.5, gae_lambda=1.0).tolist()
    [9.0, 6.0]
    """
    delta = reward + gamma * next_value * (1.0 - terminated) - value
    return discounted_sum(delta, gamma * gae_lambda * (1.0 - (terminated | truncated)))


def lambda_returns(
    reward: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    *,
    gamma: float | Array,
    td_lambda: float | Array,
) -> Array:
    """λ-returns, [T, ...] (Sutton & Barto 2018, eq. 12.20).

    G_t = r_t + γ (1 - terminated_t) ((1 - λ_t) V(s_{t+1}) + λ_t G_{t+1}), with λ_t = 0 where the
    episode ends and at t = T - 1, which both bootstrap as in `gae`.
    """
    mix = td_lambda * (1.0 - truncated)
    mix = mix.at[-1].set(0.0)
    alive = gamma * (1.0 - terminated)
    return discounted_sum(reward + alive * (1.0 - mix) * next_value, alive * mix)


def discounted_sum(x: Array, discount: Array) -> Array:
    """y_t = x_t + discount_t · y_{t+1} with y_T = 0, [T, ...] as x.

    `discount` broadcasts to x and lies in [-1, 1]. Instead of looping over time, sums over k steps
    are combined into sums over `RADIX` · k steps, for all t at once. That takes log T rounds of two
    kernels, where a loop starts several kernels per step, and memory for up to three times T rows
    (after Hillis & Steele 1986, "Data parallel algorithms", who double).

    >>> discounted_sum(jnp.array([1.0, 2.0, 4.0]), jnp.full(3, 0.5)).tolist()
    [3.0, 4.0, 4.0]
    """
    length = x.shape[0]
    span = 1 << (length - 1).bit_length()  # the smallest power of two >= T
    beyond = jnp.zeros((span - 1, *x.shape[1:]), x.dtype)
    # Sums over k steps from t, starting with k = 1; nothing is added beyond T.
    sums = jnp.concatenate([x, beyond])
    # discount_t · … · discount_{t+k-1}
    factors = jnp.concatenate([jnp.broadcast_to(discount, x.shape), beyond])
    k = 1
    while k < span:
        radix = min(RADIX, span // k)
        rows = sums.shape[0] - (radix - 1) * k
        *earlier, (total, product) = [
            (sums[i * k :][:rows], factors[i * k :][:rows]) for i in range(radix)
        ]
        for part, factor in reversed(earlier):
            total, product = part + factor * total, factor * product
        sums, factors, k = total, product, radix * k
    return sums  # [T, ...]
