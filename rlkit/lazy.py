"""Functions given by name, imported when they are used."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def resolve(target: str | Callable[..., Any]) -> Callable[..., Any]:
    """The function named `module:name`; functions are returned unchanged."""
    if not isinstance(target, str):
        return target
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)
