"""Functions of `jax.random`, equal to their namesakes, for what is drawn in every step or update off policy: calls, on a CPU.

A draw is a loop, a dozen kernels that take next to no time and depend on little else. XLA puts them into the program around
them, starts those of all draws at once, and where more than eight kernels are ready it wakes another thread for half of them;
what follows then wanders from core to core. A call whose attributes forbid to inline it is one thing to run. docs/speed.md
has what it gains. Shuffles and keys of on-policy training stay with `jax.random`: they run beside the rollout.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax import Array
from jax.experimental.xla_metadata import set_xla_metadata


def _apart(function: Callable[..., Array], *static: str) -> Callable[..., Array]:
    called = jax.jit(function, static_argnames=static)

    @functools.wraps(function)
    def draw(*args: Any, **kwargs: Any) -> Array:
        if jax.default_backend() != "cpu":
            return function(*args, **kwargs)
        with set_xla_metadata(inlineable="false"):
            return called(*args, **kwargs)

    return draw


split = _apart(jax.random.split, "num")
bits = _apart(jax.random.bits, "shape", "dtype")
uniform = _apart(jax.random.uniform, "shape", "dtype")
normal = _apart(jax.random.normal, "shape", "dtype")
