"""Functions given by name, imported when they are used."""

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any


def resolve(target: str | Callable[..., Any]) -> Callable[..., Any]:
    """The function named `module:name`; functions are returned unchanged."""
    return resolve_name(target) if isinstance(target, str) else target
