"""The environments of MuJoCo Playground: the DeepMind Control Suite in MJX."""

import importlib
from collections.abc import Mapping
from typing import Any

from rlkit.envs.jittable.params import require_named
from rlkit.envs.suites.simulated import SimulatedEnv, simulated_env
from rlkit.errors import ConfigError, did_you_mean, require, require_positive_integer, shown

REGISTRY: Any = importlib.import_module("mujoco_playground").registry


def make(
    name: str,
    *,
    config: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
) -> SimulatedEnv:
    """The environment `name`, such as `CartpoleBalance`.

    `config` overrides its configuration, {"episode_length": 500}; rlkit's own default is `impl:
    jax`, which runs everywhere. `params` replaces numbers of its model, by the names of
    `mjx.Model.tree_replace`. Raises `ConfigError` for what it does not take.
    """
    env_id = f"playground/{name}"
    require_named(f"{env_id} config", config, '{"episode_length": 500}')
    settings = REGISTRY.get_default_config(name).lock()  # unknown names are errors
    for entry in config or {}:
        own = entry.partition(".")[0]
        require(own in settings, f"{env_id} has no config {entry!r}", did_you_mean(own, settings))
    try:
        settings.update_from_flattened_dict({"impl": "jax", **(config or {})})
        require_positive_integer(f"{env_id} episode_length", settings.episode_length, example=1000)
        require(
            settings.action_repeat == 1,
            f"{env_id} repeats no actions, got action_repeat={settings.action_repeat!r}",
            "leave it out, and set ctrl_dt, which is how long an action lasts",
        )
        env = REGISTRY.load(name, config=settings)
        return simulated_env(
            env_id,
            env,
            system="_mjx_model",
            max_episode_steps=settings.episode_length,
            params=params,
            hint="leave it out",
            model=env.mj_model,
            pose=_pose,
        )
    except ConfigError:
        raise
    except Exception as error:  # configurations fail in many ways, of MuJoCo and of others
        raise ConfigError(
            f"{env_id} does not take the config {shown(config)}: {error}; leave an entry out"
        ) from error


def _pose(state: Any) -> dict[str, Any]:
    names = ("qpos", "qvel", "mocap_pos", "mocap_quat")
    return {name: getattr(state.data, name) for name in names}
