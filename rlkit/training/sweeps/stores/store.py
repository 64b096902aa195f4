"""`SweepStore`: where the files of a sweep are for good. No JAX."""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rlkit.training.directories import is_address

if TYPE_CHECKING:
    from rlkit.training.callbacks import Callback


ID = ".id"  # ends the name of what says under which name machines have the work of a part


class Workplace(Protocol):
    """Where the process of a group trains: directories of its own, by their names in the store."""

    def directory(self, name: str) -> Path:
        """A run directory, with what any process has kept of it; it may be absent yet."""
        ...

    def fresh(self, name: str) -> Path:
        """The same, without what an interrupted attempt to write it has left."""
        ...

    def callbacks(self, name: str) -> "Sequence[Callback]":
        """What the trainer in a run directory calls, so that its checkpoints are kept."""
        ...

    def keep(self, name: str) -> None:
        """Returns once the last checkpoint in a run directory is kept. Raises `DiskError`."""
        ...

    def publish(self, name: str) -> None:
        """Keeps all files of a run directory under their names. Raises `DiskError`."""
        ...


class SweepStore(Protocol):
    """The files of a sweep, by their names: "sweep.yaml", "together/group-0.jsonl".

    Each is there as a whole or not at all. What cannot be read or written raises
    `RunDirectoryError`, or `DiskError` if nothing but a disk or a network is to blame.
    """

    @property
    def place(self) -> Path | str:
        """An absolute path, or an address."""
        ...

    @property
    def name(self) -> str:
        """The last part of it."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether other processes can see it."""
        ...

    def has(self, name: str) -> bool:
        """Whether there is a file of that name."""
        ...

    def names(self, folder: str = "") -> list[str]:
        """What is in a folder, in order, without its own name; [] if there is none."""
        ...

    def read(self, name: str) -> str | None:
        """A file's text; None if there is no file."""
        ...

    def read_from(self, name: str, start: int) -> bytes:
        """A file's bytes from one on; b"" if there is no file."""
        ...

    def write(self, name: str, text: str) -> None:
        """Writes a file, whether it is there or not."""
        ...

    def writing(self, name: str) -> AbstractContextManager[Path]:
        """A path for something that writes a file, which is kept at the end."""
        ...

    def remove(self, name: str) -> None:
        """Removes a file or a folder, if there is one."""
        ...

    def hold(self, part: str, what: str, patience: float = 0.0) -> AbstractContextManager["Hold"]:
        """Makes this process the only one that writes a part of the sweep; "" is the sweep itself.

        Waits up to `patience` seconds for another one, then raises `RunDirectoryError` about
        `what`.
        """
        ...

    def workplace(
        self, part: str, hold: "Hold", say: Callable[[str], None]
    ) -> AbstractContextManager[Workplace]:
        """Where the process that holds a part trains it."""
        ...


class Hold(Protocol):
    """That a part of a sweep is this process's."""

    def require_ours(self) -> None:
        """Raises `RunDirectoryError` if another process has taken the part over."""
        ...


def open_store(path: str | os.PathLike[str]) -> SweepStore:
    """The files at a path or an address; makes nothing.

    Raises `ConfigError` for an address that nothing installed can read.
    """
    if is_address(path):
        from rlkit.training.sweeps.stores.address_store import AddressStore

        return AddressStore(os.fspath(path))
    from rlkit.training.sweeps.stores.directory_store import DirectoryStore

    return DirectoryStore(path)
