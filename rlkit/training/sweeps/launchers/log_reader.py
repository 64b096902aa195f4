"""`LogReader`: what a process that writes to a file says, while it does. No JAX."""

from pathlib import Path

ERROR = "rlkit: error: "


class LogReader:
    """Reads what is added to a file from now on, line by line."""

    def __init__(self, path: Path):
        self.path = path
        self._error: str | None = None
        self._last = ""
        self._offset = path.stat().st_size if path.exists() else 0

    def read(self) -> list[str]:
        """The whole lines that were added since the last call; [] if there is no file."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                added = file.read()
        except FileNotFoundError:
            return []
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
