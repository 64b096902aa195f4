"""The suites that rlkit adapts, as data. Imports neither JAX nor any of them.

A suite is a row here, its package as an extra of rlkit in pyproject.toml, and a module of its own
name in this folder. `make(name, **arguments)` of that module returns a `JaxEnv`; with a parameter
`num_envs` it returns an `EnvAdapter`.
"""

import dataclasses
from types import ModuleType

from rlkit.envs.suites import (
    brax_ids,
    craftax_ids,
    jumanji_ids,
    minigrid_ids,
    navix_ids,
    pgx_ids,
    playground_ids,
    popgym_ids,
    xminigrid_ids,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
    """A suite of environments that live in packages of others."""

    ids: tuple[str, ...]
    """Names without the suite."""
    left_out: dict[str, str]
    """Environments that the suite has and that do not work here, and why."""
    distribution: str
    """The suite's package, as package indexes call it."""
    package: str
    """The same, as it is imported."""
    versions: str = ""
    """Those that are adapted, as pip takes them; all if empty."""

    @property
    def install(self) -> str:
        """What to type if it is missing."""
        wanted = f"{self.distribution}{self.versions}"
        return f"pip install '{wanted}'" if self.versions else f"pip install {wanted}"


def _row(name: str, ids: ModuleType, package: str = "", versions: str = "") -> Suite:
    """`package` is what is imported, if it is not called as the suite."""
    return Suite(
        ids=ids.IDS,
        left_out=ids.LEFT_OUT,
        distribution=name,
        package=package or name,
        versions=versions,
    )


ADAPTED: dict[str, Suite] = {
    "brax": _row("brax", brax_ids),
    "craftax": _row("craftax", craftax_ids),
    "jumanji": _row("jumanji", jumanji_ids),
    "minigrid": _row("minigrid", minigrid_ids),
    "navix": _row("navix", navix_ids),
    "pgx": _row("pgx", pgx_ids),
    "playground": _row("playground", playground_ids, package="mujoco_playground", versions="<1"),
    "popgym": _row("popgym", popgym_ids),
    "xminigrid": _row("xminigrid", xminigrid_ids),
}
