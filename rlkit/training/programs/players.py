"""Whole episodes of a policy, in any environment."""

from typing import Protocol

from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.core.evaluator import Evaluator
from rlkit.training.programs.host_player import HostPlayer
from rlkit.training.programs.jittable_player import DevicePlayer
from rlkit.types import Key, Measurements, PolicyState, PyTree


class Player(Protocol):
    """Plays episodes in the environment of an `Evaluator`.

    With several seeds, policies and results have a leading axis S.
    """

    def evaluate(self, policy: PolicyState, /) -> Measurements:
        """What the `Evaluator` returns: arrays [E] over episodes."""
        ...

    def record(
        self, policy: PolicyState, key: Key, num_episodes: int, /, *, deterministic: bool
    ) -> dict[str, PyTree]:
        """Every step of `num_episodes` episodes; the key is consumed.

        Returns obs, action, reward, terminated, truncated [E, L, ...], zeros after the end of an
        episode, and length [E]. L is the length of the longest episode.
        """
        ...

    def close(self) -> None:
        """Frees the environments that this player made."""
        ...


def make_player(evaluator: Evaluator, compiler: Compiler) -> Player:
    """The player for the environment of `evaluator`."""
    kind = DevicePlayer if evaluator.env.is_jittable else HostPlayer
    return kind(evaluator, compiler)
