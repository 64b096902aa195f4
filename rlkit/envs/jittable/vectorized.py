"""`vectorize`: a batch of any JAX environment, with resets that are cheap when few episodes end."""

import dataclasses
import functools

import gymnasium
import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from rlkit.envs.base import EnvAdapter, EnvSpec, JaxEnv, env_name, traced_params
from rlkit.envs.jittable.casts import cast_like, cast_obs
from rlkit.envs.jittable.contract import check_spaces, trace_findings
from rlkit.envs.jittable.masked import with_observed_mask
from rlkit.envs.non_finite import TRIES, NonFinite, chosen
from rlkit.errors import EnvContractError, require, require_positive_integer
from rlkit.ops.rows import non_finite_rows, where_rows
from rlkit.ops.strong_types import strong_types
from rlkit.protocols import follows
from rlkit.spaces import COMPOSITE, Space, clip, leaf_tree
from rlkit.types import Action, Key, Obs, PyTree, TimeStep
from rlkit.xla_gpu.resets import resets_all

MIN_RESET_BLOCK = 16  # environments reset at once, at least; measured in benchmarks/notes.md


# which environments [N] are yet to be reset, how often each was in vain, their states, their
# observations
Resetting = tuple[Array, Array | None, PyTree, Obs]


class VectorState(struct.PyTreeNode, kw_only=True):
    """State of a batch: the states of the environments, and the parameters they share."""

    envs: PyTree  # [N, ...]
    params: PyTree  # not batched; () if the environment has no parameters


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorizedEnv:
    """An `EnvAdapter` over a `JaxEnv`; build it with `vectorize`."""

    env: JaxEnv
    num_envs: int
    observation_space: Space
    action_space: Space
    max_episode_steps: int | None
    spec: EnvSpec | None = None
    non_finite: NonFinite = "raise"
    is_jittable: bool = True
    resets: bool = True  # after an episode; False: what follows it means nothing

    @property
    def params(self) -> PyTree:
        """Traced parameters that all environments share, `()` if there are none."""
        return traced_params(self.env)

    def replace_params(self, params: PyTree) -> "VectorizedEnv":
        """The same environments with other parameters."""
        return dataclasses.replace(self, env=self._bind(params))

    @property
    def first_episodes(self) -> "VectorizedEnv":
        """See `without_resets`."""
        return dataclasses.replace(self, resets=False)

    def reset(self, key: Key) -> tuple[VectorState, Obs]:
        """Starts new episodes in all environments. Consumes the key."""
        params = strong_types(self.params)
        env = self._bind(params)
        envs, obs = jax.vmap(env.reset)(jax.random.split(key, self.num_envs))
        envs, obs = strong_types(envs), cast_obs(obs, self.observation_space)
        broken = self._broken(obs)
        if broken is not None:
            other_key = jax.random.fold_in(key, self.num_envs)  # `split` took those before it
            envs, obs = self._reset_where(broken, env, other_key, envs, obs)
        return VectorState(envs=envs, params=params), obs

    def step(self, key: Key, state: VectorState, action: Action) -> tuple[VectorState, TimeStep]:
        """Steps every environment; those whose episode ends start a new one. Consumes the key."""
        env = self._bind(state.params)
        step_key, reset_key = jax.random.split(key)
        step_keys = jax.random.split(step_key, self.num_envs)
        if isinstance(self.action_space, COMPOSITE):
            _require_parts(self.action_space, action)
        action = clip(self.action_space, action)
        envs, obs, reward, terminated, truncated, info = jax.vmap(env.step)(
            step_keys, state.envs, action
        )
        envs, obs = (
            cast_like(state.envs, strong_types(envs)),
            cast_obs(obs, self.observation_space),
        )
        reward = reward.astype(jnp.float32)
        terminated, truncated = terminated.astype(bool), truncated.astype(bool)
        next_obs, resets_itself = obs, getattr(env, "auto_reset", False)
        if resets_itself:
            info = dict(info)
            next_obs = cast_obs(info.pop("final_observation"), self.observation_space)
        broken = self._broken((reward, next_obs, obs))
        if broken is not None:
            reward = jnp.where(broken, 0.0, reward)
            terminated, truncated = terminated | broken, truncated & ~broken
        ended = broken if resets_itself else terminated | truncated
        if ended is not None and self.resets:
            envs, obs = self._reset_where(ended, env, reset_key, envs, obs)
        if broken is not None:
            next_obs = where_rows(broken, obs, next_obs)
        return VectorState(envs=envs, params=state.params), TimeStep(
            obs=obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            next_obs=next_obs,
            info=info,
            non_finite=broken,
        )

    def close(self) -> None:
        """Nothing to free."""

    def _bind(self, params: PyTree) -> JaxEnv:
        return self.env.replace_params(params) if jax.tree.leaves(params) else self.env  # pyright: ignore[reportAttributeAccessIssue]

    def _broken(self, results: PyTree) -> Array | None:
        """Which environments [N] returned NaN or infinity; None if that is an error."""
        return non_finite_rows(results) if self.non_finite == "reset" else None

    def _reset_where(
        self, done: Array, env: JaxEnv, key: Key, envs: PyTree, obs: Obs
    ) -> tuple[PyTree, Obs]:
        """Resets the environments that are `done`, one block at a time; most steps reset few.

        The reset key of an environment depends only on its index, so the block size changes only
        the cost; and on how often it was reset in vain, if NaN and infinity are no error.
        """
        block = min(self.num_envs, max(MIN_RESET_BLOCK, self.num_envs // 8))
        tries = None if self._broken(obs) is None else jnp.zeros(self.num_envs, jnp.int32)

        def reset(numbers: Array) -> tuple[PyTree, Obs]:
            keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(numbers)
            fresh, fresh_obs = jax.vmap(env.reset)(keys)
            return cast_like(envs, fresh), cast_obs(fresh_obs, self.observation_space)

        if tries is None and resets_all(env.reset, key, self.num_envs):
            return where_rows(done, reset(jnp.arange(self.num_envs)), (envs, obs))

        def reset_block(carry: Resetting) -> Resetting:
            pending, tries, envs, obs = carry
            if block == self.num_envs:  # avoids searching and scattering, two kernels per array
                # Index by `pending`: otherwise XLA would hoist the resets out of the loop and
                # compute them at every step.
                index = jnp.where(pending, jnp.arange(block), self.num_envs)
                put = functools.partial(where_rows, pending)
            else:
                # num_envs marks unused slots
                (index,) = jnp.nonzero(pending, size=block, fill_value=self.num_envs)
                put = functools.partial(_put, index)
            number = index if tries is None else index + tries[index] * self.num_envs
            fresh, fresh_obs = reset(number)
            envs, obs = put(fresh, envs), put(fresh_obs, obs)
            left, broken = jnp.zeros(block, bool), self._broken(fresh_obs)
            if tries is not None and broken is not None:
                left = broken & (tries[index] + 1 < TRIES)
                tries = put(tries[index] + 1, tries)
            return put(left, pending), tries, envs, obs

        start = done, tries, envs, obs
        return jax.lax.while_loop(lambda carry: carry[0].any(), reset_block, start)[2:]


def vectorize(
    env: JaxEnv,
    num_envs: int,
    *,
    spec: EnvSpec | None = None,
    non_finite: NonFinite | None = None,
) -> VectorizedEnv:
    """Batches a single JAX environment: `num_envs` copies that reset themselves.

    `non_finite` says what NaN and infinity in an observation or reward do, see `JaxEnv`; None:
    what the environment itself says.

    Raises `EnvContractError` or `SpaceError` before anything compiles if `env` breaks the `JaxEnv`
    contract; `check_env` checks more.
    """
    require_positive_integer("num_envs", num_envs, example=8)
    if isinstance(env, type):
        raise EnvContractError(
            f"{env.__name__} is a class; pass an instance: vectorize({env.__name__}(...), num_envs)"
        )
    if follows(env, EnvAdapter):
        raise EnvContractError(
            f"{type(env).__name__} is already vectorized; use it as it is, or vectorize the"
            " environment inside"
        )
    if isinstance(env, gymnasium.Env):
        name = type(env.unwrapped).__name__
        raise EnvContractError(
            f"{name} is a Gymnasium environment, which is stepped on the host; pass it to"
            f" make_env, several of them as a class or function: make_env({name}, num_envs)"
        )
    check_spaces(env)
    limit = getattr(env, "max_episode_steps", None)
    require_positive_integer(
        f"{env_name(env)}.max_episode_steps", limit, example=500, none="no limit"
    )
    _require_traceable(env)
    masked = with_observed_mask(env)
    if masked is not env:
        _require_traceable(masked)
    return VectorizedEnv(
        env=masked,
        num_envs=int(num_envs),
        observation_space=masked.observation_space,
        action_space=env.action_space,
        max_episode_steps=None if limit is None else int(limit),
        spec=spec,
        non_finite=chosen(non_finite, env),
    )


def _require_traceable(env: JaxEnv) -> None:
    for finding in trace_findings(env):
        if finding.severity == "error":
            raise EnvContractError(f"{finding.what}; {finding.fix}")


def _put(index: Array, new: PyTree, old: PyTree) -> PyTree:
    """`old` with the rows `new` at `index`; indices beyond its end are dropped."""
    return jax.tree.map(lambda x, row: x.at[index].set(row, mode="drop"), old, new)


def _require_parts(space: Space, action: Action) -> None:
    """Raises `EnvContractError` if actions are not structured like their space."""
    given, wanted = jax.tree.structure(action), jax.tree.structure(leaf_tree(space))
    require(
        given == wanted,
        f"actions are structured like {given}, and their space like {wanted}",
        "pass a dict for a Dict and a tuple for a Tuple",
        EnvContractError,
    )
