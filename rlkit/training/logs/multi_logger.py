"""`MultiLogger`: several loggers as one."""

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from rlkit.errors import RunDirectoryError
from rlkit.protocols import follows
from rlkit.training.logs.jsonl_logger import JsonlLogger
from rlkit.training.logs.logger import Logger, Outcome, Publisher, VideoLogger
from rlkit.training.logs.records import Record
from rlkit.training.logs.row_logger import RowLogger
from rlkit.validation import PlainData

T = TypeVar("T")

# Not `warnings.warn`: under `-W error`, a failing logger would end the training.
_warn = logging.getLogger("rlkit").warning


def by_class(objects: Iterable[T]) -> dict[str, T]:
    """The objects by the names of their classes; another one of a class gets "#1", then "#2"."""
    found: dict[str, T] = {}
    for each in objects:
        name = type(each).__name__
        same = sum(known.partition("#")[0] == name for known in found)
        found[f"{name}#{same}" if same else name] = each
    return found


class MultiLogger:
    """Forwards to several loggers. A failing one is reported once and does not stop the others.

    If the JSONL file cannot be written, `RunDirectoryError` is raised after all loggers were
    called: it is the record of the run, the others are copies. Those that are `kept_open` are
    flushed where the others are closed.
    """

    def __init__(self, loggers: Sequence[Logger], *, kept_open: Sequence[Logger] = ()):
        self.loggers = by_class(loggers)  # since a resumed run may use others
        self._kept_open = kept_open
        self._reported: set[str] = set()

    def start(self, run_info: PlainData, /) -> None:
        self._each(lambda name, logger: logger.start(run_info))

    def log(self, record: Record, /) -> None:
        self._each(lambda name, logger: logger.log(record))

    def state(self) -> PlainData:
        states: PlainData = {}
        self._each(lambda name, logger: states.update({name: logger.state()}))
        return states

    def restore(self, state: PlainData, /) -> None:
        files = [name for name, each in self.loggers.items() if isinstance(each, RowLogger)]
        if state.keys() == {"bytes"} and len(files) == 1:  # of a logger that was alone
            state = {files[0]: state}
        self._each(
            lambda name, logger: (
                logger.restore(state.get(name, {})) if name in state or not state else None
            )
        )

    def flush(self) -> None:
        self._each(lambda name, logger: logger.flush())

    def publish(self, outcome: Outcome, /) -> None:
        self._each(
            lambda name, logger: logger.publish(outcome) if follows(logger, Publisher) else None
        )

    def log_video(self, path: Path, seed: int, /) -> None:
        self._each(
            lambda name, logger: (
                logger.log_video(path, seed) if follows(logger, VideoLogger) else None
            )
        )

    def close(self) -> None:
        def close(name: str, logger: Logger) -> None:
            is_kept = any(logger is kept for kept in self._kept_open)
            logger.flush() if is_kept else logger.close()

        self._each(close)

    def _each(self, call: Callable[[str, Logger], None]) -> None:
        fatal: RunDirectoryError | None = None
        for name, logger in self.loggers.items():
            try:
                call(name, logger)
            except Exception as error:
                if isinstance(logger, JsonlLogger) and isinstance(error, RunDirectoryError):
                    fatal = fatal or error
                elif name not in self._reported:
                    self._reported.add(name)
                    _warn(
                        "%s failed (%s: %s); training and the other loggers continue",
                        name,
                        type(error).__name__,
                        error,
                    )
        if fatal is not None:
            raise fatal
