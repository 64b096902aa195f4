"""Command-line flags from dataclasses: each field is a flag, and its docstring is the help text."""

import contextlib
import io
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Annotated, Any, TypeVar

import tyro

from rlkit import validation
from rlkit.cli import help
from rlkit.cli.mistakes import sentence
from rlkit.cli.spelling import advice, flag_types, is_flag, is_switch, usual_form
from rlkit.errors import ConfigError, require, shown
from rlkit.validation import PlainData

F = TypeVar("F")
C = TypeVar("C")

RunDir = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_DIR")]


def parse(
    kind: type[F],
    arguments: Sequence[str],
    *,
    command: str,
    description: str | None = None,
    default: F | None = None,
    first: Sequence[str] = (),
    epilogue: str = "",
    stray: str = "",
    elsewhere: Callable[[], Mapping[str, Sequence[str]]] = dict,
) -> F:
    """Builds a `kind` from `arguments`; fields of nested dataclasses become flags without a prefix.

    Flags that are not given keep the values of `default`. `command` is the command as typed, for
    the help. `--help` and `--help-all` print the help, which ends with the `epilogue`, and raise
    `SystemExit`; `--help` shows the fields in `first` alone, if there are any. For a flag that is
    unknown here, `elsewhere` says who has it, and `stray` is the error for a word that is no value
    of a flag. Raises `ConfigError` in one line for mistakes.
    """
    if help.is_asked(arguments):
        help.show(
            kind,
            command=command,
            description=description,
            default=default,
            first=first,
            epilogue=epilogue,
            every=help.LONG in arguments,
        )
        raise SystemExit(0)
    see = f"see `{command} {help.LONG if first else '--help'}`"
    words = [f"--{name}" for name, annotation in flag_types(kind).items() if _is_word(annotation)]
    _require_known_flags(
        arguments,
        {*flags(kind)}.difference(words),
        words,
        command=command,
        elsewhere=elsewhere,
        see=see,
    )
    message = io.StringIO()
    try:
        with contextlib.redirect_stderr(message):
            parsed, unknown = tyro.cli(
                kind,
                args=usual_form(kind, arguments, ends_in_words=_ends_in(words, arguments)),
                prog=command,
                default=tyro.MISSING_NONPROP if default is None else default,
                return_unknown_args=True,
                config=help.FORM,
            )
    except SystemExit:
        problem = sentence(message.getvalue(), flag_types(kind))
        raise ConfigError(f"{problem}; {see}") from None
    if unknown:
        raise ConfigError(stray or f"unknown argument {_place(unknown[0], arguments)}; {see}")
    return parsed


def _ends_in(words: Sequence[str], arguments: Sequence[str]) -> bool:
    """Whether the words of the command come behind its flags."""
    return bool(words) and any(map(is_flag, arguments[:1]))


def _place(word: str, arguments: Sequence[str]) -> str:
    """The word, and the flag with its value before it, if they are known: '3' after --seed 2."""
    places = [i for i, each in enumerate(arguments) if each == word]
    if len(places) > 1:  # then what is right behind a flag is its value
        flagged = [i for i, each in enumerate(arguments, 1) if is_flag(each) and "=" not in each]
        places = [i for i in places if i not in flagged]
    before = arguments[: places[0]] if len(places) == 1 else ()
    begin = max((i for i, each in enumerate(before) if is_flag(each)), default=len(before))
    return " after ".join(filter(None, [repr(word), " ".join(before[begin:])]))


def _require_known_flags(
    arguments: Sequence[str],
    known: Set[str],
    words: Sequence[str],
    *,
    command: str,
    elsewhere: Callable[[], Mapping[str, Sequence[str]]],
    see: str,
) -> None:
    """Raises `ConfigError` for the first flag that is not `known`, or for one of the `words`."""
    for argument in arguments:
        typed, _, value = argument.partition("=")
        typed = typed.replace("_", "-")
        if not is_flag(argument) or typed in known:
            continue
        if typed in words:
            forms = {word: word[2:].upper().replace("-", "_") for word in words}
            forms[typed] = value or forms[typed]
            raise ConfigError(f"{typed} is no flag; write `{command} {' '.join(forms.values())}`")
        if owners := elsewhere().get(typed):
            raise ConfigError(f"{typed} is a setting of {', '.join(owners)}; {see}")
        fix = advice(argument, list(known), otherwise=see)
        raise ConfigError(f"unknown argument {argument!r}; {fix}")


def _is_word(annotation: Any) -> bool:
    """Whether it is that of a word without a flag, such as RUN_DIR."""
    return tyro.conf.Positional in getattr(annotation, "__metadata__", ())


def validate(config: C, kind: type) -> C:
    """`validation.validate`, whose errors name the flags of `kind` instead of fields."""
    try:
        return validation.validate(config)
    except ConfigError as error:
        owner, _, problem = str(error).partition(": ")
        flag = owner.rpartition(".")[2].replace("_", "-")
        if flag not in flag_types(kind):
            raise
        raise ConfigError(f"--{flag}: {problem}") from None


def flags(kind: type) -> Iterator[str]:
    """The flags for the fields of `kind`."""
    for flag, annotation in flag_types(kind).items():
        yield from (f"--{flag}", f"--no-{flag}") if is_switch(annotation) else (f"--{flag}",)


def peek(arguments: Sequence[str], flag: str) -> str | None:
    """The value of `flag`, needed before parsing because the other flags depend on it."""
    for argument, following in itertools.zip_longest(arguments, arguments[1:]):
        if argument == flag:
            return None if following is None or following.startswith("--") else following
        if argument.startswith(f"{flag}="):
            return argument.partition("=")[2]
    return None


def joined(arguments: Sequence[str], lists: Mapping[str, str]) -> list[str]:
    """The arguments with all values of a repeated flag behind one of them.

    `lists` are the flags that take several values, each with an example. Raises `ConfigError` for
    one without any.
    """
    rest: list[str] = []
    found: dict[str, list[str]] = {}
    current = rest
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if argument.startswith("--"):
            current = found.setdefault(name, []) if name in lists else rest
            if name not in lists:
                rest.append(argument)
            elif equals:
                current.append(value)
        else:
            current.append(argument)
    for name, values in found.items():
        require(bool(values), f"{name} names nothing", f"write {name} {lists[name]}")
        rest += [name, *values]
    return rest


def json_object(flag: str, text: str) -> PlainData:
    """Parses the JSON object given for `flag`. Raises `ConfigError` for anything else."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error).split(";")[0]
        raise ConfigError(
            f"{flag} is not JSON ({why}), got {shown(text)}; write '{{\"name\": value}}'"
        ) from None
    require(
        isinstance(parsed, dict),
        f"{flag} must be a JSON object, got {shown(text)}",
        "write '{\"name\": value}'",
    )
    return parsed


def free_name(path: str) -> str:
    """The path, or the first free one of `<stem>-2<ending>`, `<stem>-3<ending>` and so on."""
    path = os.path.expanduser(path)
    stem, ending = os.path.splitext(path)
    names = itertools.chain([path], (f"{stem}-{n}{ending}" for n in itertools.count(2)))
    return next(each for each in names if not os.path.lexists(each))
