"""Whether functions of the user take what rlkit will call them with, told before any is called."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rlkit.errors import ConfigError

AnyCallable = Callable[..., Any]


def signature_of(function: AnyCallable) -> inspect.Signature | None:
    """Its signature; `None` for some that are written in C, of which nothing is known."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def require_takes(function: AnyCallable, names: Iterable[str], what: str, fix: str) -> None:
    """Raises `ConfigError` unless `function` can be called with as many arguments, by position."""
    signature = signature_of(function)
    if signature is None:
        return
    try:
        signature.bind(*names)
    except TypeError as error:
        raise ConfigError(f"{what} cannot be called ({error}); {fix}") from None


def require_takes_named(
    function: AnyCallable, arguments: Mapping[str, Any], what: str, *, own: str | None = None
) -> None:
    """Raises `ConfigError` unless `function` can be called with these arguments, by name.

    The message lists those that it takes, except for `own`, which rlkit itself passes.
    """
    signature = signature_of(function)
    if signature is None:
        return
    try:
        signature.bind(**arguments)
    except TypeError as error:
        names = ", ".join(name for name in signature.parameters if name != own)
        raise ConfigError(f"{what}: {error}; it takes {names or 'no arguments'}") from error
