"""rlkit's exceptions; each message says what was wrong, what was given, and what to type instead.

Every error that rlkit raises deliberately derives from `RlkitError`, so the command line can print
just the message (exit code 2) and keep tracebacks for bugs.
"""

import difflib
import numbers
from collections.abc import Iterable
from typing import Any


class RlkitError(Exception):
    """Base class of all errors that rlkit raises deliberately."""


class ConfigError(RlkitError, ValueError):
    """An invalid setting: wrong type, out of range, or in conflict with another one."""


class UnknownNameError(ConfigError):
    """A name that is in no registry."""


class SpaceError(ConfigError):
    """An observation or action space that a component cannot handle."""


class EnvContractError(RlkitError):
    """An environment that violates the contract of `rlkit.envs`."""


class EnvFailedError(RlkitError):
    """An environment raised, died, hung, or returned NaN or infinity."""


class EnvStateError(RlkitError):
    """An environment whose state cannot be saved, or a saved state that does not fit it."""


class CheckpointError(RlkitError):
    """A checkpoint that is missing, damaged, or does not match."""


class RunDirectoryError(RlkitError):
    """A run directory that cannot be written, is in use, or belongs to another run."""


class ExportError(RlkitError):
    """A policy that cannot be exported, or files that do not act as it does."""


class DiskError(CheckpointError, RunDirectoryError):
    """What a run writes was not written: the disk is full or broken."""


class NonFiniteError(RlkitError):
    """Training produced NaN or infinity: losses, gradients, parameters or actions."""


class ProcessError(RlkitError):
    """A process of several that train one run died, hangs, failed, or does not fit the others."""


def require(condition: bool, problem: str, fix: str, error: type[RlkitError] = ConfigError) -> None:
    """Raises `error` with the message "`problem`; `fix`" unless `condition` holds.

    For checks in Python before anything compiles: `condition` must be a plain bool, never a traced
    array.
    """
    if not condition:
        raise error(f"{problem}; {fix}")


def near_multiples(size: int, count: int) -> str:
    """The multiples of `count` around `size`, as an error suggests them: "6 or 8"."""
    lower = size - size % count
    return " or ".join(str(x) for x in (lower, lower + count) if x > 0)


def require_positive_integer(name: str, value: object, *, example: int, none: str = "") -> None:
    """Raises `ConfigError` unless `value` is a positive integer; NumPy's are some, too.

    `name` is that of the argument, perhaps after its owner's: "TimeLimit max_episode_steps".
    None is allowed as well if `none` says what it means.
    """
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    number: Any = value
    is_positive = is_integer and int(number) >= 1
    require(
        is_positive or (bool(none) and value is None),
        f"{name} must be a positive integer{none and ' or None'}, got {value!r}",
        f"pass an integer such as {name.split()[-1]}={example}{none and f', or None for {none}'}",
    )


def require_share(part: object, *names: str) -> None:
    """Raises `ConfigError` for a setting of `part` outside [0, 1]; tracers are not known."""
    for name in names:
        value = getattr(part, name)
        require(
            not isinstance(value, (int, float)) or 0 <= value <= 1,
            f"{name}={value} of {type(part).__name__} is outside [0, 1]",
            "use a number from 0 to 1",
        )


def require_counts(part: object, **least: int) -> None:
    """Raises `ConfigError` for a setting of `part` that is no whole number of `least` or more."""
    for name, smallest in least.items():
        value = getattr(part, name)
        require(
            isinstance(value, int) and not isinstance(value, bool) and value >= smallest,
            f"{name}={value} of {type(part).__name__} must be a whole number of at least"
            f" {smallest}",
            f"use {name}={max(smallest, 1)}, for instance",
        )


def shown(value: object, length: int = 200) -> str:
    """`repr(value)` in one line of at most about `length` characters, for a message."""
    try:
        text = " ".join(repr(value).split())
    except (ValueError, RecursionError):  # an integer of thousands of digits, or endless nesting
        return f"a {type(value).__name__} too large to print"
    if len(text) <= length:
        return text
    return f"{text[: length // 2]} ... {text[-length // 4 :]} ({len(text):,} characters)"


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.5) -> str:
    """A hint for an unknown `name`: the nearest of the `known` names, or else all of them.

    Matching ignores case and also compares the part after the suite, so that `CartPole-v1` finds
    `gymnax/CartPole-v1`. `cutoff` is how alike names have to be, from 0 to 1.
    """
    known = sorted(known)
    keys = {option.lower(): option for option in known}
    keys |= {option.lower().rpartition("/")[2]: option for option in reversed(known)}
    matches = difflib.get_close_matches(str(name).lower(), keys, n=3, cutoff=cutoff)
    if not matches:
        matches = difflib.get_close_matches(
            str(name).lower().rpartition("/")[2], keys, n=3, cutoff=max(cutoff, 0.6)
        )
    hits = list(dict.fromkeys(keys[match] for match in matches))
    if hits:
        return "did you mean " + " or ".join(repr(hit) for hit in hits) + "?"
    return "choose one of " + ", ".join(known) if known else "none is registered"
