"""The suites that come with rlkit: what makes an id of each, and what is said to an id that it
lacks. Imports no JAX.
"""

import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from rlkit.envs.ids import ATARI_IDS, ENVPOOL_IDS, GYMNASIUM_IDS, GYMNAX_IDS, PROBE_IDS
from rlkit.errors import ConfigError, UnknownNameError, did_you_mean, require

if TYPE_CHECKING:
    from rlkit.envs.base import EnvAdapter, JaxEnv

TABLES = {
    "gymnax": GYMNAX_IDS,
    "gymnasium": (*GYMNASIUM_IDS, *ATARI_IDS),
    "envpool": ENVPOOL_IDS,
    "probe": PROBE_IDS,
}
BUILT_IN = {f"{suite}/{name}" for suite, names in TABLES.items() for name in names}
SUGGESTED_FIRST = ("gymnax", "gymnasium")  # of environments that several suites have


def find(env_id: str) -> "Callable[..., JaxEnv | EnvAdapter] | None":
    """What makes `env_id`; `None`: no suite here has it. An unlisted id of EnvPool is found, and
    checked when it is made: only its import, which brings JAX, tells.

    Raises `ConfigError` where a package is missing, and for an id that would have gymnasium import
    a module.
    """
    suite, _, name = env_id.partition("/")
    if suite == "gymnax" and (env_id in BUILT_IN or name in _own_gymnax_ids()):
        return _gymnax(name)
    if suite == "probe" and env_id in BUILT_IN:
        return _probe(name)
    if suite == "gymnasium" and _is_gymnasium(name):
        return _gymnasium(name)
    if suite == "envpool":
        _need("envpool", "envpool", env_id)
        return _envpool(name)
    return None


def suggest(env_id: str, known: Iterable[str]) -> str:
    """A cure for an `env_id` that no suite has: those of `known` that have its name or nearly so,
    jittable ones first.
    """
    known = sorted({*known, *_registered_with_gymnasium()}, key=lambda other: (_rank(other), other))
    suite, _, name = env_id.lower().rpartition("/")
    known = [other for other in known if other.lower().startswith(f"{suite}/")] or known
    names: dict[str, list[str]] = {}
    for other in known:
        names.setdefault(other.lower().rpartition("/")[2], []).append(other)
    nearest = [name] if name in names else difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    hits = [repr(other) for match in nearest for other in names[match]][:3]
    return (
        f"did you mean {' or '.join(hits)}?"
        if hits
        else "`rlkit list envs` names those that there are"
    )


def _rank(env_id: str) -> int:
    suite = env_id.partition("/")[0]
    return SUGGESTED_FIRST.index(suite) if suite in SUGGESTED_FIRST else len(SUGGESTED_FIRST)


def _gymnax(name: str) -> "Callable[..., JaxEnv]":
    def factory(params: dict[str, Any] | None = None, **kwargs: Any) -> "JaxEnv":
        from rlkit.envs.jittable.gymnax import gymnax_env

        return gymnax_env(name, params=params, **kwargs)

    return factory


def _own_gymnax_ids() -> list[str]:
    """What the user registered with gymnax itself; looked up only if gymnax has been imported
    anyway.
    """
    return list(getattr(sys.modules.get("gymnax"), "registered_envs", ()))


def _probe(name: str) -> "Callable[..., JaxEnv]":
    for module in ("value_probes", "space_probes"):
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
    """Whether gymnasium, or a package that registered with it, has `name`; raises `ConfigError` if
    not what it needs.
    """
    if ":" in name:
        module, _, rest = name.partition(":")
        raise ConfigError(
            f"'gymnasium/{name}' would import the module {module!r}, which an id never does; "
            f"import it in your program, then use 'gymnasium/{rest}'"
        )
    import gymnasium

    spec = gymnasium.registry.get(name)
    if spec is None and name in ATARI_IDS:  # ale_py registers them when one is made
        for package in ("ale_py", "cv2"):
            _need(package, "atari", f"gymnasium/{name}")
        return True
    if spec is None or _only_raises(spec.entry_point):
        return False
    for package, extra in (("mujoco", "mujoco"), ("Box2D", "box2d")):
        if str(spec.entry_point).startswith(f"gymnasium.envs.{extra}."):
            _need(package, extra, f"gymnasium/{name}")
    return True


def _only_raises(entry_point: Any) -> bool:
    """Whether it is one of the functions that gymnasium has for versions which it lacks, such as
    `HalfCheetah-v2`.
    """
    return inspect.isfunction(entry_point) and entry_point.__module__ == "gymnasium.envs"


def _registered_with_gymnasium() -> list[str]:
    """What others registered with gymnasium; looked up only if gymnasium has been
    imported anyway.
    """
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


def _need(package: str, extra: str, env_id: str) -> None:
    found = importlib.util.find_spec(package) is not None
    require(
        found,
        f"{env_id} needs the package {package!r}, which is not installed",
        f'pip install "rlkit[{extra}]"',
    )
