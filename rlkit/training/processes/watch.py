"""A watch over the other processes of a run: one that dies or hangs ends this one too, and why."""

import contextlib
import ctypes
import dataclasses
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Literal

import jax

from rlkit.training.processes.channel import Channel

GRACE = 10.0  # seconds for processes that hear of an error to end by themselves
LOST = 5.0  # seconds for the main thread to end if a process was lost: there is nothing to agree on
_WIND_DOWN = 60.0  # seconds that process 0 may take to end its logs

State = Literal["runs", "failed", "ended", "gone"]  # the last: without waiting for others


@dataclasses.dataclass
class _Peer:
    """What is known of another process."""

    seen: float  # when it last gave a sign of life
    beat: int = -1
    state: State = "runs"
    text: str = ""  # its error


class Watch:
    """Tells the other processes that this one lives, and looks after them.

    A process that is silent for `timeout` seconds is lost: killed, suspended, or out of reach. Then
    `lost` says so, for the main thread to raise. If that cannot, since it waits for a result that
    will never come, the watch ends the process five seconds later, with exit code 1; ten seconds
    after another one failed.

    One thread talks to the service of process 0, and may wait for it for ever if that process
    hangs; another looks at the clock.
    """

    def __init__(self, channel: Channel, *, index: int, count: int, timeout: float):
        self._channel, self._index, self.timeout = channel, index, timeout
        self._tick = min(1.0, timeout / 8)
        now = time.monotonic()
        self._peers = {i: _Peer(seen=now) for i in range(count) if i != index}
        self._state: State = "runs"
        self._text, self._beats = "", 0
        self._said, self._written = 0, 0  # how often something was to be told, and was
        self._stopped, self._wakes = threading.Event(), threading.Event()
        self.lost: str | None = None
        """Which process was lost, and how."""
        self.is_known = False
        """Whether the main thread is ending the run."""
        self.hint: Callable[[], str] = lambda: ""
        """How to go on, as the end of a sentence."""
        self.exit_code = 1
        for target in (self._talk, self._judge):
            threading.Thread(target=target, name="rlkit-processes", daemon=True).start()
        _explain_aborts(self)

    @property
    def failed(self) -> str | None:
        """Which other process failed, and its error."""
        told = (f"process {i} failed: {peer.text}" for i, peer in self._peers.items() if peer.text)
        return next(told, None)

    @property
    def has_failed(self) -> bool:
        """Whether this process said that it failed."""
        return bool(self._text)

    def has_ended(self, index: int) -> bool:
        """Whether another process said that it will not answer again."""
        return self._peers[index].state in ("ended", "gone")

    @property
    def is_leaving(self) -> bool:
        """Whether its main thread has told what there was to tell."""
        return self._state in ("ended", "gone")

    def say(self, state: State, text: str = "") -> None:
        """Tells the others how this process is; `text` is its error.

        Waits a second at most: nobody may be there to hear it.
        """
        self._state, self._text = state, text or self._text
        self._said += 1
        said, deadline = self._said, time.monotonic() + 1.0
        while self._written < said and time.monotonic() < deadline:
            self._wakes.set()
            time.sleep(0.005)

    def settle(self) -> None:
        """After an error that all processes outlive: from now on, this one runs again."""
        self._text, self.is_known = "", False
        self.say("runs")

    def leave(self, patience: float) -> None:
        """Ends the watch when all processes have ended; the process, if they do not.

        JAX then lets them go together. One that is gone it would wait for, and then abort.
        """
        self.is_known = True
        self.say("ended")
        deadline = time.monotonic() + (GRACE + 1.0 if self.has_failed else patience)
        while not all(self.has_ended(index) for index in self._peers):
            if self.lost is not None or time.monotonic() > deadline:
                break
            self._wakes.set()
            time.sleep(0.05)
        is_left_alone = any(peer.state != "ended" for peer in self._peers.values())
        if is_left_alone:
            self.say("gone")
        self._stopped.set()
        if is_left_alone:
            if self._index == 0:
                time.sleep(0.5)  # for the others to hear it: the service ends with this process
            self._exit(self.exit_code)

    def _talk(self) -> None:
        while not self._stopped.is_set():
            self._write()
            self._read()
            self._wakes.wait(self._tick)
            self._wakes.clear()

    def _write(self) -> None:
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            said, self._beats = self._said, self._beats + 1
            beat = {"beat": self._beats, "state": self._state, "text": self._text}
            self._channel.put(f"alive/{self._index}", beat)
            self._written = said

    def _read(self) -> None:
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            for name, said in self._channel.all("alive").items():
                peer = self._peers.get(int(name))
                if peer is not None and said["beat"] != peer.beat:
                    peer.seen, peer.beat = time.monotonic(), said["beat"]
                    peer.state, peer.text = said["state"], said["text"]

    def _judge(self) -> None:
        before, since = time.monotonic(), None
        while not self._stopped.wait(self._tick / 2):
            now = time.monotonic()
            if now - before > self.timeout / 2:  # this process itself was suspended
                for peer in self._peers.values():
                    peer.seen = now
            before = now
            trouble = self._trouble(now)
            since = None if trouble is None else since or now
            grace = LOST if self.lost else GRACE
            if self.is_known and self._index == 0:  # it has logs to end
                grace = _WIND_DOWN
            if since is not None and now - since > grace:
                self._end(f"{trouble}")

    def _trouble(self, now: float) -> str | None:
        for index, peer in self._peers.items():
            if not self.has_ended(index) and now - peer.seen > self.timeout:
                self.lost = (
                    f"process {index} gave no sign of life for {self.timeout:g} s: it died, hangs"
                    " or cannot be reached"
                )
        return self.lost or self.failed

    def _end(self, why: str) -> None:
        os.write(2, f"\nrlkit: error: {why}{self.hint()}\n".encode())
        self._text = self._text or why
        self.say("gone")
        self._exit(1)

    def _exit(self, code: int) -> None:
        """Ends the process at once: JAX would wait for the others first, and then abort."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


_handlers: list[object] = []  # C holds no reference to them


def _explain_aborts(watch: Watch) -> None:
    """JAX aborts a process at once when process 0 is gone: here too, with words and an exit code.

    Python's own handlers would come too late: they run in the main thread, after the abort.
    """

    def handle(number: int) -> None:
        del number
        if watch.is_leaving and watch.has_failed:  # with an error that it told
            os._exit(watch.exit_code)
        text = "JAX ended this process, see above: most likely process 0 died or failed"
        os.write(2, f"\nrlkit: error: {text}{watch.hint()}\n".encode())
        os._exit(1)

    kind = ctypes.CFUNCTYPE(None, ctypes.c_int)
    handler = kind(handle)
    _handlers.append(handler)
    set_handler = ctypes.CDLL(None).signal
    set_handler.argtypes, set_handler.restype = [ctypes.c_int, kind], ctypes.c_void_p
    set_handler(signal.SIGABRT, handler)
