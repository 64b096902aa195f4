"""Loggers, which receive the records of a run. The JSONL file is the source of truth."""

import logging
import math
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from tqdm import tqdm

from rlkit.errors import ConfigError, RunDirectoryError
from rlkit.training.config import LoggerConfig
from rlkit.training.logs.records import Record
from rlkit.training.logs.wandb_logger import WandbLogger
from rlkit.validation import PlainData

# Not `warnings.warn`: under `-W error`, a failing logger would end the training.
T = TypeVar("T")

_warn = logging.getLogger("rlkit").warning


@runtime_checkable
class Logger(Protocol):
    """Receives the records of one run, in order, from one thread of one process.

    A resumed run calls `restore` before its first `log`, before or after `start`. `restore({})`
    means that the run starts over, because it was interrupted before its first checkpoint.
    """

    def log(self, record: Record, /) -> None:
        """Logs one record."""
        ...

    def start(self, run_info: PlainData, /) -> None:
        """Receives the config as plain data; called once, before the first `log`."""
        ...

    def state(self) -> PlainData:
        """Plain JSON data that `restore` needs to continue from here; stored in each checkpoint."""
        ...

    def restore(self, state: PlainData, /) -> None:
        """Goes back to `state`: rows that an interrupted run logged after it are logged again."""
        ...

    def flush(self) -> None:
        """Returns once all rows are safe from a crash."""
        ...

    def close(self) -> None:
        """Closes the log; nothing is called after it."""
        ...


class JsonlLogger:
    """Appends records to a file; a resumed run's file has the rows of an uninterrupted run.

    Incomplete rows, and rows that an interrupted run wrote after its last checkpoint, move to
    `<stem>.dropped.jsonl` in the same directory. Raises `RunDirectoryError` if the file cannot be
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

    def start(self, run_info: PlainData, /) -> None:
        """Does nothing: the run directory stores the config."""

    def log(self, record: Record, /) -> None:
        row = memoryview(record.to_json().encode() + b"\n")
        try:
            while row:
                row = row[os.write(self._descriptor, row) :]
        except OSError as error:
            raise self._unwritable(error) from error

    def state(self) -> PlainData:
        self.flush()
        return {"bytes": os.fstat(self._descriptor).st_size}

    def restore(self, state: PlainData, /) -> None:
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
            )  # before the truncation: a kill in between may duplicate rows, but never lose them
        os.ftruncate(self._descriptor, offset)

    def _unwritable(self, error: OSError) -> RunDirectoryError:
        fix = (
            "free disk space or make it writable; start a new run with --jsonl PATH to write"
            " elsewhere"
        )
        return RunDirectoryError(
            f"cannot write records to {self.path}: {error.strerror or error}; {fix}"
        )


MOST_REPORTED = 2  # numbers reported by environments at episode ends; simulators report a dozen


class ConsoleLogger:
    """Prints evaluations, texts, events and errors as lines that do not break a progress bar."""

    def log(self, record: Record, /) -> None:
        if record.kind == "train" or record.seed is not None:  # with several seeds, their mean
            return
        parts = [
            f"{human_count(record.env_steps):>6} steps | {human_seconds(record.wall_seconds)}",
            *_evaluation(record.metrics),
        ]
        if record.text is not None:
            # An error ends the run and is printed in full by the caller.
            text = _headline(record.text) if record.kind == "error" else record.text
            parts.insert(1, text if record.kind == "text" else f"{record.kind}: {text}")
        tqdm.write(" | ".join(parts))

    def start(self, run_info: PlainData, /) -> None: ...
    def state(self) -> PlainData:
        return {}

    def restore(self, state: PlainData, /) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


def _evaluation(metrics: Mapping[str, float]) -> list[str]:
    """The parts of a line about an evaluation; with returns and lengths alone, 70 columns at most.

    Lengths with sampled actions, and the many numbers of a simulator, are only in the file.
    """
    shown = {name.removeprefix("eval/"): value for name, value in metrics.items()}
    reported = [name for name in shown if name.startswith("done_info/")]
    left_out = {"sampled_avg_length", *(reported if len(reported) > MOST_REPORTED else ())}
    parts = []
    if "avg_return" in shown:
        sampled = shown.pop("sampled_avg_return", None)
        beside = "" if sampled is None else f" (sampled {sampled:.4g})"
        parts.append(f"return {shown.pop('avg_return'):.4g}{beside}")
    if "avg_length" in shown:
        parts.append(f"length {shown.pop('avg_length'):.4g}")
    others = {name: value for name, value in shown.items() if name not in left_out}
    return parts + [f"{name} {value:.4g}" for name, value in others.items()]


def _headline(error: str) -> str:
    """A one-line summary: the last line of a traceback, otherwise the first line."""
    lines = error.strip().splitlines()
    return lines[-1 if lines[0].startswith("Traceback") else 0]


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

    `RunDirectoryError` (the JSONL file cannot be written) is raised after all loggers were called.
    """

    def __init__(self, loggers: Sequence[Logger]):
        self.loggers = by_class(loggers)  # since a resumed run may use others
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
                        "%s failed (%s: %s); training and the other loggers continue",
                        name,
                        type(error).__name__,
                        error,
                    )
        if fatal is not None:
            raise fatal


def make_logger(config: LoggerConfig | None, directory: str | os.PathLike[str] | None) -> Logger:
    """Creates the loggers for `config` (None: none); `directory` is the run directory, or None."""
    if config is None:
        return MultiLogger([])
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
    """Creates a logger from a logger, its config, the path of a JSONL file, or None (defaults)."""
    if value is None or isinstance(value, LoggerConfig):
        return make_logger(value or LoggerConfig(), directory)
    if isinstance(value, str | os.PathLike):
        return JsonlLogger(value)
    if isinstance(value, Logger):
        return value
    raise ConfigError(
        f"cannot log to {value!r}; pass a LoggerConfig, the path of a JSONL file, or a Logger"
    )


def human_count(count: float) -> str:
    """A count in at most five characters: 950, 12.5k, 1.2M, 3B."""
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
