"""Numbers in the parameters of a suite's environment, changed by name and checked."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from rlkit.errors import did_you_mean, require, shown


def require_named(label: str, values: object, example: str) -> None:
    """Raises `ConfigError` if values by their names are no dict; None is allowed."""
    is_named = values is None or isinstance(values, Mapping)
    require(is_named, f"{label} is {shown(values)}", f"pass a dict, such as {example}")


def with_numbers(env_id: str, default: Any, numbers: dict[str, Any] | None) -> Any:
    """The dataclass `default` of `env_id` with other `numbers`, in the types of its own.

    Raises `ConfigError` for names that it does not have, and values that do not fit.
    """
    require_named(f"{env_id} params", numbers, '{"max_steps_in_episode": 200}')
    fields = {field.name: getattr(default, field.name) for field in dataclasses.fields(default)}
    for name in numbers or {}:
        require(name in fields, f"{env_id} has no parameter {name!r}", did_you_mean(name, fields))
    return default.replace(
        **{name: _typed_like(name, fields[name], value) for name, value in (numbers or {}).items()}
    )


def _typed_like(name: str, default: Any, value: Any) -> Any:
    """`value` in the type of the default: some environments work with 100.0 but fail with 100."""
    kind = (
        type(default)
        if isinstance(default, (bool, int, float))
        else lambda x: jnp.asarray(x, jnp.result_type(default))
    )
    try:
        typed = kind(value)
        kept = bool(np.allclose(np.asarray(typed, float), np.asarray(value, float)))
    except (TypeError, ValueError):
        typed, kept = None, False
    require(
        kept,
        f"parameter {name}={value!r} does not fit its default {default!r}",
        "pass a value of that type",
    )
    return typed
