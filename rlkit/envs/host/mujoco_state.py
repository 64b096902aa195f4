"""The state of Gymnasium's MuJoCo environments. Must not import JAX.

MuJoCo names what its next step depends on: the state for "integration". An environment may also
read, before it steps, what the last step computed, such as the position of a body. Those arrays
are kept as well: they are not those of the new state, but of the one before.
"""

import importlib
from typing import Any

import gymnasium
import numpy as np

from rlkit.errors import EnvStateError

_COMPUTED = (  # floating-point results of a step, whose shapes the model alone decides
    "xpos",
    "xquat",
    "xmat",
    "xipos",
    "ximat",
    "geom_xpos",
    "geom_xmat",
    "site_xpos",
    "site_xmat",
    "subtree_com",
    "cinert",
    "cvel",
    "cfrc_ext",
    "cfrc_int",
    "qacc",
    "qfrc_actuator",
    "qfrc_constraint",
    "actuator_force",
    "sensordata",
)
_OWN = {  # of some classes
    "PusherEnv": ("goal_pos", "cylinder_pos", "init_qpos"),
    "ReacherEnv": ("goal",),
}


def is_mujoco(env: gymnasium.Env) -> bool:
    """Whether it is a MuJoCo environment of Gymnasium; subclasses may have further state."""
    return type(env).__module__.startswith("gymnasium.envs.mujoco.") and hasattr(env, "data")


def read_mujoco(env: Any) -> dict[str, np.ndarray]:
    """The state of a MuJoCo environment as arrays. Raises `EnvStateError` for models with plugins.

    Those have state of their own kinds.
    """
    mujoco, model = importlib.import_module("mujoco"), env.model
    if model.nplugin or getattr(model, "nhistory", 0):
        raise EnvStateError("its MuJoCo model has plugins or delays, whose state cannot be saved")
    what = mujoco.mjtState.mjSTATE_INTEGRATION
    simulation = np.empty(mujoco.mj_stateSize(model, what))
    mujoco.mj_getState(model, env.data, simulation, what)
    own = {name: np.array(getattr(env, name)) for name in _OWN.get(type(env).__name__, ())}
    computed = {name: np.array(getattr(env.data, name)) for name in _COMPUTED}
    return {"simulation": simulation, **computed, **own}


def write_mujoco(env: Any, state: Any) -> None:
    """Puts a MuJoCo environment where it was saved; raises `EnvStateError` if it does not fit."""
    mujoco, now = importlib.import_module("mujoco"), read_mujoco(env)
    if not isinstance(state, dict) or state.keys() != now.keys():
        raise EnvStateError("it is not the state of this MuJoCo environment")
    for name, value in state.items():
        same = isinstance(value, np.ndarray) and value.shape == now[name].shape
        if not same or value.dtype != now[name].dtype or not np.isfinite(value).all():
            raise EnvStateError(f"{name} is no finite array of shape {now[name].shape}")
    what = mujoco.mjtState.mjSTATE_INTEGRATION
    mujoco.mj_setState(env.model, env.data, state["simulation"], what)
    for name in _COMPUTED:
        getattr(env.data, name)[...] = state[name]
    for name in _OWN.get(type(env).__name__, ()):
        setattr(env, name, state[name])
