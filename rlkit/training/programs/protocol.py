"""What the Trainer calls, for any environment."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from rlkit.envs.base import EnvAdapter
from rlkit.types import Counters, Key, Metrics, PyTree

Results = tuple[Metrics, Counters | None]  # of iterations; None: the module counts nothing
NEW_PHASE = 0x9A5E  # folded into the key of a state, for the new episodes of its next phase


class Program(Protocol):
    """The functions of a run; with several seeds, states have a leading axis S.

    States passed to `refill`, `outer` and `single` are donated: use the returned ones.
    """

    unfinished: tuple[PyTree, int] | None
    """After an error in `outer` or `single`: (state, iterations) after the last finished update.

    None if that state is lost.
    """

    warm_up_metrics: Metrics
    """What `count_unsound` found in the last `init` or `refill`.

    On the host only how often environments were reset for it: other things raise at once there.
    """

    on_warm_up: Callable[[int], None]
    """Called with the rollouts so far while `init` or `refill` warms up on the host."""

    def init(self, key: Key, /) -> PyTree:
        """The state before training."""
        ...

    def state_shape(self, key: Key, /) -> PyTree:
        """The shapes and dtypes of a state."""
        ...

    def environments(self, ts: PyTree, /) -> np.ndarray | None:
        """The environments on the host of the state `ts` as bytes, [B] uint8.

        None if the state itself holds the environments. Raises `EnvStateError` if they cannot be
        saved, or are no longer at this state.
        """
        ...

    def resume(self, ts: PyTree, environments: np.ndarray, /) -> PyTree:
        """A restored state, ready to continue from, with these environments.

        Raises `EnvStateError` if they do not fit.
        """
        ...

    def restart(self, ts: PyTree, /) -> PyTree:
        """A restored state, ready to continue from, with new episodes on the host."""
        ...

    def enter(self, ts: PyTree, /) -> PyTree:
        """A state trained in other environments, with new episodes in those of this program.

        Donates the state. See `Algorithm.enter`.
        """
        ...

    def adopt(self, other: "Program", /) -> None:
        """Goes on in the environments of another program, in the middle of their episodes."""
        ...

    def use(self, env: EnvAdapter, /) -> None:
        """Trains in `env` from now on, which has the same spaces and number.

        A jittable one is the module's own.
        """
        ...

    def refill(self, ts: PyTree, /) -> PyTree:
        """A state restored without its replay memory, with a new one filled by its policy."""
        ...

    def outer(self, ts: PyTree, /) -> tuple[PyTree, Results]:
        """(state, (metrics, counters)) after an outer iteration."""
        ...

    def single(self, ts: PyTree, /) -> tuple[PyTree, Results]:
        """The same after one iteration."""
        ...

    def copy(self, ts: PyTree, /) -> PyTree:
        """A copy of the state in new buffers."""
        ...

    def whole(self, ts: PyTree, /) -> PyTree:
        """The state with all that each of several processes has of it as parts of whole arrays."""
        ...

    def close(self) -> None:
        """Frees the host environments that the program made."""
        ...
