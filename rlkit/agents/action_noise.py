"""Noise for exploring with continuous actions: independent from step to step, or pink."""

import dataclasses
import math
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlkit.agents.configs import NoiseColor
from rlkit.ops.rows import where_rows
from rlkit.types import Carry, Key, NoiseState

NUM_PROCESSES = 10
# Process k forgets at the frequency 1 / (4 · 2**k) per step: from 1/4 to 1/2048.
DECAY = np.exp(-math.pi / 2.0 ** np.arange(1, NUM_PROCESSES + 1)).astype(np.float32)
# Of the new in each step, so that the variance of every process stays 1.
INNOVATION = np.sqrt(1.0 - DECAY.astype(np.float64) ** 2).astype(np.float32)


class ActionNoise(Protocol):
    """Standard normal in every step, for actions of one shape."""

    def initial_carry(self, num_envs: int) -> Carry:
        """The state at the start of an episode, leaves [N, ...]."""
        ...

    def draw(self, carry: Carry, key: Key, num_envs: int) -> tuple[Array, Carry]:
        """The noise of a step, [N, *shape], and the next state; the key is consumed."""
        ...


def action_noise(color: NoiseColor, shape: tuple[int, ...]) -> ActionNoise:
    """The noise of that colour, for actions of `shape`."""
    return {"white": WhiteNoise, "pink": PinkNoise}[color](shape)


@dataclasses.dataclass(frozen=True)
class WhiteNoise:
    """Independent from step to step."""

    shape: tuple[int, ...]

    def initial_carry(self, num_envs: int) -> Carry:
        """(): it has no state."""
        return ()

    def draw(self, carry: Carry, key: Key, num_envs: int) -> tuple[Array, Carry]:
        """See `ActionNoise`."""
        return jax.random.normal(key, (num_envs, *self.shape)), carry


@dataclasses.dataclass(frozen=True)
class PinkNoise:
    """Noise whose power falls as 1/f over the steps of an episode.

    Eberhard et al. 2023, "Pink Noise Is All You Need". Independent between environments and
    dimensions of the action; each episode starts anew.

    The authors draw an episode at once by an inverse Fourier transform, and so need its length.
    This is a stream: the sum of autoregressive processes s_k ← a_k s_k + √(1 - a_k²) ε of unit
    variance, over √K, whose corner frequencies are an octave apart (van der Ziel 1950; Milotti
    2002). Its power is within 0.7 dB of 1/f from 1/1000 per step, the lowest frequency of an
    episode of 1000 steps, to 1/2, and constant below 1/2048. The processes of a new episode are
    drawn from their stationary distribution, so the noise is exactly standard normal in every step.
    """

    shape: tuple[int, ...]

    def initial_carry(self, num_envs: int) -> NoiseState:
        """A state of age 0, whose processes [N, *shape, K] are yet to be drawn."""
        return NoiseState(
            age=jnp.zeros(num_envs, jnp.int32),
            values=jnp.zeros((num_envs, *self.shape, NUM_PROCESSES)),
        )

    def draw(self, carry: NoiseState, key: Key, num_envs: int) -> tuple[Array, NoiseState]:
        """See `ActionNoise`."""
        new = jax.random.normal(key, carry.values.shape)
        moved = carry.values * DECAY + new * INNOVATION
        processes = where_rows(carry.age == 0, new, moved)
        noise = processes.sum(-1) / math.sqrt(NUM_PROCESSES)
        return noise, NoiseState(age=carry.age + 1, values=processes)
