"""Gymnax environments: every registered id as a `JaxEnv`, or vectorized as an `EnvAdapter`."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from rlkit.envs.base import JaxStep
from rlkit.envs.ids import NEEDS_NETWORK
from rlkit.envs.jittable.casts import cast_obs
from rlkit.envs.jittable.params import with_numbers
from rlkit.envs.jittable.vectorized import VectorizedEnv, vectorize
from rlkit.errors import ConfigError, UnknownNameError, did_you_mean, require
from rlkit.ops.strong_types import strong_types
from rlkit.spaces import Space
from rlkit.types import Action, EnvState, Key, Obs, PyTree


@dataclasses.dataclass(frozen=True)
class GymnaxEnv:
    """A Gymnax environment as a `JaxEnv`.

    The numbers in `params` are traced, so changing them does not recompile.
    """

    env: Any
    params: Any
    observation_space: Space
    action_space: Space
    max_episode_steps: int | None

    @property
    def auto_reset(self) -> bool:
        """Whether the class overrides `step`: its own resets may keep state, as DeepSea's do."""
        from gymnax.environments.environment import Environment

        return type(self.env).step is not Environment.step

    def replace_params(self, params: PyTree) -> "GymnaxEnv":
        """The same environment with other parameters."""
        return dataclasses.replace(self, params=params)

    def reset(self, key: Key) -> tuple[EnvState, Obs]:
        """Starts an episode; returns (state, obs). Consumes the key."""
        obs, state = self.env.reset_env(key, self.params)
        return strong_types(state), cast_obs(obs, self.observation_space)

    def step(self, key: Key, state: EnvState, action: Action) -> JaxStep:
        """One step, without reset unless `auto_reset`. Consumes the key."""
        if self.auto_reset:
            obs, new_state, reward, terminated, truncated, info = self.env.step(
                key, state, action, self.params
            )
        else:
            obs, new_state, reward, terminated, info = self.env.step_env(
                key, state, action, self.params
            )
            truncated = self.env.is_truncated(new_state, self.params)
        obs = cast_obs(obs, self.observation_space)
        # `discount` repeats `terminated`, and both flags are returned separately.
        info = {
            name: value
            for name, value in info.items()
            if name not in ("discount", "terminated", "truncated")
        }
        if self.auto_reset:
            info["final_observation"] = cast_obs(info["final_observation"], self.observation_space)
        return (
            _cast_like(state, new_state),
            obs,
            jnp.float32(reward),
            jnp.bool_(terminated),
            jnp.bool_(truncated),
            info,
        )


def gymnax_env(env_id: str, *, params: dict[str, Any] | None = None, **kwargs: Any) -> GymnaxEnv:
    """The Gymnax environment `env_id` (such as `CartPole-v1`) as a `JaxEnv`.

    `params` overrides numbers in the environment's default params (`{"max_steps_in_episode":
    200}`); `kwargs` go to its constructor. Raises `ConfigError` for unknown ids, params or
    constructor arguments.
    """
    import gymnax
    from gymnax.environments.spaces import gymnax_space_to_gym_space

    if env_id not in gymnax.registered_envs:
        raise UnknownNameError(
            f"gymnax has no environment {env_id!r}; {did_you_mean(env_id, gymnax.registered_envs)}"
        )
    try:
        env, default = gymnax.make(env_id, **kwargs)
    except OSError as error:
        raise ConfigError(
            f"gymnax/{env_id} cannot run offline ({NEEDS_NETWORK.get(env_id, error)}); use"
            " another id"
        ) from error
    except TypeError as error:
        is_limit = "max_episode_steps" in kwargs
        own = 'use its own limit, params={"max_steps_in_episode": 500}'
        raise ConfigError(
            f"gymnax/{env_id} does not take {kwargs}: {error};"
            f" {own if is_limit else 'leave the argument out'}"
        ) from error
    merged = with_numbers(f"gymnax/{env_id}", default, params)
    # Parameters of one's own may have no limit.
    limit, usual = (
        int(each.max_steps_in_episode) if hasattr(each, "max_steps_in_episode") else None
        for each in (merged, default)
    )
    require(
        limit is None or limit > 0,
        f"parameter max_steps_in_episode={limit} of gymnax/{env_id} is not positive",
        f"leave it out for {usual}",
    )
    action_space, observation_space = (
        gymnax_space_to_gym_space(space)
        for space in (env.action_space(merged), env.observation_space(merged))
    )
    return GymnaxEnv(env, merged, observation_space, action_space, limit)


def GymnaxAdapter(
    env_id: str, num_envs: int, *, params: dict[str, Any] | None = None, **kwargs: Any
) -> VectorizedEnv:
    """`num_envs` copies of the Gymnax environment `env_id`; arguments as for `gymnax_env`."""
    options = {**({"params": params} if params else {}), **kwargs}
    return vectorize(
        gymnax_env(env_id, params=params, **kwargs), num_envs, spec=(f"gymnax/{env_id}", options)
    )


def _cast_like(old: PyTree, new: PyTree) -> PyTree:
    """The new state in the old dtypes: some environments reset to an int and step to a float."""
    return jax.tree.map(lambda o, n: jnp.asarray(n, jnp.result_type(o)), old, new)
