"""`AppendOnlyFile`: a file that grows, and that a resumed run cuts to what its checkpoint knows."""

import contextlib
import fcntl
import logging
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

from rlkit.errors import RunDirectoryError
from rlkit.training.directories import make_directory, write_error

# Not `warnings.warn`: under `-W error`, a failing logger would end the training.
_warn = logging.getLogger("rlkit").warning


class AppendOnlyFile:
    """What is appended survives a kill of the process, and after `flush` a loss of power.

    It is locked until it is closed, so that no other run writes to it.

    Raises `RunDirectoryError` if the file cannot be used; its message ends with `cure`.
    """

    def __init__(self, path: Path, *, cure: str):
        self.path, self._cure = path, cure
        with self._explained():
            make_directory(path.parent)
            self._descriptor = self._open()
        self._release = weakref.finalize(self, os.close, self._descriptor)

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return os.fstat(self._descriptor).st_size

    def read(self) -> bytes:
        """Its content."""
        with self._explained():
            return self.path.read_bytes()

    def append(self, data: bytes) -> None:
        """Writes `data` to its end: all of it, or nothing."""
        rest = memoryview(data)
        with self._explained():
            self._restore_if_removed()
            size = self.size
            try:
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except OSError:  # what is appended next must not go on where this broke off
                with contextlib.suppress(OSError):
                    os.ftruncate(self._descriptor, size)
                raise

    def cut(self, size: int) -> None:
        """Keeps the first `size` bytes; warns if there are fewer."""
        if self.size < size:
            _warn(
                "%s has %d bytes where the checkpoint expects %d: its early rows are missing",
                self.path,
                self.size,
                size,
            )
            return
        with self._explained():
            os.ftruncate(self._descriptor, size)

    def flush(self) -> None:
        """Returns once everything is on the disk."""
        with self._explained():
            self._restore_if_removed()
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Flushes and closes it. May be called twice."""
        if self._release.alive:
            self.flush()
            self._release()

    def _restore_if_removed(self) -> None:
        """Writes the file again if somebody removed it: what is open is still there."""
        if os.fstat(self._descriptor).st_nlink > 0:
            return
        fresh = self._open()
        if os.fstat(fresh).st_size > 0:
            os.close(fresh)
            problem = f"{self.path} was replaced by another file while the run wrote to it"
            raise RunDirectoryError(f"{problem}; move it away; {self._cure}")
        start = 0
        while chunk := os.pread(self._descriptor, 2**24, start):
            start += os.write(fresh, chunk)
        self._release()
        self._descriptor = fresh
        self._release = weakref.finalize(self, os.close, fresh)
        _warn("%s was removed while the run wrote to it; it is written again, whole", self.path)

    def _open(self) -> int:
        """The descriptor of the locked file; raises if another run has it."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            problem = f"{self.path} is being written by another run"
            raise RunDirectoryError(f"{problem}; wait for it to end; {self._cure}") from None
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise write_error(error)(
                f"cannot write records to {self.path}: {error.strerror or error}; free disk space"
                f" or make it writable; {self._cure}"
            ) from error
