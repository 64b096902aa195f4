"""The state of one Gymnasium environment with its wrappers, as bytes. Must not import JAX.

Each wrapper, and the environment inside, saves what is its own: by its methods `get_state` and
`set_state`, or because rlkit knows its class. To these come the random generators. If one of them
can do neither, the whole environment cannot be saved, unless `ResumeByReplay` is around it.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from rlkit.envs.host.known_states import check_field, known_fields, read_field, write_field
from rlkit.envs.host.mujoco_state import is_mujoco, read_mujoco, write_mujoco
from rlkit.envs.host.plain_bytes import Plain, pack, unpack
from rlkit.envs.host.resume_by_replay import ResumeByReplay
from rlkit.errors import EnvStateError

NO_HOOKS = "has no methods get_state() and set_state(state)"


def save_env(env: gymnasium.Env) -> np.ndarray:
    """The state of `env` in the middle of an episode, [B] uint8.

    Raises `EnvStateError`, naming the environment or wrapper that has no hooks or whose hooks fail.
    """
    layers = []
    for layer in _layers(env):
        try:
            layers.append([_name(layer), pack(_get(layer))])
        except EnvStateError as error:
            raise EnvStateError(f"{_name(layer)} {error}") from error
        except Exception as error:
            what = f"{_name(layer)}.get_state raised {type(error).__name__}: {error}"
            raise EnvStateError(what) from error
    return pack({"layers": layers, "generators": _generators(env)})


def load_env(env: gymnasium.Env, data: np.ndarray) -> None:
    """Puts `env`, which was reset before, where it was saved.

    Only fields that such an environment has are set, to values of their kind. Raises
    `EnvStateError` if the state is not one of this environment; it may then be partly set.
    """
    state, layers = unpack(data), list(_layers(env))
    is_known = isinstance(state, dict) and state.keys() == {"layers", "generators"}
    saved = state["layers"] if is_known else None
    names = [_name(layer) for layer in layers]
    if not isinstance(saved, list) or [_name_in(entry) for entry in saved] != names:
        raise EnvStateError(f"the saved state is not that of {' around '.join(names)}")
    for layer, (name, own) in zip(layers, saved, strict=True):
        try:
            _set(layer, unpack(own))
        except EnvStateError as error:
            raise EnvStateError(f"the saved state of {name} does not fit: {error}") from error
        except Exception as error:
            what = f"{name}.set_state raised {type(error).__name__}: {error}"
            raise EnvStateError(what) from error
    _set_generators(env, state["generators"])


def _layers(env: gymnasium.Env) -> Iterator[gymnasium.Env]:
    """The wrappers from the outside in, then the environment; what is replayed is one layer."""
    while isinstance(env, gymnasium.Wrapper) and not isinstance(env, ResumeByReplay):
        yield env
        env = env.env
    yield env


def _name(layer: gymnasium.Env) -> str:
    return type(layer).__name__


def _name_in(entry: Plain) -> str | None:
    return entry[0] if isinstance(entry, list) and len(entry) == 2 else None


def _has_hooks(layer: gymnasium.Env) -> bool:
    """Whether the class defines both methods, with one argument to set.

    `MujocoEnv.set_state(qpos, qvel)` is something else, and what a wrapper might forward is not its
    own.
    """
    get, set_ = (getattr(type(layer), name, None) for name in ("get_state", "set_state"))
    if not (callable(get) and callable(set_)):
        return False
    try:
        inspect.signature(get).bind(layer)
        inspect.signature(set_).bind(layer, None)
    except (TypeError, ValueError):
        return False
    return True


def _get(layer: gymnasium.Env) -> Plain:
    if _has_hooks(layer):
        return layer.get_state()  # pyright: ignore[reportAttributeAccessIssue]
    if is_mujoco(layer):
        return read_mujoco(layer)
    fields = known_fields(layer)
    if fields is None:
        raise EnvStateError(NO_HOOKS)
    return {name: read_field(layer, name) for name in fields}


def _set(layer: gymnasium.Env, state: Plain) -> None:
    if _has_hooks(layer):
        layer.set_state(state)  # pyright: ignore[reportAttributeAccessIssue]
        return
    if is_mujoco(layer):
        write_mujoco(layer, state)
        return
    fields = known_fields(layer)
    if fields is None:
        raise EnvStateError(f"it {NO_HOOKS}")
    if not isinstance(state, dict) or state.keys() != fields.keys():
        raise EnvStateError(f"it needs the fields {', '.join(fields) or 'none'}")
    for name, check in fields.items():
        if not check_field(layer, name, check, state[name]):
            raise EnvStateError(f"{name} cannot be {state[name]!r:.80}")
    for name, value in state.items():
        write_field(layer, name, value)


def _generators(env: gymnasium.Env) -> dict[str, Any]:
    """The states of the random generators: the environment's own, and those of its action space.

    `None` for one that was never used.
    """
    return {
        name: None if generator is None else generator.bit_generator.state
        for name, generator in _named_generators(env).items()
    }


def _set_generators(env: gymnasium.Env, saved: Plain) -> None:
    problem = "the saved states of random generators do not fit"
    if not isinstance(saved, dict) or saved.keys() != _named_generators(env).keys():
        raise EnvStateError(problem)
    for name, owner in _owners(env).items():
        if saved[name] is None:
            continue
        try:
            owner.np_random.bit_generator.state = saved[name]
        except Exception as error:  # NumPy checks the parts, and raises many kinds of errors
            raise EnvStateError(f"{problem} ({name}: {error})") from error


def _named_generators(env: gymnasium.Env) -> dict[str, np.random.Generator | None]:
    return {name: getattr(owner, "_np_random", None) for name, owner in _owners(env).items()}


def _owners(env: gymnasium.Env) -> dict[str, Any]:
    """What may have a random generator, which Gymnasium makes when it is first used."""
    inner = env.unwrapped
    parts = enumerate(_spaces(inner.action_space))
    return {"np_random": inner} | {f"action_space {index}": space for index, space in parts}


def _spaces(space: gymnasium.Space) -> Iterator[gymnasium.Space]:
    """A space and its parts."""
    yield space
    parts = getattr(space, "spaces", ())
    for part in parts.values() if isinstance(parts, dict) else parts:
        yield from _spaces(part)
