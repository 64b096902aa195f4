"""Shared by all host adapters: their protocol and state, seeds from keys, and checks of values."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import jax
import numpy as np
from flax import struct

from rlkit.action_masks import NO_ACTION, first_without_choice, mask_in
from rlkit.envs.base import EnvAdapter
from rlkit.envs.non_finite import INSTEAD
from rlkit.errors import EnvContractError, EnvFailedError, require
from rlkit.types import Action, Key, Obs, TimeStep


class HostState(struct.PyTreeNode, kw_only=True):
    """The array state of a host adapter; the simulators themselves live in the adapter."""

    resets: np.ndarray  # [] int32: number of resets so far; detects that two runs share one adapter


@runtime_checkable
class HostAdapter(EnvAdapter, Protocol):
    """An `EnvAdapter` on the host, which can also step asynchronously. One adapter serves one run.

    It may have two more methods. `get_state()` returns the states of its environments as plain
    values (see `plain_bytes`), and `set_state(state)` puts them there after a reset; both raise
    `EnvStateError` if that is not possible. A resumed run then continues their episodes; with
    another `overlap` too, if the states are a list with one of each environment.

    Arrays are NumPy, newly allocated in every step. `reset` takes a key, or one for each of S
    seeds: then `num_envs` is S·N, and block s of N environments is seeded from `key[s]` alone.
    `step` ignores its key. `TimeStep.info` is {} unless an episode ended; only the rows of ended
    episodes are read, and NaN there means that nothing was reported.

    To train in several processes, it has an attribute `share`, (0, 1) unless it is set to (i, P)
    before the first reset: then its environments have the seeds of the i-th of P parts of P times
    as many.
    """

    def remake(self, num_envs: int) -> "HostAdapter":
        """A new adapter of the same kind with `num_envs` environments.

        Raises `ConfigError` if that is not possible.
        """
        ...

    def step_async(self, action: Action) -> None:
        """Starts a step of every environment; `action` is [N, ...]."""
        ...

    def step_wait(self) -> TimeStep:
        """Waits for the step started by `step_async` and returns its result."""
        ...


WHOLE = (0, 1)  # the share of environments that are all there are


def seeds(key: Key, num_envs: int, share: tuple[int, int] = WHOLE) -> list[int]:
    """A seed in [0, 2**32) per environment; with keys [S], block s of N environments uses key s.

    Those of a `share` (i, P) are the i-th of P parts of those of P times as many environments.

    They come from `np.random.SeedSequence` over the words of the key, so runs with different keys
    share none. (Seeds s, s + 1, … would give runs with seeds 0, 1, 2 nearly the same episodes.)
    """
    # [S, words]
    words = np.asarray(jax.random.key_data(key)).reshape(-1, jax.random.key_data(key).shape[-1])
    require(
        num_envs % len(words) == 0,
        f"{num_envs} environments cannot be split evenly over {len(words)} seeds",
        "use a multiple of the number of seeds",
    )
    each, (index, count) = num_envs // len(words), share
    drawn = [np.random.SeedSequence(row.tolist()).generate_state(each * count) for row in words]
    return [int(seed) for row in drawn for seed in row[index * each : (index + 1) * each]]


def check_state(state: HostState, resets: int) -> None:
    """Raises `EnvContractError` if `state` is from before the adapter's last reset."""
    if int(state.resets) != resets:
        raise EnvContractError(
            "this state is from before the adapter's last reset, so another run or evaluation uses"
            " the adapter too; create one adapter for each (eval_env=None creates its own)"
        )


def check_finite(obs: Obs, reward: np.ndarray) -> None:
    """Raises `EnvFailedError`, naming the environment, for NaN or infinity; leaves are [N, ...]."""
    if not np.isfinite(reward).all():
        index = int(np.flatnonzero(~np.isfinite(reward))[0])
        raise EnvFailedError(
            f"environment {index} returned the reward {reward[index]}; "
            f"look for a division by zero, or a log or root of a negative number, or {INSTEAD}"
        )
    for path, leaf in (
        jax.tree.leaves_with_path(obs) if isinstance(obs, (dict, tuple)) else (((), obs),)
    ):
        if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
            index, *where = map(int, np.argwhere(~np.isfinite(leaf))[0])
            raise EnvFailedError(
                f"environment {index} returned an"
                f" observation{jax.tree_util.keystr(path)}{where or ''} of"
                f" {leaf[(index, *where)]}; look for a division by zero, or an unstable simulation,"
                f" or {INSTEAD}"
            )


def check_allowed(obs: Obs, choices: Sequence[int]) -> None:
    """Raises `EnvFailedError`, naming the environment, if a mask [N, ...] allows no action.

    `choices` are the numbers of actions that it covers; (): there is no mask.
    """
    index = first_without_choice(mask_in(obs), choices) if choices else None
    require(
        index is None,
        f"environment {index} allows no action in a running episode",
        NO_ACTION,
        EnvFailedError,
    )
