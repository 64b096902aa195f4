"""What the Trainer calls, whatever the environment."""

from typing import Any, Protocol

from rlkit.types import Key, PyTree


class Program(Protocol):
    """The functions of a run; states have a leading axis S where there are several seeds.

    States passed to `refill`, `outer` and `single` are taken over: use what they return.
    """

    unfinished: tuple[PyTree, int] | None
    """After `outer` or `single` raised: (state, iterations) after the last update that was
    finished, None where that state is lost.
    """

    def init(self, key: Key, /) -> PyTree:
        """The state before training."""
        ...

    def state_shape(self, key: Key, /) -> PyTree:
        """The shapes and dtypes of a state."""
        ...

    def restart(self, ts: PyTree, /) -> PyTree:
        """A restored state, ready to continue from."""
        ...

    def refill(self, ts: PyTree, /) -> PyTree:
        """A state that was restored without its replay memory, ready to continue from: its policy
        has filled a new one.
        """
        ...

    def outer(self, ts: PyTree, /) -> tuple[PyTree, Any]:
        """(state, (metrics, counters)) after an outer iteration."""
        ...

    def single(self, ts: PyTree, /) -> tuple[PyTree, Any]:
        """The same after one iteration."""
        ...

    def copy(self, ts: PyTree, /) -> PyTree:
        """The state in buffers of its own."""
        ...

    def close(self) -> None:
        """Frees what the program made: environments on the host."""
        ...
