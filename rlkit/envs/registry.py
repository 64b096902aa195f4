"""Environments by name: `make_env("suite/name", num_envs)`, `register_env` and entry points.

The suite is the text before the first "/". Ids are looked up in `register_env`'s table, then in the
suites that come with rlkit, then in the entry points of installed packages:

    [project.entry-points."rlkit.envs"]
    "mine/Maze-v0" = "my_package.maze:Maze"
    "mine/*" = "my_package.suite:ENVS"

`mine/*` stands for the other ids of its suite: it names a dict of factories, by their names without
the suite.

Listing ids imports nothing: neither JAX nor a suite nor a third-party package. An id never imports
a module that it names, because ids are read from files.
"""

import contextlib
import dataclasses
import functools
import inspect
import re
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rlkit import plugins
from rlkit.envs.ids import MIXTURE
from rlkit.envs.suites import lookup
from rlkit.envs.suites.lookup import BUILT_IN
from rlkit.errors import (
    ConfigError,
    EnvContractError,
    RlkitError,
    UnknownNameError,
    did_you_mean,
    require,
    shown,
)
from rlkit.protocols import follows
from rlkit.signatures import require_takes_named, signature_of

if TYPE_CHECKING:
    import gymnasium

    from rlkit.envs.base import EnvAdapter, EnvSpec, JaxEnv

ENTRY_POINT_GROUP = "rlkit.envs"
WHOLE_SUITE = "*"
# Ids module:Class that the command line registered.
CLASS_ID = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")

Factory = Callable[..., "JaxEnv | gymnasium.Env | EnvAdapter"]


@dataclasses.dataclass(frozen=True)
class _Entry:
    factory: Factory
    max_episode_steps: int | None


_registered: dict[str, _Entry] = {}


def make_env(
    env: "str | Factory | JaxEnv | gymnasium.Env", num_envs: int, **kwargs: Any
) -> "EnvAdapter":
    """`num_envs` copies of `env` that step together and reset themselves.

    `env` is an id such as `gymnax/CartPole-v1` or `gymnasium/Ant-v5`, a class or function as in
    `register_env`, or an environment object (a `gymnasium.Env` object only with `num_envs=1`).
    `kwargs` go to the environment's constructor. For a `gymnasium.Env`, arguments that the
    constructor does not name but `GymnasiumAdapter` does (vectorization, step_timeout,
    max_episode_steps, ...) go to the adapter. Two are for all of them: `max_episode_steps`
    truncates episodes (a `JaxEnv` whose constructor does not take it is put into `TimeLimit`), and
    with `non_finite="reset"` NaN or infinity ends the episode instead of the run, see `JaxEnv`.

    The result's `spec` is `(id, kwargs)`, or `None` without an id; a run's config.yaml can then not
    rebuild it. Raises `UnknownNameError` for an unknown id, `ConfigError` for arguments that the
    environment does not take or a package that is missing or fails to load, `EnvContractError` for
    an environment that breaks the contract, and `EnvFailedError` if making it raises.
    """
    if isinstance(env, str):
        _check_id(env)
        return _build(env, _find(env), num_envs, kwargs, spec=(env, kwargs))
    if hasattr(env, "step") and not inspect.isclass(env):
        return _wrap(env, num_envs, kwargs)
    factory: Any = env
    require(
        callable(factory),
        f"env must be an id, a class, a function or an environment, got {env!r}",
        "pass a string such as 'gymnax/CartPole-v1', or a class",
    )
    return _build(
        getattr(factory, "__qualname__", repr(factory)),
        _Entry(factory, None),
        num_envs,
        kwargs,
        spec=None,
    )


def register_env(
    env_id: str, factory: Factory, *, max_episode_steps: int | None = None, overwrite: bool = False
) -> None:
    """Registers `factory` under `env_id` for `make_env`.

    `factory(**kwargs)` returns a single environment, a `JaxEnv` or a `gymnasium.Env`; it may be the
    class itself. A function is called once to see which kind it returns. A factory with a parameter
    `num_envs` is called as `factory(num_envs=..., **kwargs)` and returns an `EnvAdapter`.
    `max_episode_steps` truncates the episodes of single environments. Registering an id twice is an
    error unless `overwrite` is set.
    """
    _check_new(env_id, factory, overwrite)
    _registered[env_id] = _Entry(factory, max_episode_steps)


def register_suite(
    suite: str, factories: Mapping[str, Factory], *, overwrite: bool = False
) -> None:
    """Registers many environments, each as `register_env` does: `suite/name` for every name.

    All of them or, if one raises `ConfigError`, none.
    """
    require(
        isinstance(factories, Mapping) and bool(factories) and WHOLE_SUITE not in factories,
        f"the factories of {suite!r} are {shown(factories)}",
        f"pass a dict such as {{'Maze-v0': Maze}}, in which no name is {WHOLE_SUITE!r}",
    )
    for name, factory in factories.items():
        _check_new(f"{suite}/{name}", factory, overwrite)
    _registered.update(
        {f"{suite}/{name}": _Entry(factory, None) for name, factory in factories.items()}
    )


def _check_new(env_id: str, factory: object, overwrite: bool) -> None:
    """Raises `ConfigError` for what cannot be registered."""
    _check_id(env_id)
    require(
        callable(factory),
        f"the factory of {env_id!r} must be callable, got {factory!r}",
        "pass the environment's class, or a function that returns one",
    )
    taken = env_id in _registered or env_id in BUILT_IN
    require(
        overwrite or not taken,
        f"{env_id!r} is already registered",
        "choose another id, or pass overwrite=True",
    )


def list_envs() -> list[str]:
    """The sorted ids that `make_env` knows without loading any package or suite."""
    return sorted(BUILT_IN | _registered.keys() | _entry_points().keys())


def check_id(env_id: str) -> None:
    """Raises what `make_env` would raise for an id, as far as known without importing JAX."""
    _check_id(env_id)
    imports_jax = lookup.is_probe(env_id) or _claims(env_id) or lookup.is_adapted(env_id)
    if not imports_jax or env_id in _registered:
        _find(env_id)


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Raises `ConfigError` for arguments of an environment that `make_env` has itself."""
    of_a_run = "leave it out (--num-envs of a run says how many there are)"
    for name, fix in (("env", "leave it out"), ("num_envs", of_a_run)):
        problem = f"{name!r} is no argument of an environment, but of make_env"
        require(name not in arguments, problem, fix)


def is_class_id(env_id: object) -> bool:
    """Whether `env_id` has the form `module:Class`, which only the command line imports."""
    return isinstance(env_id, str) and CLASS_ID.fullmatch(env_id) is not None


def _check_id(env_id: str) -> None:
    require(
        isinstance(env_id, str),
        f"an environment id must be a string, got {env_id!r}",
        "pass a string such as 'gymnax/CartPole-v1'",
    )
    require(
        bool(env_id.strip()),
        "the environment id is empty",
        "pass an id such as 'gymnax/CartPole-v1'",
    )
    if is_class_id(env_id):
        return
    suite, slash, name = env_id.partition("/")
    if not slash:
        raise UnknownNameError(
            f"environment id {env_id!r} has no suite; {lookup.suggest(env_id, list_envs())}"
        )
    require(
        bool(suite and name),
        f"environment id {env_id!r} is incomplete",
        "use suite/name, as in gymnax/CartPole-v1",
    )


def _find(env_id: str) -> _Entry:
    if env_id in _registered:
        return _registered[env_id]
    if is_class_id(env_id):
        raise UnknownNameError(
            f"{env_id!r} names a class, but ids never import modules; import it, and call"
            f" rlkit.register_env({env_id!r}, {env_id.partition(':')[2]}) first"
        )
    if env_id == MIXTURE:
        return _Entry(_mixture, None)
    factory = lookup.find(env_id)
    if factory is not None:
        return _Entry(factory, None)
    claims = _claims(env_id)
    if not claims:
        raise _unknown(env_id)
    found = plugins.load_only(claims, "environment")
    is_suite = claims[0].name.partition("/")[2] == WHOLE_SUITE
    return _Entry(_one_of(found, claims[0], env_id) if is_suite else found, None)


def _one_of(factories: object, plugin: plugins.EntryPoint, env_id: str) -> Factory:
    """The factory of one environment of a package's suite."""
    suite, _, name = env_id.partition("/")
    if not isinstance(factories, Mapping):
        raise ConfigError(
            f"{plugin.name!r} of {plugins.package(plugin)} ({plugin.value}) is of type"
            f" {type(factories).__name__}; let it name a dict of factories by name"
        )
    if name not in factories:
        hint = did_you_mean(env_id, [f"{suite}/{other}" for other in factories])
        raise UnknownNameError(f"there is no environment {env_id!r}; {hint}")
    return factories[name]


def _claims(env_id: str) -> list[plugins.EntryPoint]:
    """The entry points for an id: its own, or else those for its suite."""
    known = _entry_points()
    return known.get(env_id) or known.get(f"{env_id.partition('/')[0]}/{WHOLE_SUITE}") or []


def _mixture(num_envs: int, **arguments: Any) -> "EnvAdapter":
    from rlkit.envs.mixture import make_mixture

    return make_mixture(make_env, num_envs, **arguments)


def _unknown(env_id: str) -> UnknownNameError:
    known = list_envs()
    hint = lookup.suggest(env_id, known)
    suite, names = (
        env_id.partition("/")[0],
        sorted({other.partition("/")[0] for other in known if "/" in other}),
    )
    if suite not in names:
        return UnknownNameError(
            f"there is no environment suite {suite!r} (known: {', '.join(names)}); {hint}"
        )
    return UnknownNameError(f"there is no environment {env_id!r}; {hint}")


def _build(
    name: str,
    entry: _Entry,
    num_envs: int,
    kwargs: dict[str, Any],
    *,
    spec: "EnvSpec | None",
) -> "EnvAdapter":
    """`name` is used in messages. `spec` is `None` without an id."""
    import gymnasium

    from rlkit.envs.base import EnvAdapter
    from rlkit.envs.jittable.vectorized import vectorize
    from rlkit.envs.jittable.wrappers import TimeLimit

    if inspect.isclass(entry.factory) and issubclass(entry.factory, gymnasium.Env):
        return _build_on_host(name, entry, num_envs, kwargs, spec)
    signature = signature_of(entry.factory)
    batched = signature is not None and "num_envs" in signature.parameters
    settings: dict[str, Any] = {}
    if batched:
        arguments = {"num_envs": num_envs, **kwargs}
    else:
        settings, arguments = _split(entry.factory, kwargs)
    require_takes_named(entry.factory, arguments, name, own="num_envs")
    made = _made(name, entry.factory, arguments)
    if isinstance(made, gymnasium.Env):
        with contextlib.suppress(Exception):  # the adapter tells it, which makes and closes another
            made.close()
        return _build_on_host(name, entry, num_envs, kwargs, spec)
    limit, non_finite = entry.max_episode_steps, None
    if not follows(made, EnvAdapter):
        non_finite = settings.pop("non_finite", None)
        if not _takes(entry.factory, "max_episode_steps"):
            limit = settings.pop("max_episode_steps", limit)
    if settings:  # a JaxEnv factory: the other adapter settings are its own arguments
        require_takes_named(entry.factory, {**arguments, **settings}, name, own="num_envs")
        made = _made(name, entry.factory, {**arguments, **settings})
    if not follows(made, EnvAdapter):
        made = made if limit is None else TimeLimit(made, limit)
        return vectorize(made, num_envs, spec=spec, non_finite=non_finite)
    if made.num_envs != num_envs:
        fix = (
            "pass num_envs to the adapter"
            if batched
            else "give the factory a parameter num_envs, or return a single environment"
        )
        raise EnvContractError(
            f"the factory of {name!r} made {made.num_envs} environments instead of {num_envs};"
            f" {fix}"
        )
    if entry.max_episode_steps is not None:
        raise EnvContractError(
            f"max_episode_steps of {name!r} needs a single environment; let the factory apply it to"
            " each"
        )
    if spec is not None and made.spec != spec:
        if dataclasses.is_dataclass(made):
            return dataclasses.replace(made, spec=spec)  # pyright: ignore[reportArgumentType, reportCallIssue]
        if made.is_jittable:
            raise EnvContractError(
                f"{name!r} was made with spec {made.spec!r}; turn it into a dataclass, or set spec"
                f" to {spec!r}"
            )
        made.spec = spec  # pyright: ignore[reportAttributeAccessIssue]  # read-only in the protocol, not in host adapters
    return made


def _made(name: str, factory: Factory, arguments: dict[str, Any]) -> Any:
    """What the factory returns.

    Raises `EnvContractError` if that is None, `ConfigError` for a batch of Gymnasium's or a missing
    package, and `EnvFailedError` with its traceback if it raises anything else.
    """
    from rlkit.envs.host.gymnasium_build import build_failure

    try:
        made = factory(**arguments)
    except RlkitError:
        raise
    except ImportError as error:
        fix = "install what is missing"
        raise ConfigError(f"{name} cannot be built without a package ({error}); {fix}") from error
    except (Exception, SystemExit) as error:
        raise build_failure(name, error) from error
    fix = "return the environment that it makes"
    require(made is not None, f"the factory of {name!r} returned None", fix, EnvContractError)
    _require_no_vector(made)
    return made


def _build_on_host(
    name: str,
    entry: _Entry,
    num_envs: int,
    kwargs: dict[str, Any],
    spec: "EnvSpec | None",
) -> "EnvAdapter":
    """Copies of the `gymnasium.Env` that `entry.factory` creates."""
    from rlkit.envs.host.gymnasium import GymnasiumAdapter

    settings, arguments = _split(entry.factory, kwargs)
    require_takes_named(entry.factory, arguments, name, own="num_envs")
    if entry.max_episode_steps is not None:
        settings = {"max_episode_steps": entry.max_episode_steps, **settings}
    factory: Any = entry.factory
    namesakes = arguments.keys() & inspect.signature(GymnasiumAdapter).parameters
    if namesakes:
        factory = functools.partial(
            factory, **{namesake: arguments.pop(namesake) for namesake in namesakes}
        )
        factory.__name__ = name
    return GymnasiumAdapter(factory, num_envs, spec=spec, **settings, **arguments)


def _wrap(env: Any, num_envs: int, kwargs: dict[str, Any]) -> "EnvAdapter":
    """An adapter of an existing environment object."""
    import gymnasium

    from rlkit.envs.base import EnvAdapter
    from rlkit.envs.jittable.vectorized import vectorize
    from rlkit.envs.jittable.wrappers import TimeLimit

    kind = type(env).__name__
    require(
        not follows(env, EnvAdapter),
        f"{kind} is already a batch of environments",
        "use it as it is",
    )
    _require_no_vector(env)
    if isinstance(env, gymnasium.Env):
        from rlkit.envs.host.gymnasium import GymnasiumAdapter

        return GymnasiumAdapter(env, num_envs, **kwargs)
    settings = dict(kwargs)
    non_finite, limit = settings.pop("non_finite", None), settings.pop("max_episode_steps", None)
    require(
        not settings,
        f"{kind} is already constructed and takes no arguments, got {', '.join(settings)}",
        "pass its class with these arguments",
    )
    single = env if limit is None else TimeLimit(env, limit)
    return vectorize(single, num_envs, non_finite=non_finite)


def _require_no_vector(env: object) -> None:
    """Raises `ConfigError` for a batch of Gymnasium's."""
    import gymnasium

    require(
        not isinstance(env, gymnasium.vector.VectorEnv),
        f"{type(env).__name__} is one of Gymnasium's own batches",
        "pass the class or id of a single environment; rlkit batches it",
    )


def _split(factory: Factory, kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits into (adapter settings, factory arguments); names that both take go to the factory."""
    if not kwargs:
        return {}, {}
    from rlkit.envs.host.gymnasium import GymnasiumAdapter

    signature = signature_of(factory)
    own = set(signature.parameters) if signature is not None else set()
    taken = (
        inspect.signature(GymnasiumAdapter).parameters.keys()
        - {"env", "num_envs", "spec", "kwargs"}
        - own
    )
    settings = {name: value for name, value in kwargs.items() if name in taken}
    return settings, {name: value for name, value in kwargs.items() if name not in taken}


def _takes(factory: Factory, argument: str) -> bool:
    """Whether `factory` may be called with a keyword argument of that name."""
    signature = signature_of(factory)
    if signature is None:
        return True
    parameters = signature.parameters
    takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    return takes_all or argument in parameters


def _entry_points() -> dict[str, list[plugins.EntryPoint]]:
    factories = plugins.entry_points(ENTRY_POINT_GROUP)
    for name in [name for name in factories if not all(name.partition("/")[::2])]:
        origin = plugins.package(factories.pop(name)[0])
        warnings.warn(
            f"{origin} names an environment {name!r}, which is not suite/name: ignored",
            stacklevel=3,
        )
    return factories
