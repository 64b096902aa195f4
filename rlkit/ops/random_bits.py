"""Uniform integers and floats from random bits, without a division."""

import jax
import jax.numpy as jnp
from jax import Array


def uniform_integers(key: Array, shape: tuple[int, ...], limit: Array | int) -> Array:
    """Random integers [*shape] int32 in [0, limit), 1 <= limit < 2^31. Consumes the key.

    `jax.random.randint` draws two blocks of bits and divides three times by `limit`: 256 integers
    take 12.8 µs on a CPU, these 4.7 µs.
    """
    return as_integers(jax.random.bits(key, (2, *shape)), limit)


def as_integers(bits: Array, limit: Array | int) -> Array:
    """Random bits [2, ...] uint32 as integers [...] int32 in [0, limit), 1 <= limit < 2^31.

    floor(x · limit / 2^64) of 64 bits x, so that no integer is likelier than another by more than
    limit / 2^64.

    >>> as_integers(jnp.array([[0, 2**31, 2**32 - 1], [0, 0, 0]], jnp.uint32), 6).tolist()
    [0, 3, 5]
    """
    high, low = bits
    limit = jnp.asarray(limit).astype(jnp.uint32)
    whole, fraction = _multiply(high, limit)
    carry, _ = _multiply(low, limit)
    # Unsigned sums that overflow are smaller than their parts.
    return (whole + (fraction + carry < fraction)).astype(jnp.int32)


def as_uniform(bits: Array) -> Array:
    """Converts random uint32 bits to multiples of 2^-24 in [0, 1), float32.

    >>> as_uniform(jnp.array([0, 2**31, 2**32 - 1], jnp.uint32)).tolist()
    [0.0, 0.5, 0.9999999403953552]
    """
    return (bits >> 8).astype(jnp.float32) * 2.0**-24


def _multiply(x: Array, y: Array) -> tuple[Array, Array]:
    """High and low words (uint32) of the product of uint32 arrays; no partial sum overflows."""
    mask = jnp.uint32(0xFFFF)
    x_high, x_low, y_high, y_low = x >> 16, x & mask, y >> 16, y & mask
    middle = x_high * y_low + (x_low * y_low >> 16)
    other = x_low * y_high + (middle & mask)
    return x_high * y_high + (middle >> 16) + (other >> 16), x * y
