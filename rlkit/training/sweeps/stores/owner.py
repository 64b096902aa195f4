"""`owned`: which process a part of a sweep at an address belongs to. No JAX.

Object stores have no locks, so an owner writes its name into an object, and a new number every
`BEAT` seconds. One that is silent for `SILENCE` seconds is dead, or cut off: another process may
take over. No clocks are compared. If two begin at the same time, both look again a little later:
the one whose name stands there has it, the other one gives up.
"""

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rlkit.errors import RlkitError, RunDirectoryError
from rlkit.validation import PlainData

if TYPE_CHECKING:
    from rlkit.training.sweeps.stores.address_store import AddressStore

BEAT = 10.0  # seconds between two signs of life
SILENCE = 60.0  # seconds without one, after which an owner is dead
SETTLE = 1.0  # seconds in which a process that began at the same time has written its name
POLL = 1.0  # seconds between two looks at somebody else's name
_tokens: set[str] = set()  # of this process, as long as it owns something


class TakenOverError(RunDirectoryError):
    """Another process owns what was this one's."""


class Owner:
    """That a part of a sweep is this process's, as its object says."""

    def __init__(self, store: "AddressStore", name: str, what: str):
        self._store, self._name, self._what = store, name, what
        self._token = secrets.token_hex(8)
        self._about = {"token": self._token, **_this_process()}
        self._beats = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True, name="rlkit-owner")

    def begin(self) -> bool:
        """Writes the name; whether it still stands there a little later."""
        begun = time.monotonic()
        _tokens.add(self._token)
        self._beat()
        time.sleep(max(SETTLE, 2 * (time.monotonic() - begun)))  # others may be as slow
        if not self._is_ours():
            return False
        self._thread.start()
        return True

    def require_ours(self) -> None:
        """See `Hold`."""
        other = self._other()
        if other is not None:
            raise TakenOverError(
                f"{self._what} was taken over by {_named(other)}; leave it to that one, or end that"
                " one first"
            )

    def end(self) -> None:
        """Removes the name, if it still stands there."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        _tokens.discard(self._token)
        with contextlib.suppress(RlkitError):  # then it is silent from now on
            if self._is_ours():
                self._store.remove(self._name)

    def _read(self) -> PlainData | None:
        return _parsed(self._store.read(self._name))

    def _other(self) -> PlainData | None:
        """Another process whose name stands there; None if there is none."""
        found = self._read()
        return None if found is None or found["token"] == self._token else found

    def _is_ours(self) -> bool:
        found = self._read()
        return found is not None and found["token"] == self._token

    def _beat(self) -> None:
        self._beats += 1
        about = self._about | {"beats": self._beats}
        self._store.write(self._name, json.dumps(about) + "\n")

    def _live(self) -> None:
        """Gives signs of life until the end, or until somebody else is there."""
        while not self._ended.wait(BEAT):
            with contextlib.suppress(RlkitError):  # the network is away: tried again
                if self._other() is not None:
                    return
                if not self._ended.is_set():
                    self._beat()


@contextlib.contextmanager
def owned(store: "AddressStore", name: str, what: str, patience: float) -> Iterator[Owner]:
    """Makes a part of the sweep this process's, as `SweepStore.hold` says."""
    deadline = time.monotonic() + patience
    while True:
        _wait_for_end(store, name, what, deadline)
        owner = Owner(store, name, what)
        try:
            if owner.begin():
                yield owner
                return
        finally:
            owner.end()


def _wait_for_end(store: "AddressStore", name: str, what: str, deadline: float) -> None:
    """Returns once nobody alive owns a part; raises `RunDirectoryError` after the deadline."""
    text = before = store.read(name)
    since = time.monotonic()
    while (found := _parsed(text)) is not None:
        alive = _is_alive(found)
        if alive is False or time.monotonic() - since > SILENCE:
            return
        if alive is None and text != before:
            alive = True
        if alive and time.monotonic() > deadline:
            raise RunDirectoryError(
                f"{what} is in use by {_named(found)}; wait for it to end, or choose another place"
            )
        if text != before:
            before, since = text, time.monotonic()
        time.sleep(POLL)
        text = store.read(name)


def _is_alive(found: PlainData) -> bool | None:
    """Whether an owner lives, as far as this machine can tell; None: it cannot."""
    here = _this_process()
    if found["machine"] != here["machine"] or None in (found["machine"], found["started"]):
        return None
    if found["pid"] == os.getpid() and found["token"] not in _tokens:
        return False  # a name that could not be removed
    return _started(found["pid"]) == found["started"]


def _parsed(text: str | None) -> PlainData | None:
    """An owner; None if there is none, or nothing that one has written."""
    try:
        found = json.loads(text or "")
        return found if {"token", "machine", "pid", "started"} <= found.keys() else None
    except (ValueError, AttributeError):
        return None


def _named(found: PlainData) -> str:
    if found["pid"] == os.getpid() and found["machine"] == _this_process()["machine"]:
        return f"this process (pid {found['pid']})"
    return f"another process (pid {found['pid']} on {found['host']})"


def _this_process() -> PlainData:
    return {
        "host": socket.gethostname(),
        "machine": _machine(),
        "pid": os.getpid(),
        "started": _started(os.getpid()),
    }


def _machine() -> str | None:
    """What no other machine has, since it was started, and no other container; None: unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """When a process of this machine was started; None: there is none, or this is unknown."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            after_name = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if after_name[0] == "Z" else after_name[19]
