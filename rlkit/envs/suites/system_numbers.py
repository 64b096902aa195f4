"""Numbers of a simulated system, such as its masses, as traced parameters: for Brax and MJX."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from rlkit.envs.jittable.params import require_named
from rlkit.errors import ConfigError, did_you_mean, require, shown
from rlkit.types import PyTree

Numbers = dict[str, Array]  # by the names that `tree_replace` of a system takes: opt.gravity


def chosen_numbers(env_id: str, system: PyTree, values: Mapping[str, Any] | None) -> Numbers:
    """The `values` as arrays like those of `system` that they replace.

    Raises `ConfigError` for an unknown name and for a value that does not fit.
    """
    require_named(f"{env_id} params", values, '{"gravity": [0, 0, -5]}')
    known = {
        jax.tree_util.keystr(path, simple=True, separator="."): leaf
        for path, leaf in jax.tree.leaves_with_path(system)
        if jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
    }
    for name in values or {}:
        require(name in known, f"{env_id} has no number {name!r}", did_you_mean(name, known))
    return {
        name: _like(f"{name} of {env_id}", known[name], value)
        for name, value in (values or {}).items()
    }


def _like(label: str, default: Any, value: object) -> Array:
    shape = np.shape(default)
    try:
        array = np.asarray(value, np.float32)
    except (TypeError, ValueError):
        array = np.float32("nan")
    require(
        array.shape == shape and bool(np.isfinite(array).all()),
        f"{label} is {f'an array of shape {list(shape)}' if shape else 'a number'}, got"
        f" {shown(value)}",
        f"pass finite values in place of {shown(np.asarray(default).tolist())}",
    )
    return jnp.asarray(array)


def require_used(env_id: str, numbers: Numbers, simulate: Any, hint: str) -> None:
    """Raises `ConfigError` for numbers that `simulate(numbers)`, a jitted function, does not read.

    Systems hold some numbers twice, for different ways to simulate them.
    """
    if not numbers:
        return
    # What a program does not read is not among its inputs, which are named after their origin.
    program = simulate.lower(numbers).as_text(debug_info=True)
    idle = [name for name in numbers if f"numbers['{name}']" not in program]
    if idle:
        raise ConfigError(f"{', '.join(idle)} changes nothing in {env_id}; {hint}")
