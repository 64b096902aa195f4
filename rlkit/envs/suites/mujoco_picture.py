"""Pictures of a simulated system by MuJoCo's renderer."""

import functools
import importlib
from typing import Any

import numpy as np

from rlkit.errors import ConfigError
from rlkit.types import PyTree

HEIGHT, WIDTH = 240, 320


def mujoco_picture(model: Any, **state: PyTree) -> np.ndarray:
    """A picture [H, W, 3] uint8 of a `mujoco.MjModel` whose data has these fields, such as `qpos`.

    By the first camera of the model if it has one. Raises `ConfigError` without OpenGL.
    """
    mujoco: Any = importlib.import_module("mujoco")

    data = mujoco.MjData(model)
    for name, value in state.items():
        setattr(data, name, value)
    mujoco.mj_forward(model, data)
    renderer = _renderer(model)
    renderer.update_scene(data, camera=0 if model.ncam else -1)
    return renderer.render()


@functools.lru_cache(maxsize=1)  # to make one takes longer than a picture
def _renderer(model: Any) -> Any:
    mujoco: Any = importlib.import_module("mujoco")

    try:
        return mujoco.Renderer(model, height=HEIGHT, width=WIDTH)
    except Exception as error:  # of MuJoCo, or of the library that it draws with
        raise ConfigError(
            f"MuJoCo cannot draw without a display ({error}); set MUJOCO_GL=egl, or osmesa, before"
            " Python starts"
        ) from error
