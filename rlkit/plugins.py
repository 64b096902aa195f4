"""Registry entries from the entry points of installed packages. Listing them imports nothing."""

import copy
import dataclasses
import functools
import importlib.metadata
import os
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

from rlkit.errors import (
    ConfigError,
    RlkitError,
    UnknownNameError,
    did_you_mean,
    require,
    shown,
)

EntryPoint = importlib.metadata.EntryPoint
R = TypeVar("R")


def entry_points(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points of installed packages by name; several if packages claim the same name."""
    plugins: dict[str, list[EntryPoint]] = {}
    for plugin in scan(group, tuple((path, _modified(path)) for path in sys.path)):
        plugins.setdefault(plugin.name, []).append(plugin)
    return plugins


@functools.lru_cache(maxsize=16)
def scan(group: str, search_path: tuple[tuple[str, int | None], ...]) -> tuple[EntryPoint, ...]:
    """The entry points of `group` from the metadata of every installed package, in milliseconds.

    `search_path` says where they are and when packages were last installed there.
    """
    return tuple(importlib.metadata.entry_points(group=group))


def _modified(directory: str) -> int | None:
    try:
        return os.stat(directory or ".").st_mtime_ns
    except OSError:  # sys.path may name what is not there
        return None


def load_only(claims: list[EntryPoint], kind: str) -> Any:
    """Loads the only entry point of a name; `kind` is used in messages.

    Raises `ConfigError` if several packages claim the name, or if loading fails.
    """
    plugin = claims[0]
    packages = ", ".join(package(claim) for claim in claims)
    require(
        len(claims) == 1,
        f"{plugin.name!r} is claimed by several packages: {packages}",
        "uninstall all but one",
    )
    try:
        return plugin.load()
    except RlkitError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{kind} {plugin.name!r} of {package(plugin)} ({plugin.value}) cannot be loaded:"
            f" {type(error).__name__}: {error}; repair, upgrade or uninstall that package"
        ) from error


def find_row(name: str, rows: dict[str, R], group: str, kind: str, row_type: type[R]) -> R:
    """The row called `name`, from `rows` or from an entry point of `group` to a `row_type`.

    Raises `UnknownNameError`, or `ConfigError` if its package is broken or claims a name that
    another row has. Such packages do not affect other names.
    """
    claims = entry_points(group).get(name)
    if name in rows:
        if (
            claims and load_only(claims, kind) != rows[name]
        ):  # importing a package may also register its row
            raise ConfigError(
                f"{kind} {name!r} is already registered, but {package(claims[0])}"
                f" ({claims[0].value}) claims the name too; uninstall that package, or rename its"
                " entry point"
            )
        return rows[name]
    if not claims:
        known = [*rows, *entry_points(group)]
        raise UnknownNameError(f"unknown {kind} {name!r}; {did_you_mean(name, known)}")
    row = load_only(claims, kind)
    require(
        isinstance(row, row_type),
        f"{kind} {name!r} of {package(claims[0])} ({claims[0].value}) is of type"
        f" {type(row).__name__}, not an rlkit {row_type.__name__}",
        f"point the entry point to an rlkit {row_type.__name__}",
    )
    return row


def check_new(
    name: str, rows: Mapping[str, Any], kind: str, factory: object, config: object
) -> None:
    """Raises `ConfigError` for what cannot be added to `rows`, rather than when it is used."""
    require(name not in rows, f"an {kind} {name!r} is registered already", "choose another name")
    require(
        callable(factory),
        f"the factory of an {kind} {name!r} is {shown(factory)}",
        "pass the function itself, which is called with a config",
    )
    require(
        isinstance(config, type) and dataclasses.is_dataclass(config),
        f"the config of an {kind} {name!r} is {shown(config)}",
        "pass the class, a frozen dataclass whose fields have defaults",
    )


def named(made: Any, name: str, config: object) -> Any:
    """What a factory returned, or a copy whose `spec` is the name that it was registered by.

    It is not built again: a class may have an `__init__` of its own. What is no dataclass, or has
    no field `spec`, keeps what it says of itself.
    """
    fields = getattr(type(made), "__dataclass_fields__", {})
    if "spec" not in fields:
        return made
    if made.spec and made.spec[0] == name and not getattr(made, "custom", ()):
        return made
    own = {"spec": (name, config), "custom": ()}
    copied = copy.copy(made)
    for field in own.keys() & fields.keys():
        object.__setattr__(copied, field, own[field])  # it may be frozen
    return copied


def summaries(rows: Mapping[str, Any], group: str) -> dict[str, str]:
    """Names and summaries of all rows; for packages, which are not loaded, the package's name."""
    others = {name: f"of {package(claims[0])}" for name, claims in entry_points(group).items()}
    return others | {name: row.summary for name, row in rows.items()}


def package(plugin: EntryPoint) -> str:
    """The package of an entry point, for messages."""
    return f"package {plugin.dist.name!r}" if plugin.dist is not None else "an unnamed package"
