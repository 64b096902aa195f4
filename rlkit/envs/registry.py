"""Environments by name: `make_env("suite/name", num_envs)`, and how third parties add theirs.

The suite is the text before the first "/". Three sources, the first that knows an id makes it: `register_env`, the built-in
tables, installed packages with an entry point in the group `rlkit.envs`:

    [project.entry-points."rlkit.envs"]
    "mine/Maze-v0" = "my_package.maze:Maze"

Nothing is imported to list ids: not JAX, not a suite, not a package of a third party.
"""

import dataclasses
import importlib
import importlib.metadata
import inspect
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlkit.envs.ids import GYMNAX_IDS, PROBE_IDS
from rlkit.errors import ConfigError, EnvContractError, RlkitError, UnknownNameError, did_you_mean, require

if TYPE_CHECKING:
    from rlkit.envs.base import EnvAdapter, JaxEnv

ENTRY_POINT_GROUP = "rlkit.envs"
BUILT_IN = {f"{suite}/{name}" for suite, names in (("gymnax", GYMNAX_IDS), ("probe", PROBE_IDS)) for name in names}

Factory = Callable[..., "JaxEnv | EnvAdapter"]


@dataclasses.dataclass(frozen=True)
class _Entry:
    factory: Factory
    max_episode_steps: int | None


_registered: dict[str, _Entry] = {}


def make_env(env_id: str, num_envs: int, **kwargs: Any) -> "EnvAdapter":
    """`num_envs` copies of the environment `env_id`, such as `gymnax/CartPole-v1`; `kwargs` go to its factory.

    The result's `spec` is `(env_id, kwargs)`. Raises `UnknownNameError` for an unknown id, `ConfigError` for arguments that the
    environment does not take or a package that fails to load, `EnvContractError` for an environment that breaks the contract.
    """
    _check_id(env_id)
    entry = _find(env_id)
    return _build(env_id, entry, num_envs, kwargs)


def register_env(env_id: str, factory: Factory, *, max_episode_steps: int | None = None, overwrite: bool = False) -> None:
    """Makes `make_env(env_id, ...)` call `factory`.

    `factory(**kwargs)` returns ONE environment (a `JaxEnv`; its class will do), which is vectorised. A factory with a parameter
    named `num_envs` is called `factory(num_envs=..., **kwargs)` and returns an `EnvAdapter`. `max_episode_steps` wraps a
    `JaxEnv` in `TimeLimit`. Registering an id twice is an error unless `overwrite` says otherwise.
    """
    _check_id(env_id)
    require(
        callable(factory), f"factory of {env_id!r} is {factory!r}", "pass the environment's class, or a function making one"
    )
    taken = env_id in _registered or env_id in BUILT_IN
    require(overwrite or not taken, f"{env_id!r} is registered already", "choose another id, or pass overwrite=True")
    _registered[env_id] = _Entry(factory, max_episode_steps)


def list_envs() -> list[str]:
    """All ids that `make_env` knows, sorted; imports no suite and loads no package."""
    return sorted(BUILT_IN | _registered.keys() | _entry_points().keys())


def _check_id(env_id: str) -> None:
    require(isinstance(env_id, str), f"environment id is {env_id!r}", "pass a string such as 'gymnax/CartPole-v1'")
    require(bool(env_id.strip()), "the environment id is empty", "pass one such as 'gymnax/CartPole-v1'")
    suite, slash, name = env_id.partition("/")
    if not slash:
        raise UnknownNameError(f"environment id {env_id!r} has no suite; {did_you_mean(env_id, list_envs())}")
    require(bool(suite and name), f"environment id {env_id!r} is incomplete", "write it suite/name, as in gymnax/CartPole-v1")


def _find(env_id: str) -> _Entry:
    if env_id in _registered:
        return _registered[env_id]
    suite, _, name = env_id.partition("/")
    if env_id in BUILT_IN or (suite == "gymnax" and name in _own_gymnax_ids()):
        return _Entry(_gymnax_factory(name) if suite == "gymnax" else _probe_factory(name), None)
    plugins = _entry_points().get(env_id, [])
    require(
        len(plugins) < 2,
        f"{env_id!r} is claimed by several packages: {', '.join(_package(plugin) for plugin in plugins)}",
        "uninstall all but one",
    )
    if plugins:
        return _Entry(_load(plugins[0]), None)
    raise _unknown(env_id, suite)


def _unknown(env_id: str, suite: str) -> UnknownNameError:
    known = list_envs()
    if suite == "gymnasium":
        jax_ids = did_you_mean(f"gymnax/{env_id.rpartition('/')[2]}", BUILT_IN)
        return UnknownNameError(f"{env_id!r}: host environments (gymnasium) are not supported by this version; {jax_ids}")
    suites = sorted({other.partition("/")[0] for other in known})
    if suite not in suites:
        hint = did_you_mean(env_id, known)
        hint = hint if hint.startswith("did you mean") else "see list_envs()"
        return UnknownNameError(f"there is no environment suite {suite!r} (known: {', '.join(suites)}); {hint}")
    own = [other for other in known if other.partition("/")[0] == suite]
    return UnknownNameError(f"there is no environment {env_id!r}; {did_you_mean(env_id, own)}")


def _build(env_id: str, entry: _Entry, num_envs: int, kwargs: dict[str, Any]) -> "EnvAdapter":
    from rlkit.envs.base import EnvAdapter
    from rlkit.envs.vectorized import vectorize
    from rlkit.envs.wrappers import TimeLimit

    signature = _signature(entry.factory)
    batched = signature is not None and "num_envs" in signature.parameters
    arguments = {"num_envs": num_envs, **kwargs} if batched else kwargs
    _check_arguments(env_id, entry.factory, arguments)
    made = entry.factory(**arguments)
    spec = (env_id, kwargs)
    if not isinstance(made, EnvAdapter):
        made = TimeLimit(made, entry.max_episode_steps) if entry.max_episode_steps is not None else made
        return vectorize(made, num_envs, spec=spec)
    if made.num_envs != num_envs:
        cure = "pass num_envs on" if batched else "give the factory a parameter num_envs, or return one environment"
        raise EnvContractError(f"the factory of {env_id!r} made {made.num_envs} environments instead of {num_envs}; {cure}")
    if entry.max_episode_steps is not None:
        raise EnvContractError(
            f"max_episode_steps of {env_id!r} needs a single JaxEnv; let the factory apply it before batching"
        )
    if made.spec != spec:
        if not dataclasses.is_dataclass(made):
            raise EnvContractError(f"{env_id!r} was made with spec {made.spec!r}; make it a dataclass, or set spec to {spec!r}")
        made = dataclasses.replace(made, spec=spec)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return made


def _signature(factory: Factory) -> inspect.Signature | None:
    try:
        return inspect.signature(factory)
    except (TypeError, ValueError):  # some builtins have none
        return None


def _check_arguments(env_id: str, factory: Factory, arguments: dict[str, Any]) -> None:
    signature = _signature(factory)
    if signature is None:
        return
    try:
        signature.bind(**arguments)
    except TypeError as error:
        names = ", ".join(name for name in signature.parameters if name != "num_envs")
        raise ConfigError(f"{env_id}: {error}; it takes {names or 'no arguments'}") from error


def _gymnax_factory(name: str) -> Factory:
    def factory(params: dict[str, Any] | None = None, **kwargs: Any) -> "JaxEnv":
        from rlkit.envs.gymnax import gymnax_env

        return gymnax_env(name, params=params, **kwargs)

    return factory


def _probe_factory(name: str) -> Factory:
    for module in ("probes", "space_probes"):
        factory = getattr(importlib.import_module(f"rlkit.envs.{module}"), name, None)
        if factory is not None:
            return factory
    raise UnknownNameError(f"there is no probe {name!r}; {did_you_mean(name, PROBE_IDS)}")


def _own_gymnax_ids() -> list[str]:
    """What the user registered with gymnax itself; looked up only if gymnax has been imported anyway."""
    return list(getattr(sys.modules.get("gymnax"), "registered_envs", ()))


def _entry_points() -> dict[str, list[importlib.metadata.EntryPoint]]:
    found: dict[str, list[importlib.metadata.EntryPoint]] = {}
    for plugin in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        suite, _, name = plugin.name.partition("/")
        if suite and name:
            found.setdefault(plugin.name, []).append(plugin)
        else:
            warnings.warn(f"{_package(plugin)} names an environment {plugin.name!r}, not suite/name: ignored", stacklevel=3)
    return found


def _load(plugin: importlib.metadata.EntryPoint) -> Factory:
    try:
        return plugin.load()
    except RlkitError:
        raise
    except Exception as error:
        raise ConfigError(
            f"environment {plugin.name!r} of {_package(plugin)} ({plugin.value}) does not load: "
            f"{type(error).__name__}: {error}; repair, upgrade or uninstall that package"
        ) from error


def _package(plugin: importlib.metadata.EntryPoint) -> str:
    return f"package {plugin.dist.name!r}" if plugin.dist is not None else "an unnamed package"
