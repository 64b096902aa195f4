"""The user's own environments, given as `module:Class`.

Importing one runs code, so the user has to type the id each time.
"""

import importlib
import inspect
import os
import re
import sys
import traceback
from typing import Any

from rlkit.envs.registry import check_id, is_class_id, list_envs, register_env
from rlkit.errors import ConfigError, did_you_mean, require
from rlkit.validation import PlainData

_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


def check_typed(env_id: str) -> None:
    """Raises errors about an id that can be detected without slow imports."""
    meant = _class_in(env_id)
    if meant is not None:
        fix = f"use module:Class as Python imports them: {meant}"
        raise ConfigError(f"{env_id!r} is not a valid environment class; {fix}")
    if ":" not in env_id or "/" in env_id:
        check_id(env_id)
    elif not is_class_id(env_id):
        meant = env_id.replace(":", "/", 1)
        fix = "use module:Class as Python imports them, for example my_package.my_module:MyEnv"
        fix = f"use {meant}" if meant in list_envs() else fix
        raise ConfigError(f"{env_id!r} is not a valid environment class; {fix}")


def _class_in(env_id: str) -> str | None:
    """The `module:Class` meant by module.Class, path/module.py:Class or a file alone, whose
    class is not known; None: it is none of them.
    """
    path, found, name = env_id.partition(".py:")
    is_file = env_id.endswith(".py")
    if is_file:
        path, found, name = env_id.removesuffix(".py"), ":", "MyEnv"
    if found and (is_file or "/" in path or os.path.isfile(f"{path}.py")):
        module = path.removeprefix("./").replace("/", ".")
    elif _DOTTED.fullmatch(env_id):
        module, _, name = env_id.rpartition(".")
    else:
        return None
    meant = f"{module}:{name}"
    return meant if is_class_id(meant) else None


def check_run(env_id: object, *, typed: str | None, run_dir: str) -> None:
    """Raises unless the user typed the run's `env_id`, or did not need to."""
    if typed is not None:
        require(
            env_id is not None,
            f"{run_dir} was trained on an environment that was built in Python, which no --env"
            " can name",
            f"load its policy by rlkit.load_policy({run_dir!r}, env=...), or continue it from its"
            ' own script, with TrainerConfig(restore_checkpoint="auto")',
        )
        require(
            typed == env_id,
            f"{run_dir} was trained on {env_id}, got --env {typed}",
            f"use that id: --env {env_id}" if is_class_id(env_id) else "leave out --env",
        )
    elif is_class_id(env_id):
        fix = f"which is only imported if you ask for it: add `{flag(env_id).strip()}`"
        raise ConfigError(f"{run_dir} was trained on your own class, {fix}")


def register(env_id: str | None) -> None:
    """Imports and registers an id of the form `module:Class`; ignores other ids.

    The current directory comes first on the path, as with `python -m`. Raises `ConfigError`.
    """
    if not is_class_id(env_id):
        return
    assert env_id is not None
    module, _, name = env_id.partition(":")
    if sys.path[0] not in ("", os.getcwd()):
        sys.path.insert(0, os.getcwd())
    register_env(env_id, _find(_import(module), name), overwrite=True)


def flag(env_id: object) -> str:
    """The flag (after a space) that `resume` and `evaluate` need for a run trained on `env_id`."""
    return f" --env {env_id}" if is_class_id(env_id) else ""


def id_in(settings: PlainData) -> Any:
    """The environment id in the unchecked settings of a run."""
    env = settings.get("env")
    if isinstance(env, dict):
        return env.get("id")
    # Runs with parts built in Python store [id, arguments]
    return env[0] if isinstance(env, list) and env else None


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"there is no module {error.name!r} in {sys.path[0] or os.getcwd()} or the"
                " installed packages; start rlkit in the directory that contains it, or install"
                " it"
            ) from None
        raise ConfigError(
            f"importing {module} failed: {error}{_place(error)}; install what is missing"
        ) from error
    except SystemExit as error:
        fix = 'move code that should only run as a script under `if __name__ == "__main__":`'
        raise ConfigError(
            f"importing {module} ended with exit code {error.code}{_place(error)}; {fix}"
        ) from None
    except Exception as error:
        raise ConfigError(
            f"importing {module} raised {type(error).__name__}: {error}{_place(error)}; fix it"
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
    value = getattr(module, name)
    fix = "name a gymnasium.Env or JaxEnv class, or a function that returns an environment"
    require(
        _is_maker(value), f"{module.__name__}:{name} is the {type(value).__name__} {value!r}", fix
    )
    return value


def _is_maker(value: object) -> bool:
    return inspect.isclass(value) or inspect.isfunction(value)
