"""Whole numbers as people write them, in flags and in files: 100k, 1e6."""

import re
import types
import typing
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from rlkit.errors import require

_SHORT = re.compile(r"(\d+(?:\.\d*)?)(?:[eE]\+?(\d|1[0-5])|([kKmMbB]))")
_GROUPED = re.compile(r"\d{1,3}(,\d{3})+")
_ZEROS = {"k": 3, "m": 6, "b": 9}  # of thousands, millions, billions


def in_digits(text: str) -> str:
    """`1e5`, `100k` and `100,000` as 100000; anything else as it is."""
    if _GROUPED.fullmatch(text):
        return text.replace(",", "")
    short = _SHORT.fullmatch(text)
    if short is None:
        return text
    digits, power, unit = short.groups()
    number = Decimal(digits).scaleb(int(power) if power else _ZEROS[unit.lower()])
    return str(int(number)) if number == int(number) else text


def require_no_groups(name: str, text: str) -> None:
    """Raises `ConfigError` for 1,024 in a list, which is not 1 and 24 (nor 20, by base eight)."""
    group = re.search(r"[1-9]\d{0,2}(,\d{3})*,0\d\d(,\d{3})*(?![\d.])", text)
    told = group.group() if group else ""
    require(
        group is None,
        f"{name}={text}: commas separate values, so {told} is {told.count(',') + 1} of them",
        f"write {told.replace(',', '')}",
    )


def as_whole(annotation: Any, value: Any) -> Any:
    """`value` with whole numbers in place of 1e6 and "100k", where the annotation wants those.

    A file reads 1e6 as a float. Anything else stays as it is, to be refused by who checks it.
    """
    allowed = set(kinds(annotation))
    if int not in allowed or allowed & {float, str}:
        return value
    if isinstance(value, list):
        return [as_whole(annotation, each) for each in value]
    if isinstance(value, str):
        is_list = tuple in allowed and "," in value  # 64,128 are two sizes
        digits = value if is_list else in_digits(value)
        return value if digits == value else int(digits)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def kinds(annotation: Any) -> Iterator[Any]:
    """The types that an annotation allows, such as int and NoneType; `tuple` for any tuple."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        yield from kinds(typing.get_args(annotation)[0])
    elif origin in (typing.Union, types.UnionType):
        for part in typing.get_args(annotation):
            yield from kinds(part)
    elif origin is tuple:
        yield tuple
        yield from (kind for part in typing.get_args(annotation)[:1] for kind in kinds(part))
    else:
        yield origin or annotation
