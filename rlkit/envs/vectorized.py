"""`vectorize`: a batch of any single JAX environment, with resets that cost only what ends."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from gymnasium import spaces
from jax import Array

from rlkit.envs.base import JaxEnv
from rlkit.errors import EnvContractError, require
from rlkit.spaces import Space, map_space
from rlkit.types import EnvState, Key, Obs, PyTree, TimeStep

MIN_RESET_BLOCK = 16  # environments reset at once, at least; measured in docs/design.md


@struct.dataclass(kw_only=True)
class VectorState:
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
        params = _strong(getattr(self.env, "params", ()))
        envs, obs = jax.vmap(self._bind(params).reset)(jax.random.split(key, self.num_envs))
        return VectorState(envs=_strong(envs), params=params), self._cast(obs)

    def step(self, key: Key, state: VectorState, action: Array) -> tuple[VectorState, TimeStep]:
        """One step of every environment; those whose episode ends start a new one. The key is consumed."""
        env = self._bind(state.params)
        step_key, reset_key = jax.random.split(key)
        step_keys = jax.random.split(step_key, self.num_envs)
        if isinstance(self.action_space, spaces.Box):
            action = jnp.clip(action, self.action_space.low, self.action_space.high)
        envs, obs, reward, terminated, truncated, info = jax.vmap(env.step)(step_keys, state.envs, action)
        envs, obs = _like(state.envs, _strong(envs)), self._cast(obs)
        terminated, truncated = terminated.astype(bool), truncated.astype(bool)
        if getattr(env, "auto_reset", False):
            info = dict(info)
            next_obs = self._cast(info.pop("final_observation"))
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

    def _cast(self, obs: Obs) -> Obs:
        """Observations in the dtypes that the space declares (64-bit ones as 32-bit)."""
        types = map_space(lambda leaf: jnp.dtype(jax.dtypes.canonicalize_dtype(leaf.dtype)), self.observation_space)
        return jax.tree.map(lambda dtype, x: jax.lax.convert_element_type(x, dtype), types, obs)

    def _reset_where(self, done: Array, env: JaxEnv, key: Key, envs: PyTree, obs: Obs) -> tuple[PyTree, Obs]:
        """Resets the environments that are `done`, a block at a time until none is left: most steps reset few or none.

        The reset key of an environment depends on its index alone, so the block size changes nothing but the cost.
        """
        block = min(self.num_envs, max(MIN_RESET_BLOCK, self.num_envs // 8))

        def reset_block(carry: tuple[Array, PyTree, Obs]) -> tuple[Array, PyTree, Obs]:
            pending, envs, obs = carry
            (index,) = jnp.nonzero(pending, size=block, fill_value=self.num_envs)  # [block], num_envs where fewer are left
            keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(index)
            fresh, fresh_obs = jax.vmap(env.reset)(keys)

            def put(old: Array, new: Array) -> Array:
                return old.at[index].set(new.astype(old.dtype), mode="drop")

            envs = jax.tree.map(put, envs, fresh)
            return pending.at[index].set(False, mode="drop"), envs, jax.tree.map(put, obs, self._cast(fresh_obs))

        return jax.lax.while_loop(lambda carry: carry[0].any(), reset_block, (done, envs, obs))[1:]


def vectorize(env: JaxEnv, num_envs: int, *, spec: tuple[str, dict[str, Any]] | None = None) -> VectorizedEnv:
    """`num_envs` copies of a single JAX environment as an `EnvAdapter` that resets finished episodes.

    Raises `EnvContractError` at once, before anything compiles, if `env` breaks the `JaxEnv` contract; `check_env` explains more.
    """
    require(isinstance(num_envs, int) and num_envs >= 1, f"num_envs must be a positive integer, got {num_envs!r}", "pass num_envs=8")
    for name in ("observation_space", "action_space"):
        space = getattr(env, name, None)
        if not isinstance(space, spaces.Space):
            raise EnvContractError(f"{type(env).__name__}.{name} is {space!r}; set it to a gymnasium space, such as spaces.Box(...)")
    vectorized = VectorizedEnv(
        env=env,
        num_envs=num_envs,
        observation_space=env.observation_space,
        action_space=env.action_space,
        max_episode_steps=getattr(env, "max_episode_steps", None),
        spec=spec,
    )
    _check_step(env)
    return vectorized


def _check_step(env: JaxEnv) -> None:
    """Traces one reset and one step without running them, and compares what comes out with the contract."""
    name = type(env).__name__
    key = jax.eval_shape(lambda: jax.random.key(0))
    reset = jax.eval_shape(env.reset, key)
    if not (isinstance(reset, tuple) and len(reset) == 2):
        raise EnvContractError(f"{name}.reset must return (state, obs), got {type(reset).__name__}; return the state first")
    state, obs = reset
    _check_structure(f"{name}.reset observation", env.observation_space, obs)
    action = jax.ShapeDtypeStruct(env.action_space.shape or (), jax.dtypes.canonicalize_dtype(env.action_space.dtype))
    step = jax.eval_shape(env.step, key, state, action)
    if not (isinstance(step, tuple) and len(step) == 6):
        found = f"{len(step)} values" if isinstance(step, tuple) else type(step).__name__
        raise EnvContractError(
            f"{name}.step returned {found}; return (state, obs, reward, terminated, truncated, info), with truncated for time limits"
        )
    next_state, obs, reward, terminated, truncated, info = step
    _check_structure(f"{name}.step observation", env.observation_space, obs)
    for label, value in (("reward", reward), ("terminated", terminated), ("truncated", truncated)):
        if getattr(value, "shape", None) != ():
            raise EnvContractError(f"{name}.step {label} has shape {getattr(value, 'shape', None)}; return one scalar for one environment")
    if not isinstance(info, dict):
        raise EnvContractError(f"{name}.step info is a {type(info).__name__}; return a dict of arrays, {{}} if there is nothing to say")
    if getattr(env, "auto_reset", False) and "final_observation" not in info:
        raise EnvContractError(
            f"{name} says auto_reset=True but info has no 'final_observation'; put the observation before the reset there"
        )
    before, after = jax.tree.structure(state), jax.tree.structure(next_state)
    if before != after:
        raise EnvContractError(f"{name}.step changes the state's structure from {before} to {after}; return the same fields as reset")
    for (path, old), new in zip(jax.tree.leaves_with_path(state), jax.tree.leaves(next_state), strict=True):
        if old.shape != new.shape or old.dtype != new.dtype:
            raise EnvContractError(
                f"{name}.step turns state{jax.tree_util.keystr(path)} from {old.dtype}{list(old.shape)} into "
                f"{new.dtype}{list(new.shape)}; keep shape and dtype (for instance with jnp.asarray(x, old.dtype))"
            )


def _check_structure(label: str, space: Space, obs: Obs) -> None:
    wanted = map_space(lambda leaf: leaf.shape, space)
    paths = jax.tree.leaves_with_path(wanted, is_leaf=lambda x: isinstance(x, tuple) and all(isinstance(i, int) for i in x))
    found = jax.tree.leaves_with_path(obs)
    if [path for path, _ in paths] != [path for path, _ in found]:
        raise EnvContractError(f"{label} is structured {jax.tree.structure(obs)}, its space {space}; make both agree")
    for (path, shape), (_, leaf) in zip(paths, found, strict=True):
        if tuple(leaf.shape) != tuple(shape):
            raise EnvContractError(
                f"{label}{jax.tree_util.keystr(path)} has shape {tuple(leaf.shape)}, its space says {tuple(shape)}; make both agree"
            )


def _strong(tree: PyTree) -> PyTree:
    """Every leaf as an array of strong type: weakly typed states would make a jitted step compile twice."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.result_type(x)), tree)


def _like(old: PyTree, new: PyTree) -> PyTree:
    return jax.tree.map(lambda o, n: n.astype(o.dtype) if n.dtype != o.dtype else n, old, new)
