"""Environments of the user's own, written `module:Class`. Importing one runs code, so the user
types the id each time.
"""

import importlib
import inspect
import os
import sys
import traceback
from typing import Any

from rlkit.envs.registry import check_id, is_class_id, register_env
from rlkit.errors import ConfigError, did_you_mean, require


def check_typed(env_id: str) -> None:
    """Raises what is wrong with an id that the user typed, as far as that is known without
    importing anything slow.
    """
    if ":" in env_id and "/" not in env_id:
        cure = "write module:Class as Python imports them, such as my_package.my_module:MyEnv"
        require(is_class_id(env_id), f"{env_id!r} names no class of an environment", cure)
    else:
        check_id(env_id)


def check_run(env_id: Any, *, typed: str | None, run_dir: str) -> None:
    """Raises unless the user `typed` the `env_id` of a run where that is needed, and only
    that one.
    """
    if typed is not None:
        require(
            typed == env_id,
            f"{run_dir} was trained on {env_id}, not on {typed}",
            "leave out --env, or type that id",
        )
    elif is_class_id(env_id):
        cure = f"which is imported only if you say so: add `{flag(env_id).strip()}`"
        raise ConfigError(f"{run_dir} was trained on a class of your own, {cure}")


def register(env_id: str | None) -> None:
    """Imports what an id `module:Class` that the user typed stands for, and registers it so; leaves
    other ids alone.

    The current directory comes first on the path, as with `python -m`. Raises `ConfigError`.
    """
    if not is_class_id(env_id):
        return
    assert env_id is not None
    module, _, name = env_id.partition(":")
    if sys.path[0] not in ("", os.getcwd()):
        sys.path.insert(0, os.getcwd())
    register_env(env_id, _find(_import(module), name), overwrite=True)


def flag(env_id: Any) -> str:
    """What `resume` and `evaluate` need besides the directory of a run that was trained on
    `env_id`, a space before it.
    """
    return f" --env {env_id}" if is_class_id(env_id) else ""


def id_in(settings: dict[str, Any]) -> Any:
    """The id of the environment in the settings of a run, which may hold anything."""
    env = settings.get("env")
    if isinstance(env, dict):
        return env.get("id")
    return (
        env[0] if isinstance(env, list) and env else None
    )  # of a run with parts built in Python: [id, arguments]


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"there is no module {error.name!r} in {sys.path[0] or os.getcwd()} or among the"
                " installed packages; start rlkit in the directory that holds it, or install it"
            ) from None
        raise ConfigError(
            f"importing {module} failed: {error}{_place(error)}; install what it needs"
        ) from error
    except SystemExit as error:
        cure = 'put what is to run only as a script under `if __name__ == "__main__":`'
        raise ConfigError(
            f"importing {module} ended with exit code {error.code}{_place(error)}; {cure}"
        ) from None
    except Exception as error:
        raise ConfigError(
            f"importing {module} raised {type(error).__name__}: {error}{_place(error)}; correct it"
        ) from error


def _place(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return "" if last.filename.startswith("<") else f" ({last.filename}, line {last.lineno})"


def _find(module: Any, name: str) -> Any:
    makers = [
        other
        for other, value in vars(module).items()
        if not other.startswith("_") and _is_maker(value)
    ]
    require(hasattr(module, name), f"{module.__name__} has no {name!r}", did_you_mean(name, makers))
    found = getattr(module, name)
    cure = "name the class of a gymnasium.Env or JaxEnv, or a function that makes one"
    require(_is_maker(found), f"{module.__name__}:{name} is {type(found).__name__} {found!r}", cure)
    return found


def _is_maker(value: Any) -> bool:
    return inspect.isclass(value) or inspect.isfunction(value)
