"""Sequences of steps for agents with memory: what they are cut from and how batches hold them.

An agent without memory takes observations [B, ...] in every method that losses call; one with
memory takes `Sequences` in their place. Results are [B] either way, so losses serve both.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from rlkit.algorithms.configs import require_divides
from rlkit.ops.rows import flatten
from rlkit.types import Carry, Obs, PyTree, Rollout, Sequences

CARRY = "carry"  # name of the memory before each step in the extras of a rollout, [T, N, ...]


class SequenceDataset(struct.PyTreeNode, kw_only=True):
    """The samples of a rollout, in sequences of L steps: S of them, N for each T/L."""

    steps: PyTree  # a batch with leaves [L, S, ...] in place of [M, ...]
    carry: Carry  # [S, ...] the memory before the first step
    restart: Array  # [L, S] bool: an episode begins with the step

    @property
    def num_sequences(self) -> int:
        """S."""
        return self.restart.shape[1]

    def batch(self, index: Array | None) -> Any:
        """The batch of the sequences at `index` [M] (None: all), leaves [L·M, ...]."""

        def chosen(tree: PyTree, axis: int) -> PyTree:
            return tree if index is None else jax.tree.map(lambda x: x.take(index, axis), tree)

        steps = chosen(self.steps, 1)
        obs = Sequences(obs=steps.obs, carry=chosen(self.carry, 0), restart=chosen(self.restart, 1))
        return flatten(steps.replace(obs=())).replace(obs=obs)


def has_memory(rollout: Rollout) -> bool:
    """Whether an agent with memory collected it."""
    return CARRY in rollout.extras


def as_inputs(rollout: Rollout, obs: Obs) -> Obs | Sequences:
    """What an agent takes to see every step of a rollout; `obs` [T, N, ...] are normalised.

    Results are [T·N]. The memory is computed from that before the first step.
    """
    if not has_memory(rollout):
        return flatten(obs)
    first = jax.tree.map(lambda x: x[0], rollout.extras[CARRY])
    return Sequences(obs=obs, carry=first, restart=_restarts(rollout.done))


def values_after(value: Callable[[Any], Array], rollout: Rollout, obs: Obs, next_obs: Obs) -> Array:
    """`value` of the true successors of steps [B, ...] of a rollout, [B]; all are normalised.

    The memory that belongs to a successor is the one from after the step, in the same episode. It
    is computed from that before the step, since what the agent went on with begins a new episode.
    """
    if not has_memory(rollout):
        return value(next_obs)
    both = jax.tree.map(lambda *x: jnp.stack(x), obs, next_obs)
    num = len(rollout.reward)
    no = jnp.zeros((2, num), bool)
    pairs = Sequences(obs=both, carry=rollout.extras[CARRY], restart=no)
    return value(pairs)[num:]


def in_sequences(rollout: Rollout, samples: Any, length: int | None) -> SequenceDataset:
    """The samples of a rollout, leaves [T, N, ...], cut every `length` steps (None: T).

    Each sequence begins with the memory that the rollout had there. Raises `ConfigError` if the
    steps cannot be cut so.
    """
    num_steps = len(rollout.reward)
    require_divides("sequence_length", length or num_steps, num_steps, f"num_steps={num_steps}")

    def cut(x: Array) -> Array:  # [T, N, ...] -> [L, T/L · N, ...]
        pieces = x.reshape(-1, length or len(x), *x.shape[1:])
        return jnp.swapaxes(pieces, 0, 1).reshape(pieces.shape[1], -1, *x.shape[2:])

    return SequenceDataset(
        steps=jax.tree.map(cut, samples),
        carry=jax.tree.map(lambda x: cut(x)[0], rollout.extras[CARRY]),
        restart=cut(_restarts(rollout.done)),
    )


def _restarts(done: Array) -> Array:
    """Whether an episode began with each step after the first, [T, N]; the first is not asked."""
    return jnp.concatenate([jnp.zeros_like(done[:1]), done[:-1]])
