"""Sampled sequences of transitions, for agents with memory.

As in R2D2 (Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed Reinforcement
Learning"): a sequence begins with the memory that was stored there, its first steps bring that up
to date for the parameters of today, and n-step sums stay within it. Differs from the paper in that
sequences may begin at every step and go on over the ends of episodes, and in rewards and values,
which are not rescaled.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from rlkit.algorithms.packed_transition import of_flags
from rlkit.algorithms.replay_storage import Ring
from rlkit.algorithms.replayed import Replayed
from rlkit.ops.rows import flatten, where_rows
from rlkit.types import PyTree, Sequences


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceReader:
    """Reads sequences of `burn_in` and `length` steps, and what n-step sums need beyond them.

    The observations of a sequence stand in the order in which an agent would see them, W places:
    that of each step and, where an episode ends, its final one. All results come from one pass over
    them, so the value of a time limit's final observation has the memory of its episode. In the
    place of a final observation no action was taken; the step before it counts twice instead (the
    step after it, if it is the first that is learned from).
    """

    length: int  # L, at least 2
    burn_in: int
    n_step: int
    gamma: float | Array

    @property
    def num_rows(self) -> int:
        """R, the steps that are read: places W less one."""
        return self.burn_in + self.length + self.n_step - 1

    def read(self, ring: Ring, age: Array, env: Array) -> Replayed:
        """Those that start `age` [S] rows after the oldest one, in columns `env` [S].

        Leaves are [L·S, ...], step by step; `index` is that of the first step of the sequence. All
        rows must be stored.
        """
        layout = ring.layout
        rows = ring.row(age + jnp.arange(self.num_rows)[:, None])  # [R, S]
        (reward, flags), (obs, action, extras), next_obs = ring.read(
            rows, env, layout.outcome, layout.before, layout.after
        )
        [carry] = ring.read(rows[0], env, layout.carry)  # [S, ...]
        terminated, truncated = of_flags(flags)
        done = terminated | truncated
        step, is_last = _places(done)  # [W, S]
        seen = where_rows(is_last, _at(next_obs, step), _at(obs, step))
        restart = jnp.pad(is_last[:-1], ((1, 0), (0, 0)))
        first = self._learned(is_last)  # [L, S]
        reward, num_steps = self._sums(_at((reward, done), step), first)
        is_over = _at(_at(terminated, step), first + num_steps - 1)
        discount = jnp.asarray(self.gamma, jnp.float32) ** num_steps * (1.0 - is_over)
        action, extras = flatten(_at((action, extras), _at(step, first)))

        def results(place: Array) -> Sequences:
            column = jnp.arange(place.shape[1])
            at = ((place - self.burn_in) * place.shape[1] + column).ravel()
            return Sequences(obs=seen, carry=carry, restart=restart, at=at, burn_in=self.burn_in)

        start = rows[0] * ring.num_envs + env
        return Replayed(
            obs=results(first),
            action=action,
            reward=reward.ravel(),
            discount=discount.ravel(),
            next_obs=results(first + num_steps),
            extras=extras,
            weight=jnp.ones(first.size),
            index=jnp.broadcast_to(start, first.shape).ravel(),
        )

    def _learned(self, is_last: Array) -> Array:
        """The places of the steps that are learned from, [L, S]."""
        place = jnp.arange(self.burn_in, self.burn_in + self.length)[:, None]
        instead = jnp.where(place == self.burn_in, place + 1, place - 1)
        return jnp.where(is_last[self.burn_in : self.burn_in + self.length], instead, place)

    def _sums(self, steps: tuple[Array, Array], first: Array) -> tuple[Array, Array]:
        """(discounted sums of rewards, how many were summed) from places `first` on, both [L, S].

        `steps` are (reward, done) [W, S].
        """
        gamma = jnp.asarray(self.gamma, jnp.float32)
        total, num, goes_on = jnp.zeros(first.shape), jnp.zeros_like(first), True
        for k in range(self.n_step):
            reward, done = _at(steps, first + k)
            total += jnp.where(goes_on, gamma**k * reward, 0.0)
            num += jnp.where(goes_on, 1, 0)
            goes_on = goes_on & ~done
        return total, num


def _places(done: Array) -> tuple[Array, Array]:
    """(step, is last) of each place, [W, S], for steps that end episodes where `done` [R, S].

    The last place of an episode, and that after the last step, holds what follows its step.
    """
    ends_before = jnp.cumsum(done, axis=0) - done
    begins = jnp.arange(len(done))[:, None] + ends_before  # the place of each step
    place = jnp.arange(len(done) + 1)[:, None]
    step = (begins[None] <= place[:, None]).sum(axis=1) - 1
    return step, place > _at(begins, step)


def _at(tree: PyTree, index: Array) -> Any:
    """Leaves [W, S, ...] at rows `index` [L, S], column by column."""
    return jax.vmap(lambda x, i: jax.tree.map(lambda leaf: leaf[i], x), 1, 1)(tree, index)
