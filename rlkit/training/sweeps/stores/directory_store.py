"""`DirectoryStore`: the files of a sweep in a directory. No JAX."""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rlkit.errors import RunDirectoryError
from rlkit.training.directories import (
    absolute_path,
    make_directory,
    write_atomically,
    write_error,
)
from rlkit.training.files.run_directory import take_lock
from rlkit.training.sweeps.stores.store import Hold, Workplace

if TYPE_CHECKING:
    from rlkit.training.callbacks import Callback

POLL = 0.5  # seconds between two looks at a lock that another process holds


class DirectoryStore:
    """The files of a sweep in a directory, which several machines may share; see `SweepStore`."""

    def __init__(self, path: str | os.PathLike[str]):
        self.place = absolute_path(path)
        self.name = self.place.name
        self.is_shared = True

    def has(self, name: str) -> bool:
        path = self.place / name
        with _explained("read", path):
            return path.is_file()

    def names(self, folder: str = "") -> list[str]:
        found = self.place / folder
        with _explained("read", found):
            return sorted(os.listdir(found)) if found.is_dir() else []

    def read(self, name: str) -> str | None:
        path = self.place / name
        with _explained("read", path), suppress(FileNotFoundError):
            return path.read_text(encoding="utf-8")
        return None

    def read_from(self, name: str, start: int) -> bytes:
        path = self.place / name
        with _explained("read", path), suppress(FileNotFoundError), path.open("rb") as file:
            file.seek(start)
            return file.read()
        return b""

    def write(self, name: str, text: str) -> None:
        path = self.place / name
        with _explained("write", path):
            make_directory(path.parent)
        write_atomically(path, text)

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        yield self.place / name

    def remove(self, name: str) -> None:
        path = self.place / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
            return
        with _explained("remove", path):
            path.unlink(missing_ok=True)

    @contextmanager
    def hold(self, part: str, what: str, patience: float = 0.0) -> Iterator[Hold]:
        path, deadline = self.place / f"{part}.lock", time.monotonic() + patience
        with _explained("write", path):
            make_directory(path.parent)
        while True:
            try:
                with _explained("write", path):
                    descriptor = take_lock(path, what)
                break
            except RunDirectoryError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL)
        try:
            yield _Lock()
        finally:
            os.close(descriptor)

    @contextmanager
    def workplace(self, part: str, hold: Hold, say: Callable[[str], None]) -> Iterator[Workplace]:
        yield _InPlace(self.place)


@contextmanager
def _explained(what: str, path: Path) -> Iterator[None]:
    """Turns what the system says into `RunDirectoryError`, or `DiskError`."""
    try:
        yield
    except OSError as error:
        raise write_error(error)(
            f"cannot {what} {path}: {error.strerror or error}; check its permissions and the disk,"
            " or choose another directory"
        ) from None


class _Lock:
    """The kernel holds it: nobody takes it over while this process lives."""

    def require_ours(self) -> None:
        pass


class _InPlace:
    """Training in the sweep's own directory, where all that is written is kept."""

    def __init__(self, path: Path):
        self._path = path

    def directory(self, name: str) -> Path:
        return self._path / name

    def fresh(self, name: str) -> Path:
        shutil.rmtree(self._path / name, ignore_errors=True)
        return self._path / name

    def callbacks(self, name: str) -> "Sequence[Callback]":
        return ()

    def keep(self, name: str) -> None:
        pass

    def publish(self, name: str) -> None:
        pass
