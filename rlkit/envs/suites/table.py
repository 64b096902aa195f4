"""The suites that rlkit adapts, as data. Imports neither JAX nor any of them.

A suite is a row here, its packages as an extra of rlkit in pyproject.toml, and a module of its own
name in this folder. `make(name, **arguments)` of that module returns a `JaxEnv`; with a parameter
`num_envs` it returns an `EnvAdapter`.
"""

import dataclasses

from rlkit.envs.suites.brax_ids import BRAX_IDS
from rlkit.envs.suites.playground_ids import PLAYGROUND_IDS


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
    "brax": Suite(ids=BRAX_IDS, packages=("brax",), install="pip install brax"),
    "playground": Suite(
        ids=PLAYGROUND_IDS,
        packages=("mujoco_playground",),
        install='pip install "playground<1"',
    ),
}
