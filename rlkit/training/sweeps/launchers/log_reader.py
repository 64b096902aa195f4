"""`LogReader`: what a process that writes to a file says, while it does. No JAX."""

from rlkit.training.sweeps.stores.store import SweepStore

ERROR = "rlkit: error: "


class LogReader:
    """Reads what is added to a file of a sweep from now on, line by line."""

    def __init__(self, store: SweepStore, name: str):
        self.name = name
        self._store = store
        self._error: str | None = None
        self._last = ""
        self._offset = len(store.read_from(name, 0))

    def read(self) -> list[str]:
        """The whole lines that were added since the last call; [] if there is no file."""
        added = self._store.read_from(self.name, self._offset)
        whole = added[: added.rfind(b"\n") + 1]
        self._offset += len(whole)
        texts = (line.rstrip() for line in whole.decode(errors="replace").splitlines())
        lines = [text for text in texts if text]
        for line in lines:
            self._last = line
            if line.startswith(ERROR):
                self._error = line.removeprefix(ERROR)
        return lines

    def problem(self, reason: str) -> str:
        """What went wrong: the last error of `rlkit` so far, or else `reason` and the last line."""
        return self._error or ": ".join(filter(None, [reason, self._last]))
