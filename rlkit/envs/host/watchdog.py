"""A watch over environments in this process: what hangs is shown, and stopped if Python can."""

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

from rlkit.errors import EnvFailedError

EXIT_HANGS = 70  # exit code of a command whose environment hangs where nothing can stop it
GRACE = 5.0  # seconds that the exception has to end the environment
_SIGNAL = signal.SIGURG  # one that ends nothing if nobody handles it
_ends_process = False
_hanging: list[tuple["Pulse", tuple[int, str]]] = []


class Pulse:
    """What the environments of this process are doing: written by guards, read by the watchdog."""

    __slots__ = ("beats", "index", "phase", "thread")

    def __init__(self) -> None:
        self.beats = 0  # incremented with each call into an environment
        self.index = 0  # the environment that was called last
        self.phase = ""  # "" where nothing is watched
        self.thread = 0  # the thread that calls them

    @property
    def now(self) -> tuple[int, str]:
        """What stays equal as long as a call takes."""
        return self.beats, self.phase


class EnvHangs(BaseException):
    """Raised amid an environment's code, which may catch an `Exception`."""


def end_hanging_process() -> None:
    """From now on, an environment that nothing can interrupt ends this process, with code 70.

    The `rlkit` command does this. In a process of yours, such as a notebook, it is only reported.
    """
    global _ends_process
    _ends_process = True


class Watchdog:
    """A thread that stops environments of this process which hang in reset, step or close.

    It wakes up now and then and checks whether `pulse` changed, so the hot path needs no clock.
    After `timeout` seconds (None: never) it prints the stacks and raises `EnvHangs` in the
    environment. What holds the GIL keeps it from acting, and a library that waits in C without
    Python is not interrupted: see `end_hanging_process`. It does not act under a debugger.
    """

    def __init__(self, pulse: Pulse, timeout: float | None):
        self._pulse, self._timeout = pulse, timeout
        self._stopped = threading.Event()
        if timeout is None:
            self._thread = None
            return
        _handle_signal()
        arguments = (pulse, timeout, self._stopped)
        self._thread = threading.Thread(
            target=_watch, args=arguments, name="rlkit-watchdog", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(1.0)

    @contextlib.contextmanager
    def watching(self, phase: str) -> Iterator[None]:
        """Watches the block; raises `EnvFailedError` for an environment that hangs in it."""
        pulse = self._pulse
        pulse.thread, pulse.phase = threading.get_ident(), phase
        try:
            yield
        except EnvHangs:
            raise hangs([pulse.index], phase, self._timeout) from None
        finally:
            pulse.phase = ""


def hangs(indices: list[int], phase: str, timeout: float | None) -> EnvFailedError:
    """The user's error for environments that hang, whose stacks were printed."""
    plural = "s" if len(indices) > 1 else ""
    return EnvFailedError(
        f"environment{plural} {', '.join(map(str, indices))} did not answer within"
        f" {timeout:g} s ({phase}); see the stack printed above, or pass a longer"
        " step_timeout (None: no limit)"
    )


def _watch(pulse: Pulse, timeout: float, stopped: threading.Event) -> None:
    tick = min(1.0, timeout / 4)
    seen, still, before = (-1, ""), 0.0, time.monotonic()
    while not stopped.wait(tick):
        now, is_watched = pulse.now, bool(pulse.phase)
        # A tick that took far too long means that the whole process was suspended.
        waited = min(time.monotonic() - before, 2 * tick)
        was, still = still, still + waited if is_watched and now == seen else 0.0
        seen, before = now, time.monotonic()
        if still < timeout or _debugger_attached():
            continue
        if was < timeout:
            faulthandler.dump_traceback(file=2, all_threads=True)
            _interrupt(pulse, seen)
        elif was < timeout + GRACE <= still:
            _give_up(pulse, still)


def _give_up(pulse: Pulse, seconds: float) -> None:
    what = (
        f"rlkit: environment {pulse.index} has not returned from {pulse.phase} for {seconds:.3g} s,"
        " and Python cannot interrupt it"
    )
    end = "so this process ends" if _ends_process else "so only ending this process would help"
    limit = "its stacks are printed above (step_timeout sets the limit; None disables it)"
    os.write(2, f"{what}, {end}; {limit}\n".encode())
    if _ends_process:
        os._exit(EXIT_HANGS)


def _interrupt(pulse: Pulse, seen: tuple[int, str]) -> None:
    """Raises `EnvHangs` in the thread that steps the environments.

    In the main thread a signal does, which interrupts waiting as well; in others, an exception that
    Python raises before the next instruction.
    """
    is_main = pulse.thread == threading.main_thread().ident
    if is_main and signal.getsignal(_SIGNAL) is _raise_if_hanging:
        _hanging.append((pulse, seen))
        signal.pthread_kill(pulse.thread, _SIGNAL)
        return
    thread, error = ctypes.c_ulong(pulse.thread), ctypes.py_object(EnvHangs)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, error)


def _handle_signal() -> None:
    """Handles the signal from now on, unless somebody else does; without need it does nothing."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(_SIGNAL) in (signal.SIG_DFL, signal.SIG_IGN):
        signal.signal(_SIGNAL, _raise_if_hanging)


def _raise_if_hanging(number: int, frame: FrameType | None) -> None:
    del number, frame
    still = [pulse for pulse, seen in _hanging if pulse.now == seen]
    _hanging.clear()
    if still:
        raise EnvHangs


def _debugger_attached() -> bool:
    """Whether a debugger is attached to any thread: it sets a trace function on the frames."""
    monitoring = getattr(sys, "monitoring", None)  # Python >= 3.12
    if monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None:
        return True
    for frame in sys._current_frames().values():
        while frame is not None:
            if frame.f_trace is not None:
                return True
            frame = frame.f_back
    return False
