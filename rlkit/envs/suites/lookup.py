"""Who creates an id, of the suites that come with rlkit and those that it adapts; hints for unknown
ids. Imports no JAX.
"""

import difflib
import functools
import importlib
import importlib.util
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from rlkit.envs.ids import (
    ATARI_IDS,
    ENVPOOL_IDS,
    GYMNASIUM_IDS,
    GYMNAX_IDS,
    GYMNAX_VARIANTS,
    INSTALL,
    MIXTURE,
    PROBE_IDS,
)
from rlkit.envs.suites.table import ADAPTED
from rlkit.errors import ConfigError, UnknownNameError, did_you_mean, require

if TYPE_CHECKING:
    from rlkit.envs.base import EnvAdapter, JaxEnv

TABLES = {
    "gymnax": GYMNAX_IDS,
    "gymnasium": (*GYMNASIUM_IDS, *ATARI_IDS),
    "envpool": ENVPOOL_IDS,
    "probe": PROBE_IDS,
    "rlkit": (MIXTURE.partition("/")[2], *GYMNAX_VARIANTS),
    **{suite: row.ids for suite, row in ADAPTED.items()},
}
BUILT_IN = {f"{suite}/{name}" for suite, names in TABLES.items() for name in names}
GYMNASIUM_KINDS = {
    "box2d": ("Box2D environment", ("Box2D",)),
    "mujoco": ("MuJoCo environment", ("mujoco",)),
    "atari": ("Atari game", ("ale_py", "cv2")),
}
"""Kinds of environments that gymnasium alone cannot make: the name of one, and what it needs."""
SUGGESTED_FIRST = ("gymnax", "gymnasium")  # for environments that exist in several suites


def find(env_id: str) -> "Callable[..., JaxEnv | EnvAdapter] | None":
    """The function that creates `env_id`, or `None` if no suite has it.

    EnvPool ids that are not listed are accepted and checked later, because checking needs EnvPool's
    import, which imports JAX. Raises `ConfigError` if a package is missing, or if the id would make
    gymnasium import a module.
    """
    suite, _, name = env_id.partition("/")
    if suite == "gymnax" and (env_id in BUILT_IN or name in _own_gymnax_ids()):
        return _gymnax(name)
    if suite == "rlkit" and name in GYMNAX_VARIANTS:
        return _gymnax_variant(name)
    if is_probe(env_id):
        return _probe(name)
    if suite == "gymnasium" and _is_gymnasium(name):
        return _gymnasium(name)
    if suite == "envpool":
        _require_package("envpool", INSTALL["envpool"], env_id)
        return _envpool(name)
    if is_adapted(env_id):
        return _adapted(suite, name)
    return None


def is_adapted(env_id: str) -> bool:
    """Whether a suite that rlkit adapts has this id.

    Raises `ConfigError` if it has, and a package that the suite needs is missing.
    """
    suite, _, name = env_id.partition("/")
    if suite not in ADAPTED or name not in ADAPTED[suite].ids:
        return False
    _require_package(ADAPTED[suite].package, ADAPTED[suite].install, env_id)
    return True


def _adapted(suite: str, name: str) -> "Callable[..., JaxEnv | EnvAdapter]":
    row = ADAPTED[suite]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some say that they are no longer maintained
            adapter = importlib.import_module(f"rlkit.envs.suites.{suite}")
    except Exception as error:  # a suite may fail in any way on a JAX that it does not know
        raise ConfigError(
            f"{suite}/{name} needs {row.package!r}, which is installed and cannot be imported"
            f" ({type(error).__name__}: {error}); try what rlkit was tested with:"
            f" pip install --upgrade '{row.requirement}'"
        ) from error
    return functools.partial(adapter.make, name)


def suggest(env_id: str, known: Iterable[str]) -> str:
    """A hint for an unknown `env_id`: the `known` ids with similar names, jittable ones first."""
    known = sorted({*known, *_registered_with_gymnasium()}, key=lambda other: (_rank(other), other))
    suite, _, name = env_id.lower().rpartition("/")
    known = [other for other in known if other.lower().startswith(f"{suite}/")] or known
    reason = ADAPTED[suite].left_out.get(env_id.partition("/")[2]) if suite in ADAPTED else None
    if reason is not None:
        return f"rlkit leaves it out ({reason}), so use another"
    names: dict[str, list[str]] = {}
    for other in known:
        names.setdefault(other.lower().rpartition("/")[2], []).append(other)
    nearest = [name] if name in names else difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    hits = [repr(other) for match in nearest for other in names[match]][:3]
    return f"did you mean {' or '.join(hits)}?" if hits else "run `rlkit list envs` to see all ids"


def _rank(env_id: str) -> int:
    suite = env_id.partition("/")[0]
    return SUGGESTED_FIRST.index(suite) if suite in SUGGESTED_FIRST else len(SUGGESTED_FIRST)


def _gymnax(name: str) -> "Callable[..., JaxEnv]":
    def factory(
        params: dict[str, Any] | None = None,
        observed: Any = None,
        **kwargs: Any,
    ) -> "JaxEnv":
        from rlkit.envs.jittable.gymnax import gymnax_env
        from rlkit.envs.jittable.observation_wrappers import SelectObservation

        env = gymnax_env(name, params=params, **kwargs)
        if observed is None:
            return env
        indices = observed if isinstance(observed, (list, tuple)) else (observed,)
        return SelectObservation(env, tuple(indices))

    return factory


def _gymnax_variant(name: str) -> "Callable[..., JaxEnv]":
    whole, arguments = GYMNAX_VARIANTS[name]

    def factory(params: dict[str, Any] | None = None) -> "JaxEnv":
        own = arguments.get("params", {})
        given: Any = own | params if isinstance(params, dict) else params or own
        return _gymnax(whole)(**{**arguments, "params": given})

    return factory


def _own_gymnax_ids() -> list[str]:
    """Ids that the user registered with gymnax, if gymnax is already imported."""
    return list(getattr(sys.modules.get("gymnax"), "registered_envs", ()))


def is_probe(env_id: str) -> bool:
    """Whether a probe of rlkit has this id."""
    return env_id.startswith("probe/") and env_id in BUILT_IN


def _probe(name: str) -> "Callable[..., JaxEnv]":
    for module in ("value_probes", "space_probes", "image_probes"):
        factory = getattr(importlib.import_module(f"rlkit.envs.probes.{module}"), name, None)
        if factory is not None:
            return factory
    raise UnknownNameError(f"there is no probe {name!r}; {did_you_mean(name, PROBE_IDS)}")


def _gymnasium(name: str) -> "Callable[..., EnvAdapter]":
    def factory(num_envs: int, **kwargs: Any) -> "EnvAdapter":
        from rlkit.envs.host.gymnasium import GymnasiumAdapter

        return GymnasiumAdapter(name, num_envs, spec=(f"gymnasium/{name}", kwargs), **kwargs)

    return factory


def _is_gymnasium(name: str) -> bool:
    """Whether gymnasium, or a package registered with it, has `name`.

    Raises `ConfigError` if a package that it needs is missing.
    """
    if ":" in name:
        module, _, rest = name.partition(":")
        raise ConfigError(
            f"'gymnasium/{name}' would import the module {module!r}, which ids never do; import it"
            f" in your program, then use 'gymnasium/{rest}'"
        )
    import gymnasium

    spec = gymnasium.registry.get(name)
    if spec is None and name in ATARI_IDS:  # ale_py registers these when one is created
        _require_packages("atari", f"gymnasium/{name}")
        return True
    if spec is None or _only_raises(spec.entry_point):
        return False
    for kind in ("mujoco", "box2d"):
        if str(spec.entry_point).startswith(f"gymnasium.envs.{kind}."):
            _require_packages(kind, f"gymnasium/{name}")
    return True


def _only_raises(entry_point: object) -> bool:
    """Whether it is one of gymnasium's entries for removed versions, such as `HalfCheetah-v2`."""
    return inspect.isfunction(entry_point) and entry_point.__module__ == "gymnasium.envs"


def _registered_with_gymnasium() -> list[str]:
    """Ids that others registered with gymnasium, if gymnasium is already imported."""
    registry = getattr(sys.modules.get("gymnasium"), "registry", {})
    others = [
        name
        for name, spec in registry.items()
        if not str(spec.entry_point).startswith("gymnasium.")
    ]
    return [f"gymnasium/{name}" for name in others if not _only_raises(registry[name].entry_point)]


def _envpool(name: str) -> "Callable[..., EnvAdapter]":
    def factory(num_envs: int, **kwargs: Any) -> "EnvAdapter":
        from rlkit.envs.host.envpool import EnvPoolAdapter

        return EnvPoolAdapter(name, num_envs, spec=(f"envpool/{name}", kwargs), **kwargs)

    return factory


def missing_packages(suite: str) -> list[str]:
    """Packages that environments of a suite need and that are not installed, each with the cure."""
    if suite == "gymnasium":
        needed = [
            (f"each {title} of gymnasium", package, INSTALL[kind])
            for kind, (title, packages) in GYMNASIUM_KINDS.items()
            for package in packages
        ]
    elif suite == "envpool":
        needed = [(suite, suite, INSTALL[suite])]
    elif suite in ADAPTED:
        needed = [(suite, ADAPTED[suite].package, ADAPTED[suite].install)]
    else:
        needed = []
    return [
        f"{_lacking(what, package)}; {cure}"
        for what, package, cure in needed
        if not _is_installed(package)
    ]


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _lacking(name: str, package: str) -> str:
    return f"{name} needs the package {package!r}, which is not installed"


def _require_package(package: str, cure: str, env_id: str) -> None:
    require(_is_installed(package), _lacking(env_id, package), cure)


def _require_packages(kind: str, env_id: str) -> None:
    for package in GYMNASIUM_KINDS[kind][1]:
        _require_package(package, INSTALL[kind], env_id)
