"""`rlkit list`: the names of environments, agents, algorithms or presets. Imports no JAX."""

from collections.abc import Callable, Iterator, Sequence

from rlkit.cli import help
from rlkit.errors import ConfigError, did_you_mean

COMMAND = "rlkit list"


def run(arguments: Sequence[str]) -> int:
    """Prints the list and returns the exit code."""
    if help.is_asked(arguments):
        print(USAGE)
        return 0
    if len(arguments) != 1:
        raise ConfigError(
            f"{COMMAND} needs one argument, got {' '.join(arguments) or 'none'}; use one of"
            f" {', '.join(KINDS)}"
        )
    if arguments[0] not in KINDS:
        raise ConfigError(f"cannot list {arguments[0]!r}; {did_you_mean(arguments[0], KINDS)}")
    for line in KINDS[arguments[0]]():
        print(line)
    return 0


def _envs() -> Iterator[str]:
    from rlkit.envs.registry import list_envs

    yield from list_envs()


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

    yield from (
        name.replace("/", " ", 1) for name in preset_names()
    )  # in the form that `rlkit train` takes


KINDS: dict[str, Callable[[], Iterator[str]]] = {
    "envs": _envs,
    "agents": _agents,
    "algorithms": _algorithms,
    "presets": _presets,
}
USAGE = f"""usage: {COMMAND} {"|".join(KINDS)}

Prints the available names, one per line; presets as `rlkit train` takes them.

examples:
  {COMMAND} algorithms
  {COMMAND} envs"""
