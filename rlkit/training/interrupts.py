"""Ctrl-C at a point where nothing is half done."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


class _Deferring:
    """The handler of SIGINT within `deferred_interrupts`."""

    def __init__(self) -> None:
        self.has_received = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.has_received:
            signal.default_int_handler(number, frame)
        self.has_received = True


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
    deferring = _Deferring()
    signal.signal(signal.SIGINT, deferring)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if deferring.has_received:
        raise KeyboardInterrupt


@contextlib.contextmanager
def stopping_interrupts(stop: Callable[[], None]) -> Iterator[None]:
    """Lets a Ctrl-C in the block call `stop`, and raise `KeyboardInterrupt` at its end; a second
    one at once. Where `deferred_interrupts` would defer it.

    For several processes, which must stop at the same point.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if received:
            signal.default_int_handler(number, frame)
        received.append(number)
        stop()

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if received:
        raise KeyboardInterrupt


@contextlib.contextmanager
def allowed_interrupts() -> Iterator[None]:
    """Within `deferred_interrupts`: lets a Ctrl-C in this block raise at once, and one before it
    at its beginning.
    """
    is_main = threading.current_thread() is threading.main_thread()
    deferring = signal.getsignal(signal.SIGINT) if is_main else None
    if not isinstance(deferring, _Deferring):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if deferring.has_received:
            deferring.has_received = False
            raise KeyboardInterrupt
        yield
    finally:
        signal.signal(signal.SIGINT, deferring)
