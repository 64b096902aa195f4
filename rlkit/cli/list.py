"""`rlkit list`: the names of environments, agents, algorithms or presets. Imports no JAX."""

import sys
from collections.abc import Callable, Iterator, Sequence

from rlkit.cli import help
from rlkit.errors import ConfigError, did_you_mean

COMMAND = "rlkit list"


def run(arguments: Sequence[str]) -> int:
    """Prints the list and returns the exit code."""
    if help.is_asked(arguments):
        print(USAGE)
        return 0
    if not arguments:
        raise ConfigError(f"{COMMAND} needs an argument, got none; use one of {', '.join(KINDS)}")
    kind, *rest = [part for word in arguments for part in word.split("=", 1)]
    if kind not in KINDS:
        raise ConfigError(f"cannot list {kind!r}; {did_you_mean(kind, KINDS)}")
    suite = rest[1] if kind == "envs" and len(rest) == 2 and rest[0] == "--suite" else None
    if suite is not None:
        lines = _envs_of(suite)
    elif rest:
        is_suite = kind == "envs" and len(rest) == 1 and bool(_of(rest[0]))
        fix = f"use `{COMMAND} envs --suite {rest[0]}`" if is_suite else f"see `{COMMAND} --help`"
        raise ConfigError(f"{COMMAND} {kind} does not take {' '.join(rest)}; {fix}")
    else:
        lines = KINDS[kind]()
    for line in lines:
        print(line)
    if suite is not None:
        _say_what_is_missing(suite)
    return 0


def _envs() -> Iterator[str]:
    from rlkit.envs.registry import list_envs

    yield from list_envs()


def _of(suite: str) -> list[str]:
    return [env_id for env_id in _envs() if env_id.startswith(f"{suite}/")]


def _envs_of(suite: str) -> list[str]:
    found = _of(suite)
    if not found:
        suites = sorted({env_id.partition("/")[0] for env_id in _envs()})
        raise ConfigError(f"there is no suite {suite!r}; use one of {', '.join(suites)}")
    return found


def _say_what_is_missing(suite: str) -> None:
    """On stderr: the list itself may be piped."""
    from rlkit.envs.suites.lookup import missing_packages

    for missing in missing_packages(suite):
        print(missing, file=sys.stderr)


def _agents() -> Iterator[str]:
    from rlkit.agents.registry import list_agents

    yield from _table(list_agents())


def _algorithms() -> Iterator[str]:
    from rlkit.algorithms.registry import list_algorithms

    yield from _table(list_algorithms())


def _table(summaries: dict[str, str]) -> Iterator[str]:
    width = max(map(len, summaries))
    yield from (f"{name:<{width}}  {summary}" for name, summary in summaries.items())


def _presets() -> Iterator[str]:
    from rlkit.training.run_config import preset_names

    # In the form that `rlkit train` takes.
    yield from (name.replace("/", " ", 1) for name in preset_names())


KINDS: dict[str, Callable[[], Iterator[str]]] = {
    "envs": _envs,
    "agents": _agents,
    "algorithms": _algorithms,
    "presets": _presets,
}
USAGE = f"""usage: {COMMAND} {"|".join(KINDS)} [--suite NAME]

Prints the available names, one per line; presets as `rlkit train` takes them. --suite is for envs.

examples:
  {COMMAND} algorithms
  {COMMAND} envs --suite gymnax"""
