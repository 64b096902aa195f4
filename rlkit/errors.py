"""One family of errors, each saying what was wrong, what was given and what to type instead.

Every error that rlkit raises on purpose derives from `RlkitError`, so the command line can show its
message alone (exit code 2) and keep tracebacks for bugs.
"""

import difflib
from collections.abc import Iterable


class RlkitError(Exception):
    """Base of all errors that rlkit raises on purpose."""


class ConfigError(RlkitError, ValueError):
    """A setting that cannot work: wrong type, out of range, or at odds with another one."""


class UnknownNameError(ConfigError):
    """A name that no registry holds."""


class SpaceError(ConfigError):
    """An observation or action space that the chosen part cannot handle."""


class EnvContractError(RlkitError):
    """An environment that breaks the contract of `rlkit.envs`."""


class EnvFailedError(RlkitError):
    """An environment on the host raised, died, hung, or returned what is no number."""


class CheckpointError(RlkitError):
    """A checkpoint that is missing, damaged, or belongs to something else."""


class RunDirectoryError(RlkitError):
    """A run directory that cannot be written, is in use, or belongs to another run."""


class NonFiniteError(RlkitError):
    """Training produced NaN or infinite losses or gradients."""


def require(
    condition: bool, problem: str, cure: str, error: type[RlkitError] = ConfigError
) -> None:
    """Raises `error` with one line, `problem`; `cure`, unless `condition` holds.

    For checks made in Python before anything compiles: `condition` must be a plain bool, never a
    traced array.
    """
    if not condition:
        raise error(f"{problem}; {cure}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A cure for an unknown `name`: the nearest of the `known` names, else all of them.

    Matching ignores case and also looks at the part behind the suite, so that `CartPole-v1` finds
    `gymnax/CartPole-v1`.
    """
    known = sorted(known)
    keys = {option.lower(): option for option in known}
    keys |= {option.lower().rpartition("/")[2]: option for option in reversed(known)}
    matches = difflib.get_close_matches(str(name).lower(), keys, n=3, cutoff=0.5)
    if not matches:
        matches = difflib.get_close_matches(
            str(name).lower().rpartition("/")[2], keys, n=3, cutoff=0.6
        )
    hits = list(dict.fromkeys(keys[match] for match in matches))
    if hits:
        return "did you mean " + " or ".join(repr(hit) for hit in hits) + "?"
    return "choose one of " + ", ".join(known) if known else "none is registered"
