"""Environments on the host that act and step together."""

from typing import Any

import jax
import numpy as np

from rlkit.envs.base import EnvAdapter
from rlkit.envs.host.base import WHOLE
from rlkit.envs.host.env_state import NO_HOOKS
from rlkit.envs.host.plain_bytes import Plain
from rlkit.errors import ConfigError, EnvStateError, RlkitError
from rlkit.training.compile.aot_compile import Compiled
from rlkit.training.programs.rollout_buffer import RolloutBuffer
from rlkit.training.programs.seed_axis import merge_seeds, split_seeds
from rlkit.types import Carry, Key, Obs, PyTree, TimeStep


class EnvGroup:
    """S·N environments of a run that act and step together, N for each seed.

    A rollout is `start_rollout`, then `choose_actions`, `send_actions` and `receive_step` for each
    step. In between, another group can do the same: while one steps, the other acts.

    `obs` are the observations to act on next, leaves [S·N, ...]; `carry` is what agents carry,
    leaves [(S,) N, ...].
    """

    def __init__(self, env: EnvAdapter, num_seeds: int, num_steps: int):
        self.env = env
        self._num_seeds = num_seeds
        self._is_asynchronous = hasattr(env, "step_async") and hasattr(env, "step_wait")
        self._buffer = RolloutBuffer(num_steps, num_seeds)

    def reset(self, key: Key) -> None:
        """Starts new episodes everywhere, from one key or one per seed."""
        self.env_state, self.obs = self.env.reset(key)

    def going_on(self, num_steps: int) -> "EnvGroup":
        """The same environments, in the middle of their episodes, for rollouts of other length."""
        group = EnvGroup(self.env, self._num_seeds, num_steps)
        group.env_state, group.obs = self.env_state, self.obs
        return group

    def get_state(self) -> Plain:
        """The states of the environments as plain values; `EnvStateError` if they have none."""
        if not (hasattr(self.env, "get_state") and hasattr(self.env, "set_state")):
            raise EnvStateError(f"{type(self.env).__name__} {NO_HOOKS}")
        try:
            return self.env.get_state()  # pyright: ignore[reportAttributeAccessIssue]
        except RlkitError:
            raise
        except Exception as error:
            raise _failed(self.env, "get_state", error) from error

    def set_state(self, state: Plain, obs: Obs) -> None:
        """Puts the environments, which were reset, where they were saved.

        `obs` [S·N, ...] are the observations to act on next.
        """
        self.get_state()  # so that what has no hooks says so
        try:
            self.env.set_state(state)  # pyright: ignore[reportAttributeAccessIssue]
        except RlkitError:
            raise
        except Exception as error:
            raise _failed(self.env, "set_state", error) from error
        self.obs = obs

    def start_rollout(self, policy: PyTree, carry: Carry, keys: Key) -> None:
        """Starts a rollout with keys [(S,) T, 2] by `policy`, in the form that `act` takes."""
        self._policy, self.carry, self._keys = policy, carry, keys
        self._time, self._device_time = 0, np.int32(0)
        self._buffer.swap()

    def choose_actions(self, act: Compiled) -> None:
        """Chooses actions with `HostFunctions.act`; returns before they are computed."""
        self._action, self._extras, self._device_time, self.carry = act(
            self._policy,
            self._keys,
            self._device_time,
            self.carry,
            split_seeds(self.obs, self._num_seeds),
        )

    def send_actions(self) -> None:
        """Waits for the actions and hands them to the environments."""
        self._action = merge_seeds(self._action, self._num_seeds)
        if self._steps_asynchronously():
            self.env.step_async(self._action)  # pyright: ignore[reportAttributeAccessIssue]

    def receive_step(self) -> np.ndarray:
        """Waits for the environments and writes the step; returns which episodes ended, [S·N]."""
        if self._steps_asynchronously():
            timestep: TimeStep = self.env.step_wait()  # pyright: ignore[reportAttributeAccessIssue]
        else:
            timestep = self._step(self._action)
        time = self._time
        self._buffer.write(time, self.obs, self._action, timestep, self._extras)
        self.obs = timestep.obs
        self._time += 1
        return self._buffer.done(time)

    def rollout(self) -> dict[str, PyTree]:
        """The fields of the transitions, leaves [T, (S,) N, ...].

        The rollout after the next overwrites them.
        """
        return self._buffer.rollout()

    def step(self, action: Any) -> TimeStep:
        """Takes a step outside any rollout; actions and results are [(S,) N, ...]."""
        action = merge_seeds(action, self._num_seeds)
        timestep = self._step(action)
        self.obs = timestep.obs
        each = {
            name: np.asarray(getattr(timestep, name))
            for name in ("reward", "terminated", "truncated")
        }
        # One value for all environments is allowed, as in the rows of a rollout.
        num = len(jax.tree.leaves(action)[0])
        each = {name: np.broadcast_to(x, num) if x.ndim == 0 else x for name, x in each.items()}
        return split_seeds(timestep.replace(info={}, **each), self._num_seeds)

    def _step(self, action: Any) -> TimeStep:
        self.env_state, timestep = self.env.step(self._keys, self.env_state, action)
        return timestep

    def _steps_asynchronously(self) -> bool:
        """Whether this step is asynchronous; the first step of a rollout is not.

        A whole `step` checks that the environments are still those of this run.
        """
        return self._is_asynchronous and self._time > 0


def _failed(env: EnvAdapter, method: str, error: Exception) -> EnvStateError:
    return EnvStateError(f"{type(env).__name__}.{method} raised {type(error).__name__}: {error}")


def remake(env: EnvAdapter, num_envs: int, share: tuple[int, int] = WHOLE) -> EnvAdapter:
    """A fresh host adapter like `env`, with the environments of a share, see `HostAdapter`.

    Raises `ConfigError` if it has no `remake`, or a share is asked for and it knows of none.
    """
    if share != WHOLE and not hasattr(env, "share"):
        raise ConfigError(
            f"{type(env).__name__} cannot be divided among {share[1]} processes: it has no"
            " attribute share, see rlkit.envs.HostAdapter; add one, or train in one process"
        )
    if not hasattr(env, "remake"):
        raise ConfigError(
            f"{type(env).__name__} is needed with {num_envs} environments instead of {env.num_envs}"
            ", but has no method remake(num_envs); add one, or use one seed, overlap='none' and"
            " pass an eval_env"
        )
    fresh: Any = env.remake(num_envs)  # pyright: ignore[reportAttributeAccessIssue]
    if share != WHOLE:
        fresh.share = share
    return fresh


def num_at_once(env: EnvAdapter, num_episodes: int, most: int) -> int:
    """How many environments like `env` play `num_episodes` episodes: at most `most`.

    If they run in processes, at most as many as in training.
    """
    in_processes = getattr(env, "vectorization", None) == "async"
    return min(num_episodes, env.num_envs if in_processes else most)
