"""All laws by name."""

import os
from collections.abc import Callable
from typing import Any, Literal

from rlkit.errors import UnknownNameError, did_you_mean, require
from rlkit.testing import episodes, runs
from rlkit.testing.play import Env

Kind = Literal["jittable", "host"]
Law = Callable[..., None]

_EPISODES: tuple[Law, ...] = (
    episodes.check_contract,
    episodes.same_seed_same_episode,
    episodes.resets_restart,
    episodes.time_limit_truncates,
)
_JITTABLE: tuple[Law, ...] = (episodes.jit_equals_eager, episodes.vmap_equals_loop)
_IN_DIRECTORY: tuple[Law, ...] = (runs.resumes_exactly, runs.exports_the_same_actions)
_RUNS: tuple[Law, ...] = (runs.trains, *_IN_DIRECTORY)


def list_laws(kind: Kind = "jittable") -> dict[str, str]:
    """The laws for a kind of environment by name, with what they say.

    `kind` is "jittable" or "host"; a jittable environment keeps all of them.
    """
    require(
        kind in ("jittable", "host"),
        f"unknown kind of environment {kind!r}",
        "pass 'jittable' or 'host'",
    )
    laws = (*_EPISODES, *(_JITTABLE if kind == "jittable" else ()), *_RUNS)
    return {law.__name__: (law.__doc__ or "").splitlines()[0] for law in laws}


def check_law(law: str, env: Env, directory: str | os.PathLike[str], **arguments: Any) -> None:
    """Checks one law by its name; `directory` is used by those that write files.

    `arguments` are its own, such as `env_arguments`, or `algorithm` for laws of runs. Raises
    `AssertionError` if the law does not hold, `UnknownNameError` if there is none of that name.
    """
    laws = {each.__name__: each for each in (*_EPISODES, *_JITTABLE, *_RUNS)}
    if law not in laws:
        raise UnknownNameError(f"there is no law {law!r}; {did_you_mean(law, laws)}")
    function = laws[law]
    if function in _IN_DIRECTORY:
        function(env, directory, **arguments)
    else:
        function(env, **arguments)
