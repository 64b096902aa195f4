"""Pseudo-random permutations without sorting, hundreds of times faster on CPU than JAX's."""

import jax
import jax.numpy as jnp
from jax import Array

ROUNDS = 6
SMALL = 32  # below this, sorting is cheap and so few bits mix badly


def shuffled_indices(key: Array, n: int) -> Array:
    """A pseudo-random permutation of 0 … n-1, [n] int32. Consumes the key.

    A keyed bijection on the b-bit integers (b the smallest with 2**b >= n) is iterated until it
    lands below n (cycle walking, Black & Rogaway 2002), which makes it a bijection on 0 … n-1. Each
    round multiplies by an odd number, adds a key and mixes high bits into low ones; all of these
    are invertible modulo 2**b. Good enough for drawing minibatches (tests hold positions and pairs
    against chi-square bounds), but not cryptographic.
    """
    if n <= SMALL:
        return jax.random.permutation(key, n).astype(jnp.int32)
    bits = (n - 1).bit_length()
    mask = jnp.uint32((1 << bits) - 1)
    words = jax.random.bits(key, (ROUNDS, 2), jnp.uint32)
    factors, offsets = words[:, 0] | jnp.uint32(1), words[:, 1]

    def mix(x: Array) -> Array:
        for i in range(ROUNDS):
            x = (x * factors[i] + offsets[i]) & mask
            # Invertible: the highest bits stay and determine the others.
            x = x ^ (x >> (bits // 2 + (i % 2)))
        return x

    def walk(x: Array) -> Array:
        return jnp.where(x < n, x, mix(x))

    start = mix(jnp.arange(n, dtype=jnp.uint32))
    return jax.lax.while_loop(lambda x: jnp.any(x >= n), walk, start).astype(jnp.int32)
