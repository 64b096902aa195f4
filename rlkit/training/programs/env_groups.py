"""Stepping environments on the host: rows of a rollout, and the axis of seeds that is folded into
the environments.
"""

from typing import Any

import jax
import numpy as np

from rlkit.envs.base import EnvAdapter
from rlkit.errors import ConfigError
from rlkit.training.compile.aot_compile import Compiled
from rlkit.types import Carry, Key, Obs, PyTree, TimeStep


class EnvGroup:
    """Some environments of a run that act and step together: S·N of them, N of each seed.

    A rollout is `begin`, then `act`, `send`, `receive` for each of its steps; in between, another
    group can take its turn. Observations and what happened are written to preallocated arrays [T,
    S·N, ...], two sets of them in turns, because the update may still be reading the last rollout.
    """

    def __init__(self, env: EnvAdapter, num_seeds: int, num_steps: int):
        self.env = env
        self._seeds = num_seeds
        self._num_steps = num_steps
        self._has_halves = hasattr(env, "step_async") and hasattr(env, "step_wait")
        self._sets: list[RolloutBuffer | None] = [None, None]

    def reset(self, key: Key) -> None:
        """New episodes everywhere, from one key or one for each seed."""
        self.env_state, self.obs = self.env.reset(key)

    def begin(self, policy: PyTree, carry: Carry, keys: Key) -> None:
        """Starts a rollout by `policy`, in the form that the acting function takes, with keys [(S,)
        T, 2].
        """
        self._policy, self.carry, self._keys = policy, carry, keys
        self._time, self._device_time = 0, np.int32(0)
        self._sets.reverse()

    def act(self, act: Compiled) -> None:
        """Chooses actions; returns before they are computed."""
        self._action, self._extras, self._device_time, self.carry = act(
            self._policy, self._keys, self._device_time, self.carry, unflat(self.obs, self._seeds)
        )

    def send(self) -> None:
        """Hands the actions to the environments."""
        self._action = flat(self._action, self._seeds)
        if self._in_halves():
            self.env.step_async(self._action)  # pyright: ignore[reportAttributeAccessIssue]

    def receive(self) -> np.ndarray:
        """Waits for the environments, and writes the row; returns which episodes ended, [S·N]."""
        if self._in_halves():
            timestep: TimeStep = self.env.step_wait()  # pyright: ignore[reportAttributeAccessIssue]
        else:
            timestep = self._step(self._action)
        rows = self._sets[0]
        if rows is None:
            rows = self._sets[0] = RolloutBuffer(
                self._num_steps, self.obs, self._action, self._extras, self._seeds
            )
        rows.write(self._time, self.obs, self._action, timestep, self._extras)
        self.obs = timestep.obs
        self._time += 1
        return rows.ended(self._time - 1)

    def step(self, action: np.ndarray) -> TimeStep:
        """Takes a step that no rollout is made of; actions, and what came of them, are [(S,) N,
        ...].
        """
        action = flat(action, self._seeds)
        timestep = self._step(action)
        self.obs = timestep.obs
        each = {
            name: np.asarray(getattr(timestep, name))
            for name in ("reward", "terminated", "truncated")
        }
        # One for all environments is allowed, as in the rows of a rollout.
        each = {
            name: np.broadcast_to(x, len(action)) if x.ndim == 0 else x for name, x in each.items()
        }
        return unflat(timestep.replace(info={}, **each), self._seeds)

    def _step(self, action: Any) -> TimeStep:
        self.env_state, timestep = self.env.step(self._keys, self.env_state, action)
        return timestep

    def _in_halves(self) -> bool:
        """Not in the first step of a rollout: a whole `step` finds out whether the environments are
        still those of this run.
        """
        return self._has_halves and self._time > 0

    def rollout(self) -> dict[str, PyTree]:
        """The fields of the transitions, [T, (S,) N, ...]; overwritten by the rollout after the
        next.
        """
        rows = self._sets[0]
        assert rows is not None
        return jax.tree.map(
            lambda x: x if self._seeds == 1 else x.reshape(len(x), self._seeds, -1, *x.shape[2:]),
            rows.fields,
        )


class RolloutBuffer:
    """A rollout in preallocated arrays [T, S·N, ...]."""

    def __init__(
        self,
        num_steps: int,
        obs: Obs,
        action: np.ndarray,
        extras: dict[str, PyTree],
        num_seeds: int,
    ):
        def like(x: Any) -> np.ndarray:
            return np.empty((num_steps, *np.shape(x)), np.result_type(x))

        num = len(action)
        self._seeds = num_seeds
        self.fields: dict[str, PyTree] = {
            "obs": jax.tree.map(like, obs),
            "action": like(action),
            "reward": np.empty((num_steps, num), np.float32),
            "terminated": np.empty((num_steps, num), bool),
            "truncated": np.empty((num_steps, num), bool),
            "next_obs": jax.tree.map(like, obs),
            "extras": jax.tree.map(lambda x: like(flat(x, num_seeds)), extras),
        }

    def write(
        self, time: int, obs: Obs, action: np.ndarray, timestep: TimeStep, extras: dict[str, PyTree]
    ) -> None:
        fields = self.fields
        _put(fields["obs"], time, obs)
        fields["action"][time] = action
        fields["reward"][time] = timestep.reward
        fields["terminated"][time] = timestep.terminated
        fields["truncated"][time] = timestep.truncated
        _put(fields["next_obs"], time, timestep.next_obs)
        if extras:
            _put(fields["extras"], time, flat(extras, self._seeds))

    def ended(self, time: int) -> np.ndarray:
        return self.fields["terminated"][time] | self.fields["truncated"][time]


def _put(rows: PyTree, time: int, values: PyTree) -> None:
    if isinstance(rows, np.ndarray):  # the usual case, without the cost of walking a tree
        rows[time] = values
        return
    for row, value in zip(jax.tree.leaves(rows), jax.tree.leaves(values), strict=True):
        row[time] = value


def unflat(tree: PyTree, num_seeds: int) -> PyTree:
    """[S·N, ...] as [S, N, ...]; as it is for a single seed."""
    if num_seeds == 1:
        return tree
    return jax.tree.map(lambda x: np.asarray(x).reshape(num_seeds, -1, *np.shape(x)[1:]), tree)


def flat(tree: PyTree, num_seeds: int) -> PyTree:
    """The reverse, as NumPy; waits for arrays that are still being computed."""
    if num_seeds == 1:
        return np.asarray(tree) if isinstance(tree, jax.Array) else jax.tree.map(np.asarray, tree)
    return jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:]), tree)


def remake(env: EnvAdapter, num_envs: int) -> EnvAdapter:
    """A fresh host adapter like `env`. Raises `ConfigError` where it has no `remake`."""
    if not hasattr(env, "remake"):
        raise ConfigError(
            f"{type(env).__name__} is needed with {num_envs} environments instead of {env.num_envs}"
            " and has no method remake(num_envs); write one, or use one seed, overlap='none' and"
            " pass an eval_env"
        )
    return env.remake(num_envs)  # pyright: ignore[reportAttributeAccessIssue]


def num_at_once(env: EnvAdapter, num_episodes: int, most: int) -> int:
    """How many environments like `env` play that many episodes: `most` at most, and no more
    processes than are trained in.
    """
    in_processes = getattr(env, "vectorization", None) == "async"
    return min(num_episodes, env.num_envs if in_processes else most)
