"""What installed packages add to the registries, by entry points. Nothing is imported to list them,
and no JAX here.
"""

import importlib.metadata
from typing import Any, TypeVar

from rlkit.errors import ConfigError, RlkitError, UnknownNameError, did_you_mean, require

EntryPoint = importlib.metadata.EntryPoint
R = TypeVar("R")


def entry_points(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points of installed packages, by name; several where packages claim the same."""
    found: dict[str, list[EntryPoint]] = {}
    for plugin in importlib.metadata.entry_points(group=group):
        found.setdefault(plugin.name, []).append(plugin)
    return found


def load_only(claims: list[EntryPoint], kind: str) -> Any:
    """What the one entry point stands for; `kind` is for messages.

    Raises `ConfigError` if several packages claim the name, or theirs does not load.
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
            f"{kind} {plugin.name!r} of {package(plugin)} ({plugin.value}) does not load: "
            f"{type(error).__name__}: {error}; repair, upgrade or uninstall that package"
        ) from error


def find_row(name: str, rows: dict[str, R], group: str, kind: str, row_type: type[R]) -> R:
    """The row of a registry: one of `rows`, or the `row_type` that an entry point of `group` stands
    for.

    Raises `UnknownNameError`, or `ConfigError` for a package that is broken or claims a name of
    `rows` for another row than the one there: only where that name is asked for, so that such a
    package leaves all other names alone.
    """
    claims = entry_points(group).get(name)
    if name in rows:
        if (
            claims and load_only(claims, kind) != rows[name]
        ):  # a package may register its row when it is imported as well
            raise ConfigError(
                f"{kind} {name!r} is registered already, but {package(claims[0])}"
                f" ({claims[0].value}) claims the name too; uninstall that package, or let its"
                " entry point have another name"
            )
        return rows[name]
    if not claims:
        known = [*rows, *entry_points(group)]
        raise UnknownNameError(f"unknown {kind} {name!r}; {did_you_mean(name, known)}")
    row = load_only(claims, kind)
    require(
        isinstance(row, row_type),
        f"{kind} {name!r} of {package(claims[0])} ({claims[0].value}) is a {type(row).__name__}",
        f"let the entry point name an rlkit {row_type.__name__}",
    )
    return row


def summaries(rows: dict[str, Any], group: str) -> dict[str, str]:
    """Names and summaries of all rows; of those in packages, which are not loaded, the package."""
    others = {name: f"of {package(claims[0])}" for name, claims in entry_points(group).items()}
    return others | {name: row.summary for name, row in rows.items()}


def package(plugin: EntryPoint) -> str:
    """The package that an entry point comes from, for messages."""
    return f"package {plugin.dist.name!r}" if plugin.dist is not None else "an unnamed package"
