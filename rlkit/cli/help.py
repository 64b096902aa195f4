"""The help of a command: its flags in boxes, those that people use first or all of them."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import tyro

from rlkit.validation import field_annotations

SHORT, LONG = ("-h", "--help"), "--help-all"
# Nested settings are flags without a prefix, also those that may be None.
FORM = (tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands)


def is_asked(arguments: Sequence[str]) -> bool:
    """Whether the arguments ask for help."""
    return bool({*SHORT, LONG} & set(arguments))


def show(
    kind: Any,
    *,
    command: str,
    description: str | None,
    default: Any,
    first: Sequence[str],
    epilogue: str,
    every: bool,
) -> None:
    """Prints the flags of `kind` with their values in `default`, then the epilogue.

    Unless `every` flag is wanted, only the fields in `first` are shown, and how many others there
    are; an empty `first` stands for all.
    """
    others = 0 if every or not first else sum(name not in first for name in _names(default))
    shown = _first_flags(default, first) if others else kind
    with contextlib.suppress(SystemExit):
        tyro.cli(
            shown,
            args=["--help"],
            prog=command,
            description=description,
            default=tyro.MISSING_NONPROP if others or default is None else default,
            config=FORM,
        )
    rest = [f"`{command} {LONG}` shows the other {others} flags."] if others else []
    print("\n" + "\n\n".join([*filter(None, [epilogue]), *rest]))


def _parts(value: Any) -> Iterator[Any]:
    """A dataclass and those within it."""
    yield value
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        if dataclasses.is_dataclass(inner):
            yield from _parts(inner)


def _names(value: Any) -> list[str]:
    """The names of all fields that are flags."""
    return [
        name
        for part in _parts(value)
        for name in field_annotations(type(part))
        if not dataclasses.is_dataclass(getattr(part, name))
    ]


def _first_flags(default: Any, first: Sequence[str]) -> type:
    """A class with all flags of `default`, of which help shows those in `first` alone.

    It is flat, so that they share a box, and derives from the classes of the parts, where their
    docstrings are found. The part with the foremost flag comes first.
    """
    place = {name: index for index, name in enumerate(first)}
    parts = [part for part in _parts(default) if place.keys() & field_annotations(type(part))]
    parts.sort(key=lambda part: min(place.get(name, len(place)) for name in vars(part)))
    fields: list[tuple[str, Any, Any]] = []
    for part in parts:
        for name, annotation in field_annotations(type(part)).items():
            value = dataclasses.field(default_factory=functools.partial(getattr, part, name))
            shown = annotation if name in place else tyro.conf.Suppress[annotation]
            fields.append((name, shown, value))
    # Fields of the last base come first.
    bases = tuple(dict.fromkeys(type(part) for part in reversed(parts)))
    return dataclasses.make_dataclass("FirstFlags", fields, bases=bases, frozen=True, kw_only=True)
