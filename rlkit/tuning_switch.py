"""The switch of a room of tuning (`xla_cpu`, `xla_gpu`): which of its tricks are on.

Importing this imports no JAX.
"""

import dataclasses
import functools
import os

from rlkit.errors import did_you_mean, require


@dataclasses.dataclass(frozen=True)
class Switch:
    """An environment variable, read on every query, and the tricks that it switches.

    `on` (the default) and `off` apply to all of them; `no-a,no-b` leaves out these two, for
    measurements. Raises `ConfigError` for anything else, with every query.
    """

    variable: str
    backend: str  # what JAX calls it
    tricks: tuple[str, ...]

    def is_on(self, trick: str) -> bool:
        """Whether programs use the trick: the setting leaves it on, and they run on the backend.

        Makes JAX choose its backend, if it has not yet.
        """
        import jax

        return self.is_wanted(trick) and jax.default_backend() == self.backend

    def may_be_on(self, trick: str) -> bool:
        """As `is_on`, but True if JAX has not chosen its backend yet, without making it choose.

        For code that runs while only shapes are computed, as when an agent is made: once there is
        a backend, settings of the process would come too late (`xla_cpu.enable`).
        """
        return self.is_wanted(trick) and (not has_backend() or self.is_on(trick))

    def is_on_already(self, trick: str) -> bool:
        """As `is_on`, but False if JAX has not chosen its backend yet."""
        return self.is_wanted(trick) and has_backend() and self.is_on(trick)

    def is_wanted(self, trick: str) -> bool:
        """Whether the setting leaves the trick on; asks no device."""
        return trick not in _left_out(self, os.environ.get(self.variable, ""))


def has_backend() -> bool:
    """Whether JAX has made its backend; True if this JAX does not say."""
    try:
        from jax._src.xla_bridge import backends_are_initialized
    except ImportError:
        return True
    return backends_are_initialized()


@functools.cache
def _left_out(switch: Switch, setting: str) -> frozenset[str]:
    if setting.strip().lower() in ("", "on"):
        return frozenset()
    if setting.strip().lower() == "off":
        return frozenset(switch.tricks)
    options = {f"no-{trick}": trick for trick in switch.tricks}
    asked = [part.strip().lower() for part in setting.split(",")]
    for part in asked:
        require(
            part in options,
            f"{switch.variable}={setting!r}: there is no {part!r}",
            f"use 'on', 'off', or a comma-separated list; {did_you_mean(part, options)}",
        )
    return frozenset(options[part] for part in asked)
