"""`Uploads`: copies the newest checkpoint of a run to an address, while training goes on."""

import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rlkit.errors import RlkitError
from rlkit.training.directories import write_error
from rlkit.training.sweeps.stores.owner import TakenOverError
from rlkit.training.sweeps.stores.snapshot import newest_step, pack
from rlkit.training.sweeps.stores.store import Hold

if TYPE_CHECKING:
    from rlkit.training.sweeps.stores.address_store import AddressStore

POLL = 0.05  # seconds between two looks for a checkpoint that is being written


def tar_name(name: str, step: int) -> str:
    """The object that keeps a run directory with the checkpoint of a step."""
    folder, _, last = name.rpartition("/")
    last = f"trial-{last}" if folder == "trials" else last
    return f"together/{last}-at-{step}.tar"


def tars(store: "AddressStore", name: str) -> list[int]:
    """The steps at which a run directory is kept. All but the highest are out of date."""
    start = tar_name(name, 0).removesuffix("0.tar")
    found = (f"together/{each}" for each in store.names("together"))
    steps = (x.removeprefix(start).removesuffix(".tar") for x in found if x.startswith(start))
    return sorted(int(step) for step in steps if step.isdecimal())


class Uploads:
    """Copies a run directory, as a tar, whenever it has a newer checkpoint.

    One copy is made at a time, of the newest checkpoint; those that come faster than they can be
    copied are left out. The step is part of the object's name, so that no late process replaces a
    newer one.
    """

    def __init__(
        self,
        store: "AddressStore",
        path: Path,
        name: str,
        hold: Hold,
        say: Callable[[str], None],
    ):
        self._store, self._path, self._name = store, path, name
        self._hold, self._say = hold, say
        self._there = tars(store, name)
        self._wanted = -1
        self._lost: TakenOverError | None = None
        self._changed, self._ended = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def request(self, step: int) -> None:
        """Has the checkpoint of `step` copied once it is on disk; returns at once.

        Raises `RunDirectoryError` if another process has taken the run over.
        """
        if self._lost is not None:
            raise self._lost
        self._wanted = step
        self._changed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True, name="rlkit-uploads")
            self._thread.start()

    def settle(self) -> None:
        """Returns once the newest checkpoint is copied. Raises `RunDirectoryError`."""
        self.stop()
        self._copy()

    def stop(self) -> None:
        """Copies nothing more in the background."""
        if self._thread is not None:
            self._ended.set()
            self._changed.set()
            self._thread.join()
            self._thread = None
            self._ended.clear()

    def _work(self) -> None:
        while True:
            self._changed.wait()
            self._changed.clear()
            while newest_step(self._path) < self._wanted and not self._ended.is_set():
                time.sleep(POLL)
            if self._ended.is_set():
                return
            try:
                self._copy()
            except TakenOverError as error:
                self._lost = error
                return
            except RlkitError as error:
                self._say(f"a checkpoint was not copied: {error}; training goes on")

    def _copy(self) -> None:
        if newest_step(self._path) <= max(self._there, default=-1):
            return
        self._hold.require_ours()
        parent = self._path.parent
        try:
            with tempfile.TemporaryDirectory(prefix=".tmp-", dir=parent) as folder:
                step, tar = pack(self._path, Path(folder))
                self._store.put(tar, tar_name(self._name, step))
        except OSError as error:
            raise write_error(error)(
                f"cannot pack a checkpoint in {parent}: {error.strerror}; free space there, or set"
                " TMPDIR"
            ) from None
        self._there = [step]
        with suppress(RlkitError):  # the next time
            for old in tars(self._store, self._name):
                if old < step:
                    self._store.remove(tar_name(self._name, old))
