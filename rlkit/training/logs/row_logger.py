"""`RowLogger`: a logger whose records become rows of a text file."""

import abc
import os
from pathlib import Path

from rlkit.training.logs.append_only_file import AppendOnlyFile
from rlkit.training.logs.records import Record
from rlkit.validation import PlainData


class RowLogger(abc.ABC):
    """Appends records to a file; a resumed run's file has the rows of an uninterrupted run.

    Incomplete rows, and rows that an interrupted run wrote after its last checkpoint, move to
    `<stem>.dropped<suffix>` in the same directory. Raises `RunDirectoryError` if the file cannot be
    written.
    """

    HEADER: str = ""  # the first row, with its newline
    CURE: str  # what to do if the file cannot be written

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path).expanduser()
        self.dropped_path = self.path.with_suffix(f".dropped{self.path.suffix}")
        self._file = AppendOnlyFile(self.path, cure=self.CURE)
        whole = self._file.read().rfind(b"\n") + 1  # what follows, a killed process left
        self._drop_after(whole)
        if whole == 0:
            self._file.append(self.HEADER.encode())

    @abc.abstractmethod
    def rows(self, record: Record) -> str:
        """The rows of a record, each ended by a newline."""

    def start(self, run_info: PlainData, /) -> None:
        return  # the run directory stores the config

    def log(self, record: Record, /) -> None:
        self._file.append(self.rows(record).encode())

    def state(self) -> PlainData:
        self.flush()
        return {"bytes": self._file.size}

    def restore(self, state: PlainData, /) -> None:
        own = state.get(type(self).__name__, state)  # of a `MultiLogger`, or of this logger alone
        self._drop_after(max(own.get("bytes", 0), len(self.HEADER)))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _drop_after(self, size: int) -> None:
        tail = self._file.read()[size:]
        if tail:
            dropped = AppendOnlyFile(self.dropped_path, cure=self.CURE)
            dropped.append(b"" if dropped.size else self.HEADER.encode())
            dropped.append(tail if tail.endswith(b"\n") else tail + b"\n")
            dropped.close()  # before the cut: a kill in between may repeat rows, but never lose any
        self._file.cut(size)
