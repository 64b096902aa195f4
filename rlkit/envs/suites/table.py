"""The suites that rlkit adapts, as data. Imports neither JAX nor any of them.

A suite is a row here, its packages as an extra of rlkit in pyproject.toml, and a module of its own
name in this folder. `make(name, **arguments)` of that module returns a `JaxEnv`; with a parameter
`num_envs` it returns an `EnvAdapter`.
"""

import dataclasses

from rlkit.envs.suites import craftax_ids, navix_ids, xminigrid_ids


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
    """A suite of environments that live in packages of others."""

    ids: tuple[str, ...]
    """Names without the suite."""
    packages: tuple[str, ...]
    """The modules that must be installed, the suite's own first."""
    install: str
    """What to type if one of them is missing."""


ADAPTED: dict[str, Suite] = {
    "craftax": Suite(ids=craftax_ids.IDS, packages=("craftax",), install="pip install craftax"),
    "navix": Suite(ids=navix_ids.IDS, packages=("navix",), install="pip install navix"),
    "xminigrid": Suite(
        ids=xminigrid_ids.IDS, packages=("xminigrid",), install="pip install xminigrid"
    ),
}
