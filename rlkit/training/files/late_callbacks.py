"""Event loops for Orbax that put up with what comes after they were closed."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any


class _TolerantLoop(asyncio.SelectorEventLoop):
    """Drops what other threads ask for once it is closed, instead of raising in them.

    Logs no errors of tasks that nobody waits for: the first one was raised.
    """

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        pass

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        try:
            return super().call_soon_threadsafe(callback, *args, context=context)
        except RuntimeError:
            if not self.is_closed():
                raise
            return None


_ONE_AT_A_TIME = threading.RLock()


@contextlib.contextmanager
def late_callbacks_dropped() -> Iterator[None]:
    """New event loops in here drop what comes too late.

    If one array of a damaged checkpoint cannot be read, Orbax closes its loop while TensorStore
    still reads the others. A traceback would be printed for each.
    """
    with _ONE_AT_A_TIME:
        make = asyncio.new_event_loop
        asyncio.new_event_loop = _TolerantLoop
        try:
            yield
        finally:
            asyncio.new_event_loop = make
