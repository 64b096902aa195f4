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
    versions: str
    """Those that are adapted, as pip takes them; the lowest is the one that was tested."""
    package: str
    """What is imported of it."""
    is_jittable: bool
    """Whether its environments are compiled, and not stepped on the host."""

    @property
    def requirement(self) -> str:
        """What pip installs."""
        return f"{self.distribution}{self.versions}"

    @property
    def install(self) -> str:
        """What to type if it is missing."""
        return f"pip install '{self.requirement}'"


def _row(
    name: str, ids: ModuleType, versions: str, package: str = "", is_jittable: bool = True
) -> Suite:
    """`package` is what is imported, if it is not called as the suite."""
    return Suite(
        ids=ids.IDS,
        left_out=ids.LEFT_OUT,
        distribution=name,
        versions=versions,
        package=package or name,
        is_jittable=is_jittable,
    )


ADAPTED: dict[str, Suite] = {
    "brax": _row("brax", brax_ids, ">=0.14.2"),
    "craftax": _row("craftax", craftax_ids, ">=1.6.1"),
    "jumanji": _row("jumanji", jumanji_ids, ">=1.1.2"),
    "minigrid": _row("minigrid", minigrid_ids, ">=3.2", is_jittable=False),
    "navix": _row("navix", navix_ids, ">=0.7.4"),
    "pgx": _row("pgx", pgx_ids, ">=2.6"),
    "playground": _row("playground", playground_ids, ">=0.2,<1", "mujoco_playground"),
    "popgym": _row("popgym", popgym_ids, ">=1.0.7", is_jittable=False),
    "xminigrid": _row("xminigrid", xminigrid_ids, ">=0.9.3"),
}
