"""`scratch`: a directory of this machine in which a process trains what belongs to an address."""

import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rlkit.errors import RlkitError, RunDirectoryError, require
from rlkit.training.callbacks import Callback
from rlkit.training.directories import private_directory
from rlkit.training.files.run_directory import take_lock
from rlkit.training.logs.loaded_run import LOCK, SUMMARY
from rlkit.training.sweeps.stores.snapshot import files_of, newest_step, unpack
from rlkit.training.sweeps.stores.store import ID, Hold
from rlkit.training.sweeps.stores.uploads import Uploads, tar_name, tars

if TYPE_CHECKING:
    from rlkit.training.sweeps.stores.address_store import AddressStore


@contextmanager
def scratch(
    store: "AddressStore", part: str, hold: Hold, say: Callable[[str], None]
) -> Iterator["Scratch"]:
    """Where the process that holds a part of a sweep trains it, in the user's TMPDIR.

    At the end all is at the address, also after an error, and nothing here. What could not be
    copied stays here, and is found by the next process of this machine that trains the part.
    """
    path = _place(store, part)
    lock = take_lock(path / LOCK, str(path))
    work = Scratch(store, path, hold, say)
    try:
        try:
            yield work
        except Exception as error:
            try:
                work.close()
            except RlkitError as failure:
                if not isinstance(error, RlkitError):  # it was asked to stop, and to save
                    raise failure from None
                say(str(failure))
            raise
        work.close()
    finally:
        os.close(lock)


class Scratch:
    """The run directories of a process, as copies of what is kept at an address; a `Workplace`.

    Until a run is finished, its directory is kept as one object, a tar, after every checkpoint:
    an object is there as a whole or not at all. A finished one is kept file by file, its summary
    last.
    """

    def __init__(self, store: "AddressStore", path: Path, hold: Hold, say: Callable[[str], None]):
        self._store, self._path, self._hold, self._say = store, path, hold, say
        self._known: set[str] = set()  # names whose directories are up to date
        self._uploads: dict[str, Uploads] = {}

    def directory(self, name: str) -> Path:
        path = self._path / name
        if name not in self._known:
            self._fetch(name, path)
            self._known.add(name)
        return path

    def fresh(self, name: str) -> Path:
        path = self._path / name
        shutil.rmtree(path, ignore_errors=True)
        self._known.add(name)
        return path

    def callbacks(self, name: str) -> Sequence[Callback]:
        return [_Upload(self._uploads_of(name))]

    def keep(self, name: str) -> None:
        self._uploads_of(name).settle()

    def publish(self, name: str) -> None:
        if name in self._uploads:
            self._uploads.pop(name).stop()
        self._hold.require_ours()
        path, there = self._path / name, self._store.files_in(name)
        files = [file for file in files_of(path) if file != SUMMARY]
        if SUMMARY in there:  # of a run that went on
            self._store.remove(f"{name}/{SUMMARY}")
        self._store.put_all(path, files, name)
        for file in set(there) - {*files, SUMMARY}:
            self._store.remove(f"{name}/{file}")
        if (path / SUMMARY).exists():
            self._store.put(path / SUMMARY, f"{name}/{SUMMARY}")
        for step in tars(self._store, name):
            self._store.remove(tar_name(name, step))

    def close(self) -> None:
        """Keeps what is not yet kept, and removes all from this machine.

        Raises `RunDirectoryError` if it cannot, and then removes nothing.
        """
        try:
            for uploads in self._uploads.values():
                uploads.settle()
        except RunDirectoryError as error:
            raise type(error)(
                f"{error}; what was trained is in {self._path}, where the same command finds it on"
                " this machine"
            ) from None
        shutil.rmtree(self._path, ignore_errors=True)
        with suppress(OSError):  # another part of the sweep is there
            self._path.parent.rmdir()

    def _uploads_of(self, name: str) -> Uploads:
        if name not in self._uploads:
            path = self.directory(name)
            self._uploads[name] = Uploads(self._store, path, name, self._hold, self._say)
        return self._uploads[name]

    def _fetch(self, name: str, path: Path) -> None:
        """Makes a directory what was kept of it, unless this machine has later checkpoints."""
        kept = max(tars(self._store, name), default=-1)
        plain = self._plain_step(name)
        own = newest_step(path)
        if path.is_dir() and own >= max(kept, plain):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".tmp-", dir=path.parent) as folder:
            new = Path(folder) / path.name
            if kept >= plain and kept >= 0:
                tar = Path(folder) / "kept.tar"
                require(
                    self._store.get(tar_name(name, kept), tar),
                    f"{self._store.place}/{tar_name(name, kept)} is gone",
                    "see which other process trains there, and start this one again",
                    RunDirectoryError,
                )
                unpack(tar, new)
            elif plain >= 0:
                self._store.get_all(name, new, self._store.files_in(name))
            shutil.rmtree(path, ignore_errors=True)
            if new.is_dir():
                new.rename(path)

    def _plain_step(self, name: str) -> int:
        """The newest checkpoint of a finished run; -1 without one."""
        if not self._store.has(f"{name}/{SUMMARY}"):
            return -1
        names = self._store.names(f"{name}/checkpoints")
        return max((int(x) for x in names if x.isdecimal()), default=0)


class _Upload(Callback):
    """Has every checkpoint copied while training goes on."""

    def __init__(self, uploads: Uploads):
        self._uploads = uploads

    def on_checkpoint(self, trainer: object, iteration: int) -> None:
        self._uploads.request(iteration)


def _place(store: "AddressStore", part: str) -> Path:
    """The directory of a part of a sweep, which is made."""
    own = os.path.join(tempfile.gettempdir(), f"rlkit-{os.getuid()}")
    if (problem := private_directory(own)) is not None:
        raise RunDirectoryError(f"{problem}; set TMPDIR to a directory of your own")
    # another sweep at the same address does not find what this one left
    if (about := store.read(part + ID)) is None:
        about = secrets.token_hex(8)
        store.write(part + ID, about)
    name = hashlib.sha256(f"{store.place} {about}".encode()).hexdigest()[:16]
    path = Path(own) / "sweeps" / name / part.rpartition("/")[2]
    path.mkdir(parents=True, exist_ok=True)
    return path
