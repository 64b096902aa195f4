"""`vectorize`: a batch of any single JAX environment, with resets that cost only what ends."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from gymnasium import spaces
from jax import Array

from rlkit.envs.base import EnvAdapter, JaxEnv, traced_params
from rlkit.envs.jittable.contract import check_spaces, trace_findings
from rlkit.errors import EnvContractError, require
from rlkit.ops.rows import where_rows
from rlkit.spaces import Space, jax_dtype, map_space
from rlkit.types import Key, Obs, PyTree, TimeStep

MIN_RESET_BLOCK = 16  # environments reset at once, at least; measured in docs/design.md


class VectorState(struct.PyTreeNode, kw_only=True):
    """State of a batch: the environments' own states and the numbers they share."""

    envs: PyTree  # [N, ...]
    params: PyTree  # not batched; () where the environment has none


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorizedEnv:
    """An `EnvAdapter` over a `JaxEnv`; build it with `vectorize`."""

    env: JaxEnv
    num_envs: int
    observation_space: Space
    action_space: Space
    max_episode_steps: int | None
    spec: tuple[str, dict[str, Any]] | None = None
    is_jittable: bool = True

    def reset(self, key: Key) -> tuple[VectorState, Obs]:
        """New episodes everywhere; the key is consumed."""
        params = strong(traced_params(self.env))
        envs, obs = jax.vmap(self._bind(params).reset)(jax.random.split(key, self.num_envs))
        return VectorState(envs=strong(envs), params=params), cast(obs, self.observation_space)

    def step(self, key: Key, state: VectorState, action: Array) -> tuple[VectorState, TimeStep]:
        """One step of every environment; those whose episode ends start a new one. The key is
        consumed.
        """
        env = self._bind(state.params)
        step_key, reset_key = jax.random.split(key)
        step_keys = jax.random.split(step_key, self.num_envs)
        if isinstance(self.action_space, spaces.Box):
            action = jnp.clip(action, self.action_space.low, self.action_space.high)
        envs, obs, reward, terminated, truncated, info = jax.vmap(env.step)(
            step_keys, state.envs, action
        )
        envs, obs = like(state.envs, strong(envs)), cast(obs, self.observation_space)
        terminated, truncated = terminated.astype(bool), truncated.astype(bool)
        if getattr(env, "auto_reset", False):
            info = dict(info)
            next_obs = cast(info.pop("final_observation"), self.observation_space)
        else:
            next_obs = obs
            envs, obs = self._reset_where(terminated | truncated, env, reset_key, envs, obs)
        return VectorState(envs=envs, params=state.params), TimeStep(
            obs=obs,
            reward=reward.astype(jnp.float32),
            terminated=terminated,
            truncated=truncated,
            next_obs=next_obs,
            info=info,
        )

    def close(self) -> None:
        """Nothing to free."""

    def _bind(self, params: PyTree) -> JaxEnv:
        return self.env.replace_params(params) if jax.tree.leaves(params) else self.env  # pyright: ignore[reportAttributeAccessIssue]

    def _reset_where(
        self, done: Array, env: JaxEnv, key: Key, envs: PyTree, obs: Obs
    ) -> tuple[PyTree, Obs]:
        """Resets the environments that are `done`, a block at a time until none is left: most steps
        reset few or none.

        The reset key of an environment depends on its index alone, so the block size changes
        nothing but the cost.
        """
        block = min(self.num_envs, max(MIN_RESET_BLOCK, self.num_envs // 8))

        def reset_block(carry: tuple[Array, PyTree, Obs]) -> tuple[Array, PyTree, Obs]:
            pending, envs, obs = carry
            if (
                block == self.num_envs
            ):  # without searching and scattering, which are two kernels for each array
                # By what is pending, else XLA would take the resets out of the loop and compute
                # them at every step.
                index = jnp.where(pending, jnp.arange(block), self.num_envs)
                put = functools.partial(where_rows, pending)
            else:
                (index,) = jnp.nonzero(
                    pending, size=block, fill_value=self.num_envs
                )  # num_envs where fewer are left
                put = functools.partial(_put, index)
            keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(index)
            fresh, fresh_obs = jax.vmap(env.reset)(keys)
            envs = put(like(envs, fresh), envs)
            obs = put(cast(fresh_obs, self.observation_space), obs)
            return put(jnp.zeros(block, bool), pending), envs, obs

        return jax.lax.while_loop(lambda carry: carry[0].any(), reset_block, (done, envs, obs))[1:]


def vectorize(
    env: JaxEnv, num_envs: int, *, spec: tuple[str, dict[str, Any]] | None = None
) -> VectorizedEnv:
    """`num_envs` copies of a single JAX environment as an `EnvAdapter` that resets finished
    episodes.

    Raises `EnvContractError` or `SpaceError` at once, before anything compiles, if `env` breaks the
    `JaxEnv` contract; `check_env` finds more.
    """
    require(
        isinstance(num_envs, int) and not isinstance(num_envs, bool) and num_envs >= 1,
        f"num_envs must be a positive integer, got {num_envs!r}",
        "pass num_envs=8, for instance",
    )
    if isinstance(env, type):
        raise EnvContractError(
            f"{env.__name__} is a class; pass an object: vectorize({env.__name__}(...), num_envs)"
        )
    if isinstance(env, EnvAdapter):
        raise EnvContractError(
            f"{type(env).__name__} is vectorised already; use it as it is, or vectorize the"
            " environment inside"
        )
    check_spaces(env)
    for finding in trace_findings(env):
        if finding.severity == "error":
            raise EnvContractError(f"{finding.what}; {finding.cure}")
    return VectorizedEnv(
        env=env,
        num_envs=num_envs,
        observation_space=env.observation_space,
        action_space=env.action_space,
        max_episode_steps=getattr(env, "max_episode_steps", None),
        spec=spec,
    )


def _put(index: Array, new: PyTree, old: PyTree) -> PyTree:
    """The tree `old` with the rows `new` at `index`, but for those beyond its end."""
    return jax.tree.map(lambda x, row: x.at[index].set(row, mode="drop"), old, new)


def cast(obs: Obs, space: Space) -> Obs:
    """Observations in the dtypes that `space` declares (64-bit ones as 32-bit); dtypes that agree
    cost nothing.
    """
    return jax.tree.map(
        lambda leaf, x: jax.lax.convert_element_type(x, jax_dtype(leaf)),
        map_space(lambda leaf: leaf, space),
        obs,
    )


def strong(tree: PyTree) -> PyTree:
    """Every leaf as an array of strong type: weakly typed states would make a jitted step compile
    twice.
    """
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.result_type(x)), tree)


def like(old: PyTree, new: PyTree) -> PyTree:
    return jax.tree.map(
        lambda o, n: (
            jax.lax.convert_element_type(n, o.dtype) if jnp.result_type(n) != o.dtype else n
        ),
        old,
        new,
    )
