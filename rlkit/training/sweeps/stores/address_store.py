"""`AddressStore`: the files of a sweep in an object store, by fsspec. No JAX."""

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from rlkit.errors import ConfigError, DiskError, RunDirectoryError, require
from rlkit.training.directories import make_directory
from rlkit.training.sweeps.stores.owner import owned
from rlkit.training.sweeps.stores.snapshot import is_below, unpack_all
from rlkit.training.sweeps.stores.store import ID, Hold, Workplace

T = TypeVar("T")
TRIES = 6
FIRST_WAIT = 0.5  # seconds before the second try; each other one waits twice as long
AT_ONCE = 8  # files that are copied at the same time
PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
}
DISKS = ("file", "local")  # where a file is whole from the beginning only if it is renamed
# Where others see half a file while it is written, or nothing can be written.
UNFIT = ("sftp", "ssh", "ftp", "smb", "hdfs", "webhdfs", "arrow_hdfs", "dbfs", "http", "https")
UNFIT += ("zip", "tar", "libarchive", "data", "dir", "reference", "generic", "github", "git")
UNFIT += ("jupyter", "jlab", "")
_FINAL = (
    PermissionError,
    FileNotFoundError,
    NotADirectoryError,
    IsADirectoryError,
    FileExistsError,
)
_NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError")


class AddressStore:
    """The files of a sweep as the objects of a store such as S3; see `SweepStore`.

    An object appears as a whole, with a single request, or not at all, which is all that is asked
    of a store. Requests that fail are tried again for fifteen seconds. Whoever holds a part of the
    sweep says so in an object, see `owned`.
    """

    def __init__(self, address: str):
        self.place = address.rstrip("/")
        self.name = self.place.rpartition("/")[2]
        self._protocol = address.partition("://")[0]
        self.is_shared = self._protocol != "memory"
        require(
            bool(self.name) and self.name != self._protocol + ":",
            f"{address} names no folder",
            f"add a name: {self._protocol}://bucket/my-sweep",
        )
        self._files, self._root = _filesystem(self.place, self._protocol)

    def has(self, name: str) -> bool:
        return self._found(name, lambda path: self._files.info(path)) is not None

    def names(self, folder: str = "") -> list[str]:
        found = self._found(folder, lambda path: self._files.ls(path, detail=False)) or []
        own = self._path(folder).strip("/")  # a store may list the folder itself
        return sorted(
            {path.rstrip("/").rpartition("/")[2] for path in found if path.strip("/") != own}
        )

    def read(self, name: str) -> str | None:
        found = self._found(name, lambda path: self._files.cat_file(path))
        return None if found is None else found.decode(errors="replace")

    def read_from(self, name: str, start: int) -> bytes:
        found = self._found(name, lambda path: self._files.info(path))
        if found is None or found["size"] <= start:
            return b""
        return self._found(name, lambda path: self._files.cat_file(path, start=start)) or b""

    def write(self, name: str, text: str) -> None:
        self._write(name, lambda path: self._files.pipe_file(path, text.encode()))

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="rlkit-") as folder:
            path = Path(folder) / name.rpartition("/")[2]
            yield path
            self.put(path, name)

    def remove(self, name: str) -> None:
        if self._protocol in DISKS:
            self._found(name, lambda path: self._files.rm(path, recursive=True), what="remove")
            return
        for path in self._found(name, lambda path: self._files.find(path)) or []:
            file = path[len(self._root) + 1 :]
            self._found(file, lambda path: self._files.rm_file(path), what="remove")
        with suppress(Exception):  # an empty folder, where a store has such
            self._files.rm(self._path(name), recursive=True)

    def put(self, source: Path, name: str) -> None:
        """Copies a file of this machine to the store."""
        self._write(name, lambda path: self._files.put_file(os.fspath(source), path))

    def put_all(self, source: Path, files: Sequence[str], name: str) -> None:
        """Copies these files of a directory to a folder of the store, several at a time."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda file: self.put(source / file, f"{name}/{file}"), files))

    def get(self, name: str, target: Path) -> bool:
        """Copies a file of the store to this machine; whether there is one."""

        def get(path: str) -> bool:
            self._files.get_file(path, os.fspath(target))
            return True

        return self._found(name, get) is not None

    def copy_to(self, target: Path) -> int:
        """Copies all files to a new directory, which is there as a whole or not at all.

        What is in training is a run directory there, so that the copy can go on. Returns how many
        files were copied; makes nothing if there is none. Raises `RunDirectoryError` if one is
        removed meanwhile.
        """
        files = [file for file in self.files_in("") if not file.endswith((".owner", ID))]
        if files:
            make_directory(target.parent)
            with tempfile.TemporaryDirectory(prefix=".tmp-", dir=target.parent) as folder:
                new = Path(folder) / target.name
                self.get_all("", new, files)
                unpack_all(new)
                new.rename(target)
        return len(files)

    def get_all(self, name: str, target: Path, files: Sequence[str]) -> None:
        """Copies these files in a folder of the store to a directory, several at a time."""
        strange = next((file for file in files if not is_below(file)), None)
        require(
            strange is None,
            f"{self.place} holds {strange!r}, which rlkit does not write",
            "remove it there",
            RunDirectoryError,
        )
        for folder in {(target / file).parent for file in files}:
            folder.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = pool.map(
                lambda file: self.get(f"{name}/{file}".lstrip("/"), target / file), files
            )
            gone = [file for file, is_there in zip(files, found, strict=True) if not is_there]
        require(
            not gone,
            f"{self.place}/{name}".rstrip("/") + f" changes: {gone[0] if gone else ''} was removed"
            " while it was copied",
            "copy it again, or wait until nothing trains there",
            RunDirectoryError,
        )

    def files_in(self, name: str) -> list[str]:
        """The paths of all files in a folder, below it."""
        start = self._path(name).rstrip("/") + "/"
        found = self._found(name, lambda path: self._files.find(path)) or []
        return sorted(path[len(start) :] for path in found if path.startswith(start))

    def hold(self, part: str, what: str, patience: float = 0.0) -> AbstractContextManager[Hold]:
        return owned(self, f"{part}.owner", what, patience)

    @contextmanager
    def workplace(self, part: str, hold: Hold, say: Callable[[str], None]) -> Iterator[Workplace]:
        from rlkit.training.sweeps.stores.scratch import scratch

        with scratch(self, part, hold, say) as work:
            yield work

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _found(self, name: str, call: Callable[[str], T], *, what: str = "read") -> T | None:
        """What a call returns for a path; None if there is nothing."""

        def found() -> T | None:
            try:
                self._files.invalidate_cache()  # others write there, too
                return call(self._path(name))
            except (FileNotFoundError, NotADirectoryError):
                return None

        return self._persist(what, name, found)

    def _write(self, name: str, call: Callable[[str], object]) -> None:
        path = self._path(name)

        def write() -> None:
            if self._protocol not in DISKS:
                call(path)
                return
            folder, _, last = path.rpartition("/")
            temporary = f"{folder}/.tmp-{os.getpid()}-{random.getrandbits(64):x}-{last}"[:240]
            try:
                call(temporary)
                os.replace(temporary, path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise

        self._persist("write", name, write)

    def _persist(self, what: str, name: str, call: Callable[[], T]) -> T:
        """Calls until it works. Raises `DiskError`, or at once `RunDirectoryError`."""
        last: Exception | None = None
        where = f"{self.place}/{name}" if name else self.place
        for number in range(TRIES):
            if number:
                time.sleep(FIRST_WAIT * 2 ** (number - 1))
            try:
                return call()
            except _FINAL as error:  # of a bucket, or of a disk
                raise RunDirectoryError(
                    f"cannot {what} {where}: {_reason(error)}; check the address, and what fsspec"
                    " may do there (docs/sweeps.md)"
                ) from None
            except Exception as error:  # each store has errors of its own
                if type(error).__name__ in _NO_CREDENTIALS:
                    raise RunDirectoryError(
                        f"cannot {what} {where}: {_reason(error)}; see docs/sweeps.md for where"
                        " fsspec looks for credentials"
                    ) from None
                last = error
        assert last is not None
        raise DiskError(
            f"cannot {what} {where}: {_reason(last)}, {TRIES} times; check the store and the"
            " network, and continue with the same command"
        ) from last


def _filesystem(address: str, protocol: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it.

    Raises `ConfigError` if it cannot hold a sweep, or needs a package that is not installed.
    """
    import fsspec

    require(
        protocol not in UNFIT and "::" not in address,
        f"{address} is no address of an object store",
        "use one such as s3://bucket/my-sweep, or mount the disk and name a directory",
    )
    path = address.partition("://")[2]
    require(
        path.startswith("/")
        if protocol in DISKS
        else protocol == "memory" or "/" in path.strip("/"),
        f"{address} names no folder",
        "use one such as s3://bucket/my-sweep, or file:///disk/my-sweep",
    )
    options = {"auto_mkdir": True} if protocol in DISKS else {}
    try:
        # an instance of our own: what others remember of the store may be old
        return fsspec.url_to_fs(address, skip_instance_cache=True, **options)
    except ImportError as error:
        package = PACKAGES.get(protocol)
        fix = f"install it: pip install {package}" if package else f"install it ({error})"
        raise ConfigError(f"{protocol}:// needs a package of its own; {fix}") from None
    except Exception as error:  # each store has errors of its own
        raise ConfigError(
            f"{address} cannot be used: {error}; use an address such as s3://bucket/my-sweep"
        ) from None


def _reason(error: BaseException) -> str:
    """The first line of an error."""
    return (str(error).strip() or repr(error)).splitlines()[0][:200]
