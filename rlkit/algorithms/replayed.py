"""Sampled transitions, of one step or several, and how they are read from a replay memory."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from rlkit.algorithms.packed_transition import of_flags
from rlkit.algorithms.replay_storage import Ring
from rlkit.types import Obs, PyTree, Sequences


class Replayed(struct.PyTreeNode, kw_only=True):
    """Sampled transitions of one or several steps, leaves [M, ...]; observations not normalised.

    For agents with memory, they are the steps of sequences.
    """

    obs: Obs | Sequences
    action: Array
    reward: Array  # [M] the discounted sum of rewards from here to `next_obs`
    discount: Array  # [M] of the value of `next_obs`: γ^k after k steps, 0 where the task ended
    next_obs: Obs | Sequences  # of the same steps as `obs`, with other results
    extras: dict[str, PyTree]  # what the agent added when it acted, zero for random actions
    # [M] weights of the errors in a loss: 1, or a correction for sampling that is not uniform
    weight: Array
    index: Array  # [M] int32: position in the memory, row · N + column; where the sequence begins


def window(ring: Ring, age: Array, env: Array, *, gamma: float | Array, n_step: int) -> Replayed:
    """The transitions that start `age` [M] rows after the oldest one, in columns `env` [M].

    See `UniformReplay`.
    """
    layout, row, gamma = ring.layout, ring.row(age), jnp.asarray(gamma, jnp.float32)
    if n_step == 1:
        (reward, flags), before, next_obs = ring.read(
            row, env, layout.outcome, layout.before, layout.after
        )
        terminated, _ = of_flags(flags)
        discount = gamma * (1.0 - terminated)
    else:
        ages = age[:, None] + jnp.arange(n_step)  # [M, n]
        [(rewards, flags)] = ring.read(ring.row(ages), env[:, None], layout.outcome)
        terminated, truncated = of_flags(flags)
        done = terminated | truncated
        # Step k counts if it is stored and none of the k before it ended an episode.
        ended_before = jnp.pad(jnp.cumsum(done, axis=1)[:, :-1], ((0, 0), (1, 0)))
        counts = (ages < ring.size) & (ended_before == 0)
        reward = jnp.where(counts, gamma ** jnp.arange(n_step) * rewards, 0.0).sum(1)
        num_counted = counts.sum(1)
        is_over = jnp.take_along_axis(terminated, num_counted[:, None] - 1, axis=1)[:, 0]
        discount = gamma**num_counted * (1.0 - is_over)
        [before] = ring.read(row, env, layout.before)
        [next_obs] = ring.read(ring.row(age + num_counted - 1), env, layout.after)
    obs, action, extras = before
    return Replayed(
        obs=obs,
        action=action,
        reward=reward,
        discount=discount,
        next_obs=next_obs,
        extras=extras,
        weight=jnp.ones_like(reward),
        index=row * ring.num_envs + env,
    )
