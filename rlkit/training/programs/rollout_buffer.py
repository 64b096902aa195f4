"""The buffer to which a host rollout is written, step by step."""

import jax
import numpy as np

from rlkit.training.programs.seed_axis import merge_seeds
from rlkit.types import Action, Obs, PyTree, TimeStep


class RolloutBuffer:
    """Rollouts in preallocated NumPy arrays [T, S·N, ...], double-buffered.

    JAX on a CPU may read a NumPy array in place instead of copying it, so the update may still be
    reading one rollout while the next is written. Hence there are two sets of arrays, and `swap`
    exchanges them before each rollout: a rollout stays intact until the one after the next starts.
    """

    def __init__(self, num_steps: int, num_seeds: int):
        self._num_steps, self._num_seeds = num_steps, num_seeds
        self._written: dict[str, PyTree] = {}  # {}: not yet allocated
        self._other: dict[str, PyTree] = {}

    def swap(self) -> None:
        """Starts a rollout in the other set of arrays."""
        self._written, self._other = self._other, self._written

    def write(
        self, time: int, obs: Obs, action: Action, timestep: TimeStep, extras: dict[str, PyTree]
    ) -> None:
        """Writes step `time`: leaves [S·N, ...], those of `extras` [(S,) N, ...]."""
        if not self._written:
            self._written = self._allocate(obs, action, timestep, extras)
        fields = self._written
        _write_row(fields["obs"], time, obs)
        _write_row(fields["action"], time, action)
        fields["reward"][time] = timestep.reward
        fields["terminated"][time] = timestep.terminated
        fields["truncated"][time] = timestep.truncated
        _write_row(fields["next_obs"], time, timestep.next_obs)
        if fields["non_finite"] is not None:
            fields["non_finite"][time] = timestep.non_finite
        if extras:
            _write_row(fields["extras"], time, merge_seeds(extras, self._num_seeds))

    def done(self, time: int) -> np.ndarray:
        """Which episodes ended in step `time`, [S·N] bool."""
        return self._written["terminated"][time] | self._written["truncated"][time]

    def rollout(self) -> dict[str, PyTree]:
        """The fields of the transitions by name, leaves [T, (S,) N, ...]."""
        seeds = self._num_seeds
        return jax.tree.map(
            lambda x: x if seeds == 1 else x.reshape(len(x), seeds, -1, *x.shape[2:]),
            self._written,
        )

    def _allocate(
        self, obs: Obs, action: Action, timestep: TimeStep, extras: dict[str, PyTree]
    ) -> dict[str, PyTree]:
        num_steps, num_envs = self._num_steps, len(jax.tree.leaves(action)[0])

        def like(x: np.ndarray) -> np.ndarray:
            return np.empty((num_steps, *np.shape(x)), np.result_type(x))

        return {
            "obs": jax.tree.map(like, obs),
            "action": jax.tree.map(like, action),
            "reward": np.empty((num_steps, num_envs), np.float32),
            "terminated": np.empty((num_steps, num_envs), bool),
            "truncated": np.empty((num_steps, num_envs), bool),
            "next_obs": jax.tree.map(like, obs),
            "non_finite": jax.tree.map(like, timestep.non_finite),
            "extras": jax.tree.map(like, merge_seeds(extras, self._num_seeds)),
        }


def _write_row(rows: PyTree, time: int, values: PyTree) -> None:
    if isinstance(rows, np.ndarray):  # the usual case, without the cost of walking a tree
        rows[time] = values
        return
    for row, value in zip(jax.tree.leaves(rows), jax.tree.leaves(values), strict=True):
        row[time] = value
