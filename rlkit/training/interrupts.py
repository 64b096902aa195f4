"""Ctrl-C at a point where nothing is half done."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Lets a Ctrl-C in the block raise `KeyboardInterrupt` at its end; a second one at once.

    Only where Python's own handler would raise it in the middle: in the main thread, and if nobody
    has set another handler.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    received = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal received
        if received:
            signal.default_int_handler(number, frame)
        received = True

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if received:
        raise KeyboardInterrupt
