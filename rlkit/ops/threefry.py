"""JAX's generator of random bits, compiled for a CPU in another way: the same bits, fewer kernels.

JAX has XLA compile the hash as a loop of five iterations that carries a dozen arrays, wherever it draws. Where a draw is small,
a key, or an action for each of four environments, such a loop is dozens of kernels and copies that do next to nothing, and a
training step has several. docs/speed.md has what it gains to do without. What draws, rlkit or an environment, calls
`jax.random` as ever.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental.xla_metadata import set_xla_metadata

SMALL = 64  # hashes; with 256, which a batch from a replay memory takes, DQN was an eighth slower
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))  # Salmon et al. 2011, table 2; used in turns
PARITY = np.uint32(0x1BD11BDA)
ITERATIONS = 5  # of four rounds each


def register() -> bool:
    """Has every program for a CPU that this process compiles from now on draw so; False where this JAX does not let us.

    More than `SMALL` hashes are a loop with fewer arrays (JAX's own is out of reach here). Up to `SMALL` are part of the kernel
    that uses them. Where each has a key of its own, as what a network takes for a layer, they are a call that XLA must not
    inline: it would put the whole chain of hashes behind a layer's key into each kernel that reads it, which takes a second or
    two to compile. A number that is known only later (`jax.export`) is a loop.
    """
    try:
        from jax.extend.random import threefry2x32_p
        from jax.interpreters.mlir import lower_fun, register_lowering
    except ImportError:
        return False
    unrolled, rolled, called = (lower_fun(form, multiple_results=True) for form in (hash_unrolled, hash_rolled, _called))

    def lower(context: Any, *operands: Any) -> Any:
        num, num_keys = (math.prod(aval.shape) for aval in (context.avals_out[0], context.avals_in[0]))
        if not isinstance(num, int) or num > SMALL:
            return rolled(context, *operands)
        return (called if num == num_keys else unrolled)(context, *operands)

    register_lowering(threefry2x32_p, lower, platform="cpu")
    return True


def hash_unrolled(key1: Array, key2: Array, x1: Array, x2: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011): the words `x1`, `x2` hashed by the key, uint32 arrays of one shape."""
    keys = (key1, key2, key1 ^ key2 ^ PARITY)
    x1, x2 = x1 + keys[0], x2 + keys[1]
    for i in range(ITERATIONS):
        for distance in ROTATIONS[i % 2]:
            x1, x2 = _round(x1, x2, np.uint32(distance))
        x1, x2 = x1 + keys[(i + 1) % 3], x2 + keys[(i + 2) % 3] + np.uint32(i + 1)
    return x1, x2


def hash_rolled(key1: Array, key2: Array, x1: Array, x2: Array) -> tuple[Array, Array]:
    """The same as a loop."""
    keys = (key1, key2, key1 ^ key2 ^ PARITY)

    def four_rounds(i: Array, words: tuple[Array, Array]) -> tuple[Array, Array]:
        x1, x2 = words
        for even, odd in zip(*ROTATIONS, strict=True):
            x1, x2 = _round(x1, x2, jnp.where(i % 2 == 0, np.uint32(even), np.uint32(odd)))
        return x1 + _chosen(keys, (i + 1) % 3), x2 + _chosen(keys, (i + 2) % 3) + (i + 1).astype(jnp.uint32)

    return jax.lax.fori_loop(0, ITERATIONS, four_rounds, (x1 + keys[0], x2 + keys[1]))


_JITTED = jax.jit(hash_unrolled)


def _called(*operands: Array) -> tuple[Array, Array]:
    with set_xla_metadata(inlineable="false"):
        return _JITTED(*operands)


def _round(x1: Array, x2: Array, distance: Any) -> tuple[Array, Array]:
    total = x1 + x2
    return total, total ^ ((x2 << distance) | (x2 >> (np.uint32(32) - distance)))


def _chosen(keys: tuple[Array, Array, Array], index: Array) -> Array:
    return jnp.where(index == 0, keys[0], jnp.where(index == 1, keys[1], keys[2]))
