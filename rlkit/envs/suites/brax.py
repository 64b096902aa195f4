"""Brax's environments."""

import importlib
import warnings
from collections.abc import Mapping
from typing import Any

from rlkit.envs.suites.simulated import SimulatedEnv, simulated_env
from rlkit.errors import ConfigError, did_you_mean, require, require_positive_integer

ENVS: Any = importlib.import_module("brax.envs")
BACKENDS = ("generalized", "spring", "positional", "mjx")
HELD_TWICE = (
    "name the number that this backend reads: gravity, link.inertia.mass and actuator.gear of"
    " Brax's own backends are opt.gravity, body_mass and actuator_gear of mjx"
)


def make(
    name: str,
    *,
    backend: str = "generalized",
    episode_length: int = 1000,
    params: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> SimulatedEnv:
    """The environment `name`, such as `ant`.

    `params` replaces numbers of its system, by the names of `System.tree_replace`. `arguments` go
    to Brax's constructor. Raises `ConfigError` for what it does not take.
    """
    env_id = f"brax/{name}"
    require(
        backend in BACKENDS,
        f"Brax has no backend {backend!r}",
        did_you_mean(str(backend), BACKENDS),
    )
    require_positive_integer(f"{env_id} episode_length", episode_length, example=1000)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Brax and its solvers say that they are not maintained
            env = ENVS.get_environment(name, backend=backend, **arguments)
        return simulated_env(
            env_id,
            env,
            system="sys",
            max_episode_steps=episode_length,
            params=params,
            hint=f"with backend={backend!r}, {HELD_TWICE}",
            model=env.sys.mj_model,
            pose=lambda state: {"qpos": state.pipeline_state.q, "qvel": state.pipeline_state.qd},
        )
    except ConfigError:
        raise
    except (TypeError, ValueError, NotImplementedError) as error:
        given = {"backend": backend, **arguments}
        raise ConfigError(
            f"{env_id} does not take {given}: {error}; leave an argument out"
        ) from error
