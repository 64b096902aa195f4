"""Loggers: where the records of a run go. A JSONL file is the source of truth, the console and
Weights & Biases are copies.
"""

import logging
import math
import os
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tqdm import tqdm

from rlkit.errors import ConfigError, RunDirectoryError
from rlkit.training.config import LoggerConfig
from rlkit.training.logs.records import Record
from rlkit.training.logs.wandb_logger import WandbLogger

# Not `warnings.warn`: under `-W error` a lost copy of the records would end the training.
_warn = logging.getLogger("rlkit").warning


@runtime_checkable
class Logger(Protocol):
    """Receives the records of one run, in order, from one thread of one process.

    A resumed run calls `restore` before its first `log`, before or after `start`. `restore({})`
    says that the run begins again at its first step, in the place of one that was cut before its
    first checkpoint.
    """

    def log(self, record: Record, /) -> None:
        """Takes one record."""
        ...

    def start(self, run_info: dict[str, Any], /) -> None:
        """Takes the config as plain data; called once."""
        ...

    def state(self) -> dict[str, Any]:
        """What `restore` needs to continue after the records logged so far: plain JSON data, stored
        in each checkpoint.
        """
        ...

    def restore(self, state: dict[str, Any], /) -> None:
        """Goes back to `state`: rows logged after it, by the run that was cut, will be logged
        again.
        """
        ...

    def flush(self) -> None:
        """Returns when all rows are where a crash cannot reach them."""
        ...

    def close(self) -> None:
        """Ends the log; nothing is called after it."""
        ...


class JsonlLogger:
    """Appends each record to a file, so that an interrupted and resumed run leaves the rows of the
    uninterrupted one.

    Rows that a cut run wrote after its last checkpoint, or half wrote, move to
    `<stem>.dropped.jsonl` beside the file. Raises `RunDirectoryError` where the file cannot be
    written.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.dropped_path = self.path.with_suffix(".dropped.jsonl")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            self._release = weakref.finalize(self, os.close, self._descriptor)
            self._cut(self.path.read_bytes().rfind(b"\n") + 1)
        except OSError as error:
            raise self._unwritable(error) from error

    def start(self, run_info: dict[str, Any], /) -> None:
        """Nothing: the run directory holds the config beside this file."""

    def log(self, record: Record, /) -> None:
        row = memoryview(record.to_json().encode() + b"\n")
        try:
            while row:
                row = row[os.write(self._descriptor, row) :]
        except OSError as error:
            raise self._unwritable(error) from error

    def state(self) -> dict[str, Any]:
        self.flush()
        return {"bytes": os.fstat(self._descriptor).st_size}

    def restore(self, state: dict[str, Any], /) -> None:
        offset, size = state.get("bytes", 0), os.fstat(self._descriptor).st_size
        if size < offset:
            _warn(
                "%s has %d bytes where the checkpoint expects %d: its early rows are missing",
                self.path,
                size,
                offset,
            )
            return
        try:
            self._cut(offset)
        except OSError as error:
            raise self._unwritable(error) from error

    def flush(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise self._unwritable(error) from error

    def close(self) -> None:
        if self._release.alive:
            self.flush()
            self._release()

    def _cut(self, offset: int) -> None:
        tail = self.path.read_bytes()[offset:]
        if not tail:
            return
        with open(self.dropped_path, "ab") as dropped:
            dropped.write(tail if tail.endswith(b"\n") else tail + b"\n")
            dropped.flush()
            os.fsync(
                dropped.fileno()
            )  # before the truncation: a kill in between may copy rows twice, never lose them
        os.ftruncate(self._descriptor, offset)

    def _unwritable(self, error: OSError) -> RunDirectoryError:
        cure = "free space there or make it writable; a new run writes elsewhere with --jsonl PATH"
        return RunDirectoryError(
            f"cannot write records to {self.path}: {error.strerror or error}; {cure}"
        )


MOST_REPORTED = (
    2  # numbers that environments report at the end of episodes; simulators tell a dozen
)


class ConsoleLogger:
    """Prints evaluations, texts, events and errors, each as one line that leaves a progress bar
    whole.
    """

    def log(self, record: Record, /) -> None:
        if record.kind == "train" or record.seed is not None:  # of several seeds, their mean
            return
        shown = {name.removeprefix("eval/"): value for name, value in record.metrics.items()}
        reported = [name for name in shown if name.startswith("done_info/")]
        if len(reported) > MOST_REPORTED:  # the file has them
            shown = {name: value for name, value in shown.items() if name not in reported}
        metrics = [f"{name} {value:.4g}" for name, value in shown.items()]
        parts = [
            f"{human_count(record.env_steps):>6} steps | {human_seconds(record.wall_seconds)}",
            *metrics,
        ]
        if record.text is not None:
            # An error ends the run, and is shown whole by whoever started it.
            text = _headline(record.text) if record.kind == "error" else record.text
            parts.insert(1, text if record.kind == "text" else f"{record.kind}: {text}")
        tqdm.write(" | ".join(parts))

    def start(self, run_info: dict[str, Any], /) -> None: ...
    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any], /) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


def _headline(error: str) -> str:
    """What happened, in a line: of a traceback the last one, else the first."""
    lines = error.strip().splitlines()
    return lines[-1 if lines[0].startswith("Traceback") else 0]


class MultiLogger:
    """Hands everything to several loggers. One that fails is reported once and does not stop the
    others.

    `RunDirectoryError` (the JSONL file, hence the source of truth, cannot be written) is raised
    after all had their turn.
    """

    def __init__(self, loggers: Sequence[Logger]):
        self.loggers: dict[
            str, Logger
        ] = {}  # by kind of logger: a resumed run may have another set of them
        for logger in loggers:
            name = type(logger).__name__
            same = sum(known.partition("#")[0] == name for known in self.loggers)
            self.loggers[f"{name}#{same}" if same else name] = logger
        self._reported: set[str] = set()

    def start(self, run_info: dict[str, Any], /) -> None:
        self._each(lambda name, logger: logger.start(run_info))

    def log(self, record: Record, /) -> None:
        self._each(lambda name, logger: logger.log(record))

    def state(self) -> dict[str, Any]:
        states: dict[str, Any] = {}
        self._each(lambda name, logger: states.update({name: logger.state()}))
        return states

    def restore(self, state: dict[str, Any], /) -> None:
        self._each(
            lambda name, logger: (
                logger.restore(state.get(name, {})) if name in state or not state else None
            )
        )

    def flush(self) -> None:
        self._each(lambda name, logger: logger.flush())

    def close(self) -> None:
        self._each(lambda name, logger: logger.close())

    def _each(self, call: Callable[[str, Logger], None]) -> None:
        fatal: RunDirectoryError | None = None
        for name, logger in self.loggers.items():
            try:
                call(name, logger)
            except RunDirectoryError as error:
                fatal = fatal or error
            except Exception as error:
                if name not in self._reported:
                    self._reported.add(name)
                    _warn(
                        "%s failed (%s: %s); training and the other loggers go on",
                        name,
                        type(error).__name__,
                        error,
                    )
        if fatal is not None:
            raise fatal


def make_logger(config: LoggerConfig, directory: str | os.PathLike[str] | None) -> Logger:
    """The loggers that `config` asks for; `directory`: the run directory, or None for a run that
    has none.
    """
    path = config.jsonl or (None if directory is None else Path(directory) / "metrics.jsonl")
    loggers: list[Logger] = [] if path is None else [JsonlLogger(path)]
    if config.console:
        loggers.append(ConsoleLogger())
    if config.wandb is not None:
        loggers.append(WandbLogger(config, directory))
    return MultiLogger(loggers)


def as_logger(
    value: Logger | LoggerConfig | str | os.PathLike[str] | None,
    directory: str | os.PathLike[str] | None = None,
) -> Logger:
    """A logger from a logger, its config, the path of a JSONL file, or None (the defaults of
    `LoggerConfig`).
    """
    if value is None or isinstance(value, LoggerConfig):
        return make_logger(value or LoggerConfig(), directory)
    if isinstance(value, str | os.PathLike):
        return JsonlLogger(value)
    if isinstance(value, Logger):
        return value
    raise ConfigError(
        f"cannot log to {value!r}; give a LoggerConfig, the path of a JSONL file, or a Logger"
    )


def human_count(count: float) -> str:
    """A count in at most five letters: 950, 12.5k, 1.2M, 3B."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(count) >= size * 0.9995:
            return f"{count / size:.3g}{unit}"
    return f"{count:.3g}"


def human_bytes(count: float) -> str:
    """A size: 512 bytes, 5.13 kB, 328 MB, 41.2 GB."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size * 0.9995:
            return f"{count / size:{'.3g' if count < size * 999.5 else ',.0f'}} {unit}"
    return f"{count:.0f} bytes"


def human_seconds(seconds: float) -> str:
    """A duration: 42s, 3m05s, 2h10m."""
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
