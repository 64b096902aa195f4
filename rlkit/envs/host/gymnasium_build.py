"""Finds and builds the environment that a `GymnasiumAdapter` names; says what went wrong."""

import traceback
from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np

from rlkit.envs.host.gymnasium_worker import ATARI, Recipe
from rlkit.envs.ids import INSTALL
from rlkit.errors import (
    ConfigError,
    EnvContractError,
    EnvFailedError,
    RlkitError,
    UnknownNameError,
    did_you_mean,
    require,
    shown,
)
from rlkit.signatures import require_takes_named

KINDS = {  # by a word in an error, see `INSTALL`
    "mujoco": "mujoco",
    "box2d": "box2d",
    "ale": "atari",
    "cv2": "atari",
    "opencv": "atari",
    "pygame": "render",
}


def resolve(env: object) -> Any:
    """What a recipe stores for `env`: the registered spec for an id, anything else unchanged."""
    if isinstance(env, str) and not env.startswith(ATARI):
        require(
            ":" not in env,
            f"{env!r} names a module to import",
            "import it yourself and pass the id, or pass the class",
        )
        try:
            return gymnasium.spec(env)
        except gymnasium.error.Error as error:
            known = [f"gymnasium/{name}" for name in gymnasium.registry]
            text = str(error).strip().rstrip(".")
            raise UnknownNameError(
                f"there is no environment {env!r} ({text}); {did_you_mean(env, known)}"
            ) from None
    require(
        isinstance(env, (str, gymnasium.Env)) or callable(env),
        f"env must be an environment or create one, got {env!r}",
        "pass an id, a gymnasium.Env class, a function that returns an environment, or an"
        " environment",
    )
    return env


def build(name: str, recipe: Recipe, settings: Iterable[str]) -> gymnasium.Env:
    """The environment of `recipe`.

    Raises `ConfigError` or `EnvFailedError`, with the cure, if it cannot be built. `settings` are
    the adapter's own, one of which a misspelt argument may have meant.
    """
    _check_arguments(name, recipe)
    try:
        return recipe.build()
    except RlkitError:
        raise
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise ConfigError(
            f"{name} needs a missing package ({error}); {_install(recipe, error)}"
        ) from error
    except gymnasium.error.Error as error:
        raise ConfigError(f"{name} cannot be built: {error}; check its id and arguments") from error
    except TypeError as error:
        if "argument" not in str(error):
            raise build_failure(name, error) from error
        near = [
            hint
            for given in recipe.kwargs
            if (hint := did_you_mean(given, [*settings])).startswith("did you mean")
        ]
        fix = near[0] if near else "leave them out, or check their spelling and types"
        raise ConfigError(f"{name} does not accept these arguments: {error}; {fix}") from error
    except (Exception, SystemExit) as error:
        raise build_failure(name, error) from error


def check_spec(env: gymnasium.Env) -> None:
    """Raises `EnvContractError` if an attribute of the user's own hides Gymnasium's `spec`."""
    inner = env.unwrapped  # may be the environment of another library
    spec, kind = getattr(inner, "spec", None), type(inner).__name__
    require(
        spec is None or hasattr(spec, "max_episode_steps"),
        f"{kind}.spec is {shown(spec)}, but that is where Gymnasium keeps its EnvSpec",
        "give the attribute another name",
        EnvContractError,
    )


def time_limit(env: gymnasium.Env) -> int | None:
    """Steps after which `env` truncates: the smallest limit of its wrappers, spec and itself.

    0 and less mean that there is none, as -1 does in Gymnasium.
    """
    limits: list[int | None] = [getattr(env.spec, "max_episode_steps", None)]
    if env.has_wrapper_attr("max_episode_steps"):
        limits.append(env.get_wrapper_attr("max_episode_steps"))
    layer = env
    while isinstance(layer, gymnasium.Wrapper):
        limits.append(
            layer._max_episode_steps if isinstance(layer, gymnasium.wrappers.TimeLimit) else None
        )
        layer = layer.env
    known = (int(limit) for limit in limits if isinstance(limit, (int, np.integer)))
    return min((limit for limit in known if limit > 0), default=None)


def build_failure(name: str, error: BaseException) -> EnvFailedError:
    """What to raise if making the environment `name` raised `error`."""
    text = "".join(traceback.format_exception(error))
    return EnvFailedError(
        f"{name} cannot be built: it raised {type(error).__name__}: {error}; fix its"
        f" constructor\n\n{text}"
    )


def _install(recipe: Recipe, error: Exception) -> str:
    where = f"{getattr(recipe.env, 'entry_point', recipe.env)} {error}".lower()
    kind = next((kind for word, kind in KINDS.items() if word in where), None)
    return INSTALL[kind] if kind else "install it"


def _check_arguments(name: str, recipe: Recipe) -> None:
    if isinstance(recipe.env, str) or not callable(recipe.env):
        return
    kwargs = (
        recipe.kwargs
        if recipe.render_mode is None
        else {**recipe.kwargs, "render_mode": recipe.render_mode}
    )
    require_takes_named(recipe.env, kwargs, name)
