"""A counter that stays exact beyond 2³¹, although JAX has no 64-bit integers by default."""

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array


class StepCounter(struct.PyTreeNode):
    """A 64-bit count in two 32-bit words: long runs neither overflow nor lose steps to rounding."""

    high: Array  # [] uint32
    low: Array  # [] uint32

    @classmethod
    def create(cls, value: int = 0) -> "StepCounter":
        """A counter at `value` (a Python integer, 0 <= value < 2**64)."""
        return cls(high=jnp.uint32(value >> 32), low=jnp.uint32(value & 0xFFFFFFFF))

    def add(self, amount: Array | int) -> "StepCounter":
        """The counter plus `amount`; 0 <= amount < 2**32."""
        low = self.low + jnp.uint32(amount)
        return StepCounter(high=self.high + (low < self.low).astype(jnp.uint32), low=low)

    def remainder(self, divisor: int) -> Array:
        """The exact count modulo `divisor`, [] uint32; 1 <= divisor <= 2**16.

        With larger divisors the products of remainders would not fit into a word.
        """
        by = jnp.uint32(divisor)
        of_high = self.high % by * jnp.uint32(2**32 % divisor) % by
        return (of_high + self.low % by) % by

    def passed_multiple(self, since: "StepCounter", divisor: int) -> Array:
        """Whether a multiple of `divisor` lies in (since, self], [] bool; 1 <= divisor < 2**32.

        Multiples are counted anew from each 2**32 steps, which are a multiple themselves.
        """
        by = jnp.uint32(divisor)
        return (since.low // by != self.low // by) | (since.high != self.high)

    def to_float(self) -> Array:
        """The count as float32 (relative error below 1e-7), for schedules."""
        return self.high.astype(jnp.float32) * 4294967296.0 + self.low.astype(jnp.float32)

    def to_int(self) -> int:
        """The exact count as a Python integer, on the host; the first one of parallel seeds."""
        high, low = np.ravel(np.asarray(self.high)), np.ravel(np.asarray(self.low))
        return (int(high[0]) << 32) + int(low[0])
