"""Whole episodes of a policy, whatever the environment."""

from typing import Any, Protocol

from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.core.evaluator import Evaluator
from rlkit.training.programs.host_player import HostPlayer
from rlkit.training.programs.jittable_player import DevicePlayer
from rlkit.types import Key, PolicyState


class Player(Protocol):
    """Plays episodes in the environment of an `Evaluator`. With several seeds, policies and results
    have a leading axis S.
    """

    def evaluate(self, policy: PolicyState, /) -> dict[str, Any]:
        """What the `Evaluator` returns, arrays [E] of its episodes."""
        ...

    def record(
        self, policy: PolicyState, key: Key, num_episodes: int, /, *, deterministic: bool
    ) -> dict[str, Any]:
        """Every step of `num_episodes` episodes: obs, action, reward, terminated, truncated [E, L,
        ...], zeros where an episode is over, and length [E]. L is the longest one's length; the key
        is consumed.
        """
        ...

    def close(self) -> None:
        """Frees the environments that this player made."""
        ...


def make_player(evaluator: Evaluator, compiler: Compiler) -> Player:
    """The player for the environment of `evaluator`."""
    kind = DevicePlayer if evaluator.env.is_jittable else HostPlayer
    return kind(evaluator, compiler)
