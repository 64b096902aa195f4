"""The suites that rlkit adapts, as data. Imports neither JAX nor any of them.

A suite is a row here, its packages as an extra of rlkit in pyproject.toml, and a module of its own
name in this folder. `make(name, **arguments)` of that module returns a `JaxEnv`; with a parameter
`num_envs` it returns an `EnvAdapter`.
"""

import dataclasses

from rlkit.envs.suites import minigrid_ids, popgym_ids


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
    """A suite of environments that live in packages of others."""

    ids: tuple[str, ...]
    """Names without the suite."""
    packages: tuple[str, ...]
    """The modules that must be installed, the suite's own first."""
    install: str
    """What to type if one of them is missing."""
    distribution: str
    """The suite's own package, as package indexes call it."""
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)
    """Environments that the suite has and that do not work here, and why."""


ADAPTED: dict[str, Suite] = {
    "minigrid": Suite(
        ids=minigrid_ids.IDS,
        packages=("minigrid",),
        install="pip install minigrid",
        distribution="minigrid",
        left_out=minigrid_ids.LEFT_OUT,
    ),
    "popgym": Suite(
        ids=popgym_ids.IDS,
        packages=("popgym",),
        install="pip install popgym",
        distribution="popgym",
        left_out=popgym_ids.LEFT_OUT,
    ),
}
