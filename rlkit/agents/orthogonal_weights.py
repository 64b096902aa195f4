"""Orthogonal initialisation without LAPACK, for many layers at a time.

`jax.nn.initializers.orthogonal` calls LAPACK's QR; batched over seeds (`jit(vmap(init))`) it can
deadlock on the CPU's thread pool.
"""

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlkit.types import Key

# numbers: frames that fit into this many are made in one loop, padded to the largest of them
STACKED = 2**14
Shape = tuple[int, int]  # of a frame [n, m], n >= m


def orthogonal(scale: float = 1.0) -> Callable[..., Array]:
    """An initialiser for kernels [..., inputs, outputs] with orthonormal rows or columns.

    They are multiplied by `scale` (Saxe et al. 2014). The orthonormal frame is uniformly
    distributed.
    """

    def init(key: Key, shape: tuple[int, ...], dtype=jnp.float32, out_sharding=None) -> Array:
        del out_sharding
        (frame,) = draw_frames(key, [frame_shape(shape)])
        return as_kernel(frame, shape, scale).astype(dtype)

    return init


def frame_shape(kernel_shape: tuple[int, ...]) -> Shape:
    """The shape of the frame that a kernel [..., inputs, outputs] is made from."""
    rows, columns = math.prod(kernel_shape[:-1]), kernel_shape[-1]
    return max(rows, columns), min(rows, columns)


def as_kernel(frame: Array, shape: tuple[int, ...], scale: float) -> Array:
    """The kernel of `shape` [..., inputs, outputs] that is `frame` times `scale`."""
    upright = math.prod(shape[:-1]) >= shape[-1]
    return (scale * (frame if upright else frame.T)).reshape(shape)


def draw_frames(key: Key, shapes: Sequence[Shape]) -> list[Array]:
    """Uniformly distributed frames [n, m], QᵀQ = 1, one for each of `shapes`; the key is consumed.

    All share one draw, and each group of them a loop: with a draw and a loop for each layer, a
    program takes a second longer to compile.
    """
    groups = _groups(shapes)
    sizes = [math.prod(common) * len(places) for common, places in groups]
    ends = np.cumsum(sizes, dtype=int)
    normal = jax.random.normal(key, (sum(sizes),), jnp.float32)
    frames: dict[int, Array] = {}
    for (common, places), end, size in zip(groups, ends, sizes, strict=True):
        rows, columns = np.array([shapes[i] for i in places]).T[:, :, None, None]  # [L, 1, 1]
        # Computed by the program: as a constant it would be as large as the weights.
        inside = (jnp.arange(common[0])[None, :, None] < rows) & (  # [L, n, m]
            jnp.arange(common[1])[None, None] < columns
        )
        stacked = _frames(jnp.where(inside, normal[end - size : end].reshape(-1, *common), 0.0))
        frames |= {
            i: stacked[place, : shapes[i][0], : shapes[i][1]] for place, i in enumerate(places)
        }
    return [frames[i] for i in range(len(shapes))]


def _groups(shapes: Sequence[Shape]) -> list[tuple[Shape, list[int]]]:
    """The groups of frames to make together: (padded shape, indices into `shapes`).

    Small frames are grouped, and so are frames of equal shape.
    """
    groups: dict[Shape, list[int]] = {}  # by the shape of the group
    for i in sorted(range(len(shapes)), key=lambda i: shapes[i], reverse=True):
        for common in groups:
            joined = (max(common[0], shapes[i][0]), max(common[1], shapes[i][1]))
            if common == shapes[i] or math.prod(joined) <= STACKED:
                groups[joined] = [*groups.pop(common), i]
                break
        else:
            groups[shapes[i]] = [i]
    return list(groups.items())


def _frames(normal: Array) -> Array:
    """Frames from standard normal numbers [L, n, m], n >= m, padded with zeros.

    The zeros are below and right of smaller frames. Frame Q is the product of m reflections. The
    k-th is by a normal vector of the last n - k + 1 axes, with the signs that make Q uniform
    (Stewart 1980, section 3; Mezzadri 2007, section 5). A column of zeros causes no reflection.
    """
    rows, columns = normal.shape[1:]

    def reflect(i: Array, frames: Array) -> Array:
        k = columns - 1 - i
        column = jax.lax.dynamic_index_in_dim(normal, k, axis=2, keepdims=False)  # [L, n]
        vector = jnp.where(jnp.arange(rows) >= k, column, 0.0)
        # [L, 1], the vector's first number
        head = jax.lax.dynamic_slice_in_dim(column, k, 1, axis=1)
        length = jnp.sqrt(jnp.einsum("ln,ln->l", vector, vector, precision="highest"))[:, None]
        sign = jnp.where(head < 0.0, -1.0, 1.0)
        vector += jnp.where(jnp.arange(rows) == k, sign * length, 0.0)
        # Half the squared length of `vector`
        half_square = jnp.where(length > 0.0, length * (length + jnp.abs(head)), 1.0)
        vector *= jax.lax.rsqrt(half_square)  # its length is √2, or 0
        along = jnp.einsum("ln,lnm->lm", vector, frames, precision="highest")
        reflected = frames - vector[:, :, None] * along[:, None, :]
        return jnp.where(jnp.arange(columns) == k, -sign[:, :, None], 1.0) * reflected

    return jax.lax.fori_loop(
        0,
        columns,
        reflect,
        jnp.broadcast_to(jnp.eye(rows, columns, dtype=normal.dtype), normal.shape),
    )
