"""`to_stablehlo`: a function as a portable artefact of `jax.export`, over a symbolic batch."""

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax import Array, export

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_KEY = jax.ShapeDtypeStruct((2,), np.uint32)


def to_stablehlo(
    function: Callable[..., tuple[Array, ...]],
    inputs: Sequence[tuple[str, np.dtype, tuple[int, ...]]],
    *,
    takes_key: bool = False,
) -> bytes:
    """The serialised artefact of `function`, for all platforms; `jax.export.deserialize` reads it.

    `inputs` are the name, dtype and shape without N of each argument. With `takes_key`, the words
    of a key come before them.
    """
    (batch,) = export.symbolic_shape("batch")
    arguments = [jax.ShapeDtypeStruct((batch, *shape), dtype) for _, dtype, shape in inputs]
    key = [_KEY] if takes_key else []
    exported = export.export(jax.jit(function), platforms=PLATFORMS)(*key, *arguments)
    return bytes(exported.serialize())
