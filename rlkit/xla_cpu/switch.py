"""Which tricks of this folder are on: `RLKIT_CPU_TUNING`, read on every query.

`on` (the default) and `off` apply to all of them; `no-matmul,no-packing` leaves out these two, for
measurements. Importing this imports no JAX.
"""

import functools
import os
from typing import Literal, get_args

from rlkit.errors import did_you_mean, require

VARIABLE = "RLKIT_CPU_TUNING"
Trick = Literal[
    "threefry",
    "matmul",
    "conditional-update",
    "packing",
    "compiler-options",
    "parallel-seeds",
    "inline-dispatch",
    "garbage-collector",
]
TRICKS: tuple[Trick, ...] = get_args(Trick)


def is_on(trick: Trick) -> bool:
    """Whether programs use the trick: the setting leaves it on, and they run on a CPU.

    Makes JAX choose its backend, if it has not yet. Raises `ConfigError` as `is_wanted` does.
    """
    import jax

    return is_wanted(trick) and jax.default_backend() == "cpu"


def may_be_on(trick: Trick) -> bool:
    """As `is_on`, but True if JAX has not chosen its backend yet, and without making it choose.

    For code that runs while only shapes are computed, as when an agent is made: once there is a
    backend, settings of the process would come too late (`enable`).
    """
    return is_wanted(trick) and (not has_backend() or is_on(trick))


def has_backend() -> bool:
    """Whether JAX has made its backend; True if this JAX does not say."""
    try:
        from jax._src.xla_bridge import backends_are_initialized
    except ImportError:
        return True
    return backends_are_initialized()


def is_wanted(trick: Trick) -> bool:
    """Whether the setting leaves the trick on; asks no device.

    Raises `ConfigError` for an invalid setting.
    """
    return trick not in _left_out(os.environ.get(VARIABLE, ""))


@functools.cache
def _left_out(setting: str) -> frozenset[str]:
    if setting.strip().lower() in ("", "on"):
        return frozenset()
    if setting.strip().lower() == "off":
        return frozenset(TRICKS)
    options = {f"no-{trick}": trick for trick in TRICKS}
    asked = [part.strip().lower() for part in setting.split(",")]
    for part in asked:
        require(
            part in options,
            f"{VARIABLE}={setting!r}: there is no {part!r}",
            f"use 'on', 'off', or a comma-separated list; {did_you_mean(part, options)}",
        )
    return frozenset(options[part] for part in asked)
