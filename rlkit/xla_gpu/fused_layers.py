"""Small fully connected layers as one kernel forward and one backward.

XLA computes them layer by layer, and writes every layer's output to the GPU's memory and reads it
back. With layers this narrow, that takes most of an update. Here a block of rows stays on the chip
from the observation to the last layer; the backward pass computes it again rather than reading it.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from rlkit.xla_gpu.switch import is_on

FEWEST_ROWS = 1024  # fewer do not fill a GPU; 512 gained nothing (benchmarks/notes.md)
# Sums of all gradients stay in registers; more was not tried.
WIDEST = 64
MOST_LAYERS = 4
LEAST_CAPABILITY = 9.0  # an H100, on which the kernels were measured


def may_fuse() -> bool:
    """Whether programs may have fused layers at all: on a GPU that they were made for."""
    return is_on("fused-layers") and _is_able() and _has_kernels()


def are_fused(
    x: Array, parameters: Sequence[tuple[Array, Array]], activations: Sequence[str | None]
) -> bool:
    """Whether `fused_layers` computes them, where it may: many rows [B, I], narrow, float32.

    `parameters` has the weight [I, O] and the bias [O] of each layer, `activations` the name of
    its activation, None for none. Not where B is a symbol, as in exported programs.
    """
    from rlkit.xla_gpu.fused_kernels import ACTIVATIONS

    arrays = [x, *(array for pair in parameters for array in pair)]
    return (
        x.ndim == 2
        and isinstance(x.shape[0], int)
        and x.shape[0] >= FEWEST_ROWS
        and 0 < len(parameters) <= MOST_LAYERS
        and all(name in ACTIVATIONS for name in activations)
        and all(array.dtype == jnp.float32 for array in arrays)
        and all(max(weight.shape) <= WIDEST for weight, _ in parameters)
    )


def fused_layers(
    x: Array, parameters: Sequence[tuple[Array, Array]], activations: Sequence[str | None]
) -> Array:
    """`activation(x @ weight + bias)` for each layer: x [B, I] -> [B, O].

    Products are rounded as XLA's are on a GPU. Has derivatives in reverse mode, once. A program
    for another device than one of NVIDIA's computes layer by layer.
    """
    from rlkit.xla_gpu import fused_kernels

    return fused_kernels.layers(x, tuple(parameters), fused_kernels.Static(tuple(activations)))


def _is_able() -> bool:
    device: Any = jax.devices()[0]
    return float(getattr(device, "compute_capability", 0.0)) >= LEAST_CAPABILITY


def _has_kernels() -> bool:
    """Whether this JAX has Pallas for Triton."""
    try:
        from rlkit.xla_gpu import fused_kernels  # noqa: F401
    except ImportError:
        return False
    return True
