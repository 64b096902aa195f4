"""JAX's generator of random bits, compiled differently for a CPU: the same bits, fewer kernels.

Wherever a program draws, JAX has XLA compile the hash as a loop of five iterations that carries a
dozen arrays. For a small draw, such as a key, or an action for each of four environments, the loop
is dozens of kernels and copies that do next to nothing, and a training step has several. rlkit's
hash is one kernel for up to `SMALL` hashes. More of them, or a number that is not known yet
(`jax.export`), are a loop that carries fewer arrays; JAX's own is not accessible here.

`lower` does this for one program, `register` for all that this process compiles. Code that draws,
in rlkit or an environment, calls `jax.random` as usual.
"""

import functools
import inspect
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from rlkit.xla_cpu.switch import is_on

SMALL = 1024  # hashes; all draws as one kernel made PPO slower, as each hash is computed twice
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))  # Salmon et al. 2011, table 2, alternating
PARITY = np.uint32(0x1BD11BDA)
ITERATIONS = 5  # of four rounds each


def lower(traced: jax.stages.Traced) -> jax.stages.Lowered:
    """`traced.lower()` of a `jax.stages.Traced`, with rlkit's hash if the trick is on.

    Other programs of the process keep JAX's hash. So does this one if JAX has no lowering rules for
    a single program, which are not part of its public interface.
    """
    parameters = _parameters() if is_on("threefry") else None
    return traced.lower() if parameters is None else traced.lower(_private_parameters=parameters)


def register() -> bool:
    """Uses rlkit's hash in every program that this process lowers for a CPU from now on.

    False if this JAX has no such hash.
    """
    found = _primitive_and_rule()
    if found is None:
        return False
    from jax.interpreters.mlir import register_lowering

    _original_entry()
    register_lowering(*found, platform="cpu")
    return True


def unregister() -> bool:
    """Restores JAX's own hash for programs that are lowered from now on.

    False if this JAX does not say which it was.
    """
    found, original = _primitive_and_rule(), _original_entry()
    if found is None or original is None:
        return False
    from jax.interpreters.mlir import register_lowering

    register_lowering(found[0], original.rule, platform="cpu", inline=original.inline)
    return True


@functools.cache
def _primitive_and_rule() -> tuple[Any, Any] | None:
    """JAX's hash and rlkit's rule to lower it; always the same rule, since JAX caches by it."""
    try:
        from jax.extend.random import threefry2x32_p
        from jax.interpreters.mlir import lower_fun
    except ImportError:
        return None
    one_kernel, rolled = (
        lower_fun(form, multiple_results=True) for form in (_one_kernel, hash_rolled)
    )

    def rule(context: Any, *operands: Any) -> Any:
        num = math.prod(context.avals_out[0].shape)
        is_small = isinstance(num, int) and num <= SMALL
        return (one_kernel if is_small else rolled)(context, *operands)

    return threefry2x32_p, rule


@functools.cache
def _original_entry() -> Any:
    """JAX's own CPU lowering of its hash, before `register`; None if JAX does not say."""
    found = _primitive_and_rule()
    try:
        from jax._src.interpreters.mlir import _platform_specific_lowerings as rules
    except ImportError:
        return None
    return None if found is None else rules["cpu"].get(found[0])


def _parameters() -> Any:
    """What makes `Traced.lower` use the rule for one program; None if JAX does not allow it."""
    found = _primitive_and_rule()
    takes_them = "_private_parameters" in inspect.signature(jax.stages.Traced.lower).parameters
    if found is None or not takes_them:
        return None
    try:
        from jax._src.interpreters.mlir import LoweringParameters

        return LoweringParameters(override_lowering_rules=(found,))
    except (ImportError, TypeError):
        return None


def hash_unrolled(key1: Array, key2: Array, x1: Array, x2: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011): the words `x1`, `x2` hashed with the key.

    uint32 arrays of one shape; axes of 1 and scalars broadcast, as they do in `lax`.
    """
    constant = functools.cache(functools.partial(lax.full_like, x1))
    keys = (key1, key2, lax.bitwise_xor(lax.bitwise_xor(key1, key2), constant(PARITY)))
    x1, x2 = lax.add(x1, keys[0]), lax.add(x2, keys[1])
    for i in range(ITERATIONS):
        for distance in ROTATIONS[i % 2]:
            x1, x2 = _round(x1, x2, constant(distance), constant(32 - distance))
        x1, x2 = (
            lax.add(x1, keys[(i + 1) % 3]),
            lax.add(lax.add(x2, keys[(i + 2) % 3]), constant(i + 1)),
        )
    return x1, x2


def hash_rolled(key1: Array, key2: Array, x1: Array, x2: Array) -> tuple[Array, Array]:
    """`hash_unrolled` as a loop."""
    keys = (key1, key2, key1 ^ key2 ^ PARITY)

    def four_rounds(i: Array, words: tuple[Array, Array]) -> tuple[Array, Array]:
        x1, x2 = words
        for even, odd in zip(*ROTATIONS, strict=True):
            distance = jnp.where(i % 2 == 0, np.uint32(even), np.uint32(odd))
            x1, x2 = _round(x1, x2, jnp.full_like(x1, distance), jnp.full_like(x1, 32 - distance))
        return x1 + _chosen(keys, (i + 1) % 3), x2 + _chosen(keys, (i + 2) % 3) + (i + 1).astype(
            jnp.uint32
        )

    return lax.fori_loop(0, ITERATIONS, four_rounds, (x1 + keys[0], x2 + keys[1]))


def _one_kernel(*operands: Array) -> tuple[Array, Array]:
    """`hash_unrolled`, stacked so that it ends a kernel.

    Otherwise XLA would put a hash, and those that made its key, into everything that reads it. This
    way, each hash is computed once for either word. The barrier keeps XLA from taking the stack out
    again. With the words side by side, as in keys, DQN is an eighth slower.
    """
    words = lax.optimization_barrier(jnp.stack(hash_unrolled(*operands)))
    return words[0], words[1]


def _round(x1: Array, x2: Array, left: Array, right: Array) -> tuple[Array, Array]:
    """One round: the second word is rotated by `left` bits; `right` is 32 - `left`.

    Uses only `lax`, which is quicker to trace.
    """
    total = lax.add(x1, x2)
    return total, lax.bitwise_xor(
        total, lax.bitwise_or(lax.shift_left(x2, left), lax.shift_right_logical(x2, right))
    )


def _chosen(keys: tuple[Array, Array, Array], index: Array) -> Array:
    return jnp.where(index == 0, keys[0], jnp.where(index == 1, keys[1], keys[2]))
