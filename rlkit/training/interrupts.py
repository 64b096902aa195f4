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


class _Stopping:
    """The handler of SIGINT within `stopping_interrupts`, which nothing in the block allows."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._first, self._stop = _Deferring(), stop

    @property
    def has_received(self) -> bool:
        return self._first.has_received

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._first(number, frame)
        self._stop()


def deferred_interrupts() -> contextlib.AbstractContextManager[None]:
    """Lets a Ctrl-C in the block raise `KeyboardInterrupt` at its end; a second one at once.

    Only where Python's own handler would raise it in the middle: in the main thread, and if nobody
    has set another handler.
    """
    return _handled_by(_Deferring())


def stopping_interrupts(stop: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
    """As `deferred_interrupts`, and the first Ctrl-C calls `stop`.

    For several processes, which must stop at the same point.
    """
    return _handled_by(_Stopping(stop))


@contextlib.contextmanager
def _handled_by(handler: _Deferring | _Stopping) -> Iterator[None]:
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if handler.has_received:
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
