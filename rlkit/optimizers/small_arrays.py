"""`elementwise`: an optimiser that runs on all small arrays as one vector."""

import optax

from rlkit.xla_cpu.packing import pack_small_arrays


class Elementwise(optax.GradientTransformationExtraArgs):
    """What `elementwise` returns."""

    __slots__ = ()


def elementwise(optimizer: optax.GradientTransformation) -> Elementwise:
    """Runs `optimizer` on all small arrays as one vector, which takes far fewer kernels.

    Its state has that form on every device. The result is the same for optimisers that treat all
    numbers alike, whatever array they are in: `elementwise(optax.adamw(3e-4))`, or clipping by the
    global norm. It is not the same for rules per array, such as trust ratios, or for masks and
    labels by name. `progress` is the only extra argument that `optimizer` gets.
    """
    return Elementwise(*pack_small_arrays(optimizer))
