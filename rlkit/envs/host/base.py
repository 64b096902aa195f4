"""What all host adapters share: their contract, their state, seeds from keys, and the look for
values that are no numbers.
"""

from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from flax import struct

from rlkit.envs.base import EnvAdapter
from rlkit.errors import EnvContractError, EnvFailedError, require
from rlkit.types import Key, Obs, TimeStep


class HostState(struct.PyTreeNode, kw_only=True):
    """The state of a host adapter as far as it is arrays; the simulators live in the adapter."""

    resets: (
        np.ndarray
    )  # [] int32: how often the adapter was reset, so that two runs that share one are told apart


@runtime_checkable
class HostAdapter(EnvAdapter, Protocol):
    """An `EnvAdapter` on the host, with what the Trainer uses beside `reset`, `step` and `close`.
    One adapter serves one run.

    Arrays are NumPy, fresh in every step. `reset` takes a key, or one for each of S seeds: then
    `num_envs` is S·N, and block s of N environments is seeded from `key[s]` alone. `step` ignores
    its key. `TimeStep.info` is {} but where an episode ended; of other rows it holds NaN.
    """

    def remake(self, num_envs: int) -> "HostAdapter":
        """A fresh adapter of the same kind with `num_envs` environments. Raises `ConfigError` where
        that cannot be.
        """
        ...

    def step_async(self, action: Any) -> None:
        """Starts a step of every environment; `action` is [N, ...]."""
        ...

    def step_wait(self) -> TimeStep:
        """What the step that was started did."""
        ...


def seeds(key: Key, num_envs: int) -> list[int]:
    """A seed in [0, 2**32) for each environment: of a key [] all from it, of keys [S] the s-th
    block of N from the s-th.

    They come from `np.random.SeedSequence` over the words of the key, so runs with different keys
    share none. (A plain seed s would give the environments s, s + 1, …, and runs with seeds 0, 1, 2
    nearly the same episodes.)
    """
    words = np.asarray(jax.random.key_data(key)).reshape(
        -1, jax.random.key_data(key).shape[-1]
    )  # [S, words]
    require(
        num_envs % len(words) == 0,
        f"{num_envs} environments cannot be shared by {len(words)} seeds",
        "use a multiple of the number of seeds",
    )
    each = num_envs // len(words)
    return [
        int(seed)
        for row in words
        for seed in np.random.SeedSequence(row.tolist()).generate_state(each)
    ]


def check_num_envs(num_envs: Any) -> None:
    """Raises `ConfigError` unless `num_envs` is a positive integer."""
    require(
        isinstance(num_envs, int) and not isinstance(num_envs, bool) and num_envs >= 1,
        f"num_envs must be a positive integer, got {num_envs!r}",
        "pass num_envs=8, for instance",
    )


def check_state(state: HostState, resets: int) -> None:
    """Raises `EnvContractError` if `state` is from before the adapter's last reset."""
    if int(state.resets) != resets:
        raise EnvContractError(
            "this adapter was reset since that state was made, so another run or evaluation uses it"
            " too; make one adapter for each (eval_env=None makes its own)"
        )


def check_finite(obs: Obs, reward: np.ndarray) -> None:
    """Raises `EnvFailedError` naming the environment if an observation or a reward is NaN or
    infinite; leaves [N, ...].
    """
    if not np.isfinite(reward).all():
        index = int(np.flatnonzero(~np.isfinite(reward))[0])
        raise EnvFailedError(
            f"environment {index} returned the reward {reward[index]}; "
            "look for a division by zero, or a log or root of a negative number"
        )
    for path, leaf in (
        jax.tree.leaves_with_path(obs) if isinstance(obs, (dict, tuple)) else (((), obs),)
    ):
        if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
            index, *where = map(int, np.argwhere(~np.isfinite(leaf))[0])
            raise EnvFailedError(
                f"environment {index} returned an"
                f" observation{jax.tree_util.keystr(path)}{where or ''} of {leaf[(index, *where)]};"
                " look for a division by zero, or a simulation that became unstable"
            )
