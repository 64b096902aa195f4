"""Recurrent layers: Flax's GRU and LSTM, and minGRU."""

import copy
import math
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from rlkit.agents.configs import Memory
from rlkit.agents.first_weights import described
from rlkit.agents.layers import Linear, linear
from rlkit.agents.memory import steps_in_a_loop
from rlkit.types import Carry

LONGEST = 1000.0  # steps over which the slowest unit of a new `MinGRU` remembers


class Cell(Protocol):
    """A recurrent layer."""

    def initial_carry(self, num_envs: int) -> Carry:
        """Zeros, leaves [N, ...]."""
        ...

    def over(self, carry: Carry, x: Array, restart: Array) -> tuple[Carry, Array]:
        """The memory after L steps, and outputs [L, B, size], for inputs [L, B, F].

        Where `restart` [L, B], the memory is the initial one before the step.
        """
        ...


def make_cell(kind: Memory, in_features: int, size: int) -> Cell:
    """The recurrent layer of that name."""
    if kind == "min_gru":
        return MinGRU(in_features, size)
    return Gated(kind, in_features, size)


class Gated(nnx.Module):
    """Flax's GRU (Cho et al. 2014) or LSTM (Hochreiter and Schmidhuber 1997), [B, F] -> [B, size].

    Kernels are orthogonal for each gate, unless `weight_init` says otherwise. An LSTM's forget
    gates begin at 1 (Jozefowicz et al. 2015).
    """

    def __init__(self, kind: Literal["gru", "lstm"], in_features: int, size: int):
        self.num_parts, self.size = (1 if kind == "gru" else 2), size
        cell, gates = (nnx.GRUCell, 3) if kind == "gru" else (nnx.OptimizedLSTMCell, 4)
        zeros = nnx.initializers.zeros  # Flax's default calls LAPACK, see `orthogonal_weights`
        self.cell = cell(
            in_features, size, kernel_init=zeros, recurrent_kernel_init=zeros, rngs=nnx.Rngs(0)
        )
        for layer, inputs in ((self.cell.dense_i, in_features), (self.cell.dense_h, size)):
            shape = (inputs, gates * size)
            layer.kernel = described(shape, "orthogonal", 1.0, blocks=gates)
        if isinstance(self.cell, nnx.OptimizedLSTMCell):
            forget = jnp.zeros(4 * size).at[size : 2 * size].set(1.0)  # gates i, f, g, o
            self.cell.dense_h.bias = nnx.Param(forget)
        else:
            self.cell.dense_i.bias = described((gates * size,), "constant", 0.0)

    def initial_carry(self, num_envs: int) -> Carry:
        """Zeros [N, size]: of a GRU one array, of an LSTM (cell, hidden)."""
        zeros = jnp.zeros((num_envs, self.size))
        return zeros if self.num_parts == 1 else (zeros, zeros)

    def over(self, carry: Carry, x: Array, restart: Array) -> tuple[Carry, Array]:
        """See `Cell`. The inputs of all steps pass through the cell's layer for them in one
        product, so the loop over steps is left with the product by the memory.
        """
        step: Any = copy.copy(self.cell)
        step.dense_i = lambda projected: projected
        layer = self.cell.dense_i
        bias = None if layer.bias is None else layer.bias[...]
        projected = linear(x, layer.kernel[...], bias)
        return steps_in_a_loop(step, self.initial_carry, carry, projected, restart)


class MinGRU(nnx.Module):
    """minGRU (Feng et al. 2024, "Were RNNs All We Needed?"), [B, F] -> [B, size].

    h ← (1 - z) h + z h̃, with z = σ(W x + b) and h̃ = V x + c. As neither depends on h, all steps
    of a sequence are computed in parallel, in O(log L) rounds. New units forget at different
    rates: z is about 1/τ, with τ from 2 to 1,000 steps. So h is float32 whatever the precision of
    the network: in bfloat16, 1 - 1/1,000 is 1, and most of what a step adds is lost.
    """

    is_exact_memory = True  # for `make_network`, which rounds other memories

    def __init__(self, in_features: int, size: int):
        self.gate = Linear(in_features, size)
        self.gate.bias = nnx.Param(_spread(size))
        self.candidate = Linear(in_features, size)
        self.size = size

    def initial_carry(self, num_envs: int) -> Carry:
        """Zeros [N, size]."""
        return jnp.zeros((num_envs, self.size))

    def over(self, carry: Carry, x: Array, restart: Array) -> tuple[Carry, Array]:
        """See `Cell`."""
        gate, candidate = (layer(x).astype(jnp.float32) for layer in (self.gate, self.candidate))
        kept = jnp.where(restart[..., None], 0.0, jax.nn.sigmoid(-gate))
        added = jax.nn.sigmoid(gate) * candidate
        added = jnp.concatenate([added[:1] + kept[:1] * carry, added[1:]])
        hidden = jax.lax.associative_scan(_compose, (kept, added))[1]
        return hidden[-1], hidden


def _compose(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
    """Two maps h -> a h + b as one."""
    return first[0] * second[0], second[0] * first[1] + second[1]


def _spread(size: int) -> Array:
    """Biases for which σ is 1/τ, τ from 2 to `LONGEST`."""
    steps = jnp.exp(jnp.linspace(math.log(2.0), math.log(LONGEST), size))
    return -jnp.log(steps - 1.0)
