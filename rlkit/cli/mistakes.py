"""What is wrong with arguments, in one sentence, from the message that tyro prints."""

import itertools
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

# How tyro quotes what was typed.
_GIVEN = (
    re.compile(r"invalid choice ('.*?') for argument"),
    re.compile(r"instantiated from \[(.*)\]"),
    re.compile(r"valid parse for arguments: \[(.*)\]"),
    re.compile(r"(?:base 10|to float): ('.*')"),
    re.compile(r"value has (\d+ digits)"),
)
_NOUNS = {int: "whole number", float: "number", str: "text"}


def sentence(message: str, annotations: Mapping[str, Any]) -> str:
    """The error inside `message`: which flag, what it takes, what was typed.

    `annotations` are those of the flags, by their names without dashes. Words that are not known
    stay as they are.
    """
    text = _first_paragraph(message)
    absent = re.match(r"Missing from (.*?): (\S+)", text)
    if absent:
        return f"{absent[1]} needs {absent[2]}"
    flag = re.search(r"--([a-z][a-z0-9-]*)", text)
    if flag is None or flag[1] not in annotations:
        return text
    wanted = _listed(list(_wanted(annotations[flag[1]])))
    if text.startswith("Missing value") or "instantiated from []" in text:
        return f"{flag[0]} needs a value: {wanted}"
    given = next((found[1] for pattern in _GIVEN if (found := pattern.search(text))), None)
    return f"{flag[0]} must be {wanted}, got {given}" if given else text


def _wanted(annotation: Any, article: str = "a ", ending: str = "") -> Iterator[str]:
    """What a value may be, in words."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        yield from _wanted(inner[0], article, ending)
    elif origin in (typing.Union, types.UnionType):
        for part in inner:
            yield from _wanted(part, article, ending)
    elif origin is typing.Literal:
        yield from map(str, inner)
    elif origin is tuple:
        count = "" if Ellipsis in inner else f"{len(inner)} "
        yield from _wanted(inner[0], article=count, ending="s")
    elif annotation is bool:
        yield from ("True", "False")
    elif annotation in (int, float):
        yield f"{article}{_NOUNS[annotation]}{ending}"
    else:
        yield _NOUNS.get(annotation, "None")


def _listed(words: list[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def _first_paragraph(message: str) -> str:
    """The error inside tyro's message, without its title, frame and hints."""
    rows = [re.sub(r"\x1b\[[0-9;]*m", "", row).strip("│╭╮╰╯ ") for row in message.splitlines()]
    below_title = itertools.dropwhile(_is_rule, rows[1:])
    text = " ".join(itertools.takewhile(lambda row: not _is_rule(row), below_title))
    text = re.sub(r"^Error parsing (--\S+):", r"\1:", text)
    return re.sub(r"^Error parsing [a-z_.]+: ", "", text).removesuffix(".")  # a group of flags


def _is_rule(row: str) -> bool:
    return not row.strip("─- ")
