"""`run_command`: runs `rlkit` in a process of its own, and keeps what it says. No JAX."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from rlkit.errors import RlkitError
from rlkit.training.directories import make_directory
from rlkit.training.sweeps.stores.store import SweepStore, open_store

POLL = 0.5  # seconds between two looks at the process
EVERY = 3.0  # seconds between two copies of what it said to an address


def run_command(
    arguments: Sequence[str], directory: str, place: str, log: str, variables: Mapping[str, str]
) -> int:
    """Runs `rlkit` with these arguments; returns its exit code.

    It runs in `directory` if this machine has that, with `variables` in its environment, and what
    it says is added to the file `log` of the sweep at `place`. An interrupt is passed on to it as
    SIGTERM. It gets a pipe as its input that ends with this process.
    """
    with (
        _opened(open_store(place), log) as said,
        subprocess.Popen(
            [sys.executable, "-m", "rlkit.cli.main", *arguments],
            cwd=directory if os.path.isdir(directory) else None,
            env=os.environ | variables,
            stdin=subprocess.PIPE,  # whose end tells it that this process has ended
            stdout=said.file,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        while True:
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(POLL)
                said.copy()
            except KeyboardInterrupt:  # the task is cancelled
                process.terminate()


class _Said:
    """The file that a process writes to, where that is a file."""

    def __init__(self, file: BinaryIO):
        self.file = file

    def copy(self) -> None:
        """Nothing: everybody can read it."""


class _CopiedSaid(_Said):
    """A file on this machine, whose text is copied to the store while it grows."""

    def __init__(self, file: BinaryIO, store: SweepStore, name: str):
        super().__init__(file)
        self._store, self._name = store, name
        self._copied, self._due = os.fstat(file.fileno()).st_size, 0.0

    def copy(self, *, at_once: bool = False) -> None:
        """Copies it, unless it has not grown or was copied a moment ago."""
        size = os.fstat(self.file.fileno()).st_size
        if size == self._copied or (time.monotonic() < self._due and not at_once):
            return
        text = Path(self.file.name).read_text(encoding="utf-8", errors="replace")
        with contextlib.suppress(RlkitError):  # the next time; training has nothing to do with it
            self._store.write(self._name, text)
            self._copied = size
        self._due = time.monotonic() + EVERY


@contextlib.contextmanager
def _opened(store: SweepStore, name: str) -> Iterator[_Said]:
    if isinstance(store.place, Path):
        path = store.place / name
        make_directory(path.parent)
        with path.open("ab") as file:
            yield _Said(file)
        return
    folder = tempfile.TemporaryDirectory(prefix="rlkit-log-")
    with folder, open(os.path.join(folder.name, "log"), "w+b") as file:
        file.write((store.read(name) or "").encode())
        file.flush()
        said = _CopiedSaid(file, store, name)
        try:
            yield said
        finally:
            said.copy(at_once=True)
