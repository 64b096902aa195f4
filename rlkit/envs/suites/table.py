"""The suites that rlkit adapts, as data. Imports neither JAX nor any of them.

A suite is a row here, its package as an extra of rlkit in pyproject.toml, and a module of its own
name in this folder. `make(name, **arguments)` of that module returns a `JaxEnv`; with a parameter
`num_envs` it returns an `EnvAdapter`.
"""

import dataclasses

from rlkit.envs.suites import (
    brax_ids,
    craftax_ids,
    jumanji_ids,
    minigrid_ids,
    pgx_ids,
    popgym_ids,
    xminigrid_ids,
)


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
    left_out: dict[str, str]
    """Environments that the suite has and that do not work here, and why."""


def _row(package: str, ids: tuple[str, ...], left_out: dict[str, str], *needs: str) -> Suite:
    """A suite whose package is called as what is imported of it; `needs` are other modules."""
    return Suite(
        ids=ids,
        packages=(package, *needs),
        install=f"pip install {package}",
        distribution=package,
        left_out=left_out,
    )


ADAPTED: dict[str, Suite] = {
    "brax": _row("brax", brax_ids.IDS, brax_ids.LEFT_OUT),
    "craftax": _row("craftax", craftax_ids.IDS, craftax_ids.LEFT_OUT),
    "jumanji": _row("jumanji", jumanji_ids.IDS, jumanji_ids.LEFT_OUT),
    "minigrid": _row("minigrid", minigrid_ids.IDS, minigrid_ids.LEFT_OUT),
    "pgx": _row("pgx", pgx_ids.IDS, pgx_ids.LEFT_OUT),
    "popgym": _row("popgym", popgym_ids.IDS, popgym_ids.LEFT_OUT),
    "xminigrid": _row("xminigrid", xminigrid_ids.IDS, xminigrid_ids.LEFT_OUT),
}
