"""What each of several devices trains: the module with its share of environments and batches."""

import dataclasses

from rlkit.envs.base import EnvAdapter, EnvSpec
from rlkit.envs.jittable.vectorized import VectorizedEnv
from rlkit.envs.registry import make_env
from rlkit.errors import ConfigError, RlkitError, near_multiples, require
from rlkit.spaces import Space
from rlkit.training.compile.devices import DATA, Devices, divisors
from rlkit.training.core.module import Module, RLModule
from rlkit.types import Action, EnvState, Key, Obs, TimeStep


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostShare:
    """As many environments on the host as one device acts in; they are stepped elsewhere."""

    num_envs: int
    observation_space: Space
    action_space: Space
    max_episode_steps: int | None
    spec: EnvSpec | None
    is_jittable: bool = False

    def reset(self, key: Key) -> tuple[EnvState, Obs]:
        """Not here."""
        raise NotImplementedError

    def step(self, key: Key, state: EnvState, action: Action) -> tuple[EnvState, TimeStep]:
        """Not here."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to free."""


def share_of(module: Module, devices: Devices | None) -> Module:
    """What a device trains of `module`: all of it, unless others train the same seeds.

    Raises `ConfigError`, before anything compiles, if it cannot be divided equally.
    """
    if devices is None or devices.per_seed == 1:
        return module
    count = devices.per_seed
    if not isinstance(module, RLModule):
        raise ConfigError(
            f"{type(module).__name__} has a state of its own, which cannot be divided among"
            ' devices; use an RLModule, or give each device other seeds: shard="seeds"'
        )
    env, num_envs = module.env, module.env.num_envs
    require(
        num_envs % count == 0,
        f"num_envs={num_envs} cannot be divided among {count} devices",
        f"use {divisors(num_envs, count)}, or num_envs={near_multiples(num_envs, count)}"
        " (--num-envs)",
    )
    share = _jittable(env, num_envs // count) if env.is_jittable else _on_host(env, count)
    module.algorithm.divided(count, DATA)  # whose errors speak of the whole
    try:
        return module.divided(share, count, DATA)
    except RlkitError as error:
        plural = "s" if num_envs > count else ""
        each = f"on each of {count} devices, with {num_envs // count} environment{plural}"
        raise type(error)(f"{each}: {error}") from error


def _jittable(env: EnvAdapter, num_envs: int) -> EnvAdapter:
    if isinstance(env, VectorizedEnv):
        return dataclasses.replace(env, num_envs=num_envs)
    if env.spec is not None:
        env_id, arguments = env.spec
        return make_env(env_id, num_envs, **arguments)
    raise ConfigError(
        f"{type(env).__name__} is needed with {num_envs} environments for each device; make it with"
        " `vectorize`, or register it (register_env) and make it by its id"
    )


def _on_host(env: EnvAdapter, count: int) -> EnvAdapter:
    return HostShare(
        num_envs=env.num_envs // count,
        observation_space=env.observation_space,
        action_space=env.action_space,
        max_episode_steps=env.max_episode_steps,
        spec=env.spec,
    )
