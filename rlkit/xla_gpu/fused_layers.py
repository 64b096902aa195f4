"""Small fully connected layers as one kernel forward and one backward.

XLA computes them layer by layer, and writes every layer's output to the GPU's memory and reads it
back. With layers this narrow, that takes most of an update. Here a block of rows stays on the chip
from the observation to the last layer; the backward pass computes it again rather than reading it.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from rlkit.xla_gpu.switch import is_on

WIDEST = 64  # layer whose gradients fit into the registers
FEWEST_ROWS = 1024  # fewer do not fill a GPU; this and the last: measured in benchmarks/notes.md
ACTIVATIONS = ("tanh", "relu", None)


def are_fused(x: Array, weights: Sequence[Array], activations: Sequence[str | None]) -> bool:
    """Whether `fused_layers` computes them: on a GPU, many rows [B, I], narrow, single precision.

    `activations` has the name of each layer's, None for none.
    """
    return (
        is_on("fused-layers")
        and x.ndim == 2
        and len(x) >= FEWEST_ROWS
        and all(name in ACTIVATIONS for name in activations)
        and all(a.dtype == jnp.float32 for a in (x, *weights))
        and all(max(w.shape) <= WIDEST for w in weights)
        and _has_kernels()
    )


def fused_layers(
    x: Array,
    weights: Sequence[Array],
    biases: Sequence[Array],
    activations: Sequence[str | None],
) -> Array:
    """`activation(x @ weight + bias)` for each layer: x [B, I] -> [B, O].

    Products are rounded as XLA's are on a GPU. Has derivatives in reverse mode, once. On other
    devices Pallas emulates the kernels, slowly.
    """
    from rlkit.xla_gpu import fused_kernels

    static = fused_kernels.Static(tuple(activations), emulated=jax.default_backend() != "gpu")
    return fused_kernels.layers(x, tuple(weights), tuple(biases), static)


def _has_kernels() -> bool:
    """Whether this JAX has Pallas for Triton."""
    try:
        from rlkit.xla_gpu import fused_kernels  # noqa: F401
    except ImportError:
        return False
    return True
