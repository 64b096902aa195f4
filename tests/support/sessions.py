"""Commands in sessions of their own, so that no process of theirs stays behind unnoticed."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

RLKIT = [sys.executable, "-m", "rlkit.cli.main"]


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    err: str
    at: float  # `time.time()`
    orphans: list[str]  # processes of its session that outlived it


class Session:
    """A running command, the leader of its session. Its output is in a file, because a pipe stays
    open as long as any orphan holds it.
    """

    def __init__(self, process: subprocess.Popen[bytes], log: Path):
        self.process, self.log, self.started = process, log, time.time()

    def wait(self, seconds: float, *, patience: float = 3.0) -> Ended:
        """Waits for the command, and `patience` seconds for the rest of its session.

        Raises `TimeoutError` if the command runs for longer than `seconds`.
        """
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            said = self.log.read_text()[-2000:]
            raise TimeoutError(f"still running after {seconds:g} s: {said}") from None
        at = time.time()
        return Ended(code, self.log.read_text(), at, orphans(self.process.pid, patience))


@contextmanager
def session(
    command: Sequence[object], *, cwd: Path, log: Path, **variables: object
) -> Iterator[Session]:
    """Runs a command in `cwd`, its standard error in `log`; leaving the block kills what is left.

    `variables` are set in its environment; None unsets one.
    """
    environment = {k: v for k, v in os.environ.items() if k not in variables}
    environment |= {k: str(v) for k, v in variables.items() if v is not None}
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
    try:
        yield Session(process, log)
    finally:
        for left in members(process.pid):
            left.send_signal(signal.SIGKILL)
        process.kill()
        process.wait()


def orphans(session: int, patience: float = 3.0) -> list[str]:
    """The processes of a session that remain after `patience` seconds."""
    deadline = time.monotonic() + patience
    while (left := members(session)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [str(process) for process in left]


def members(session: int) -> list[psutil.Process]:
    """The processes of a session, without zombies."""
    return [process for process in psutil.process_iter(["status"]) if _belongs(process, session)]


def _belongs(process: psutil.Process, session: int) -> bool:
    try:
        return process.info["status"] != psutil.STATUS_ZOMBIE and os.getsid(process.pid) == session
    except ProcessLookupError:
        return False
