"""Where the records of a run go: a JSONL file (the source of truth), the console, Weights & Biases.

A JSONL file holds one `Record` a row, UTF-8, each row ended by a newline:

    {"kind": "eval", "env_steps": 4096, "updates": 12, "wall_seconds": 1.5, "seed": null, "metrics": {"eval/avg_return": 21.0}}

- `kind`: "train", "eval", "text", "event" or "error";
- `env_steps`, `updates`: whole numbers, environment and gradient steps of one seed so far;
- `wall_seconds`: seconds since the start;
- `seed`: whole number, or null for all seeds together (their average);
- `metrics`: names to numbers. JSON has no NaN or infinity: NaN is written null, infinities "Infinity" and "-Infinity";
  reading gives the same floats back;
- `text`: a string; only in rows that have one.

Readers ignore keys they do not know and a last row without its newline (its writer was killed).
"""

import collections
import dataclasses
import json
import logging
import math
import os
import re
import secrets
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from tqdm import tqdm

from rlkit.errors import ConfigError, RunDirectoryError
from rlkit.training.config import LoggerConfig

Kind = Literal["train", "eval", "text", "event", "error"]
Position = tuple[int, int]  # env_steps, rows of that kind and seed at these env_steps

# Not `warnings.warn`: under `-W error` a lost copy of the records would end the training.
_warn = logging.getLogger("rlkit").warning
_SECRET = re.compile(r"token|secret|password|api_?key", re.IGNORECASE)
_LONGEST_BACKLOG = 2000  # rows kept for W&B while it fails
# W&B's own process collects rows (0.31: for 15 s) before it writes or uploads them, and loses those if the run is killed.
_SETTLED_AFTER = 60.0  # seconds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """One row of a run's log; the module's docstring gives units."""

    kind: Kind
    env_steps: int
    updates: int
    wall_seconds: float
    seed: int | None = None
    """None: all seeds together."""
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    text: str | None = None

    def to_json(self) -> str:
        """One line of strict JSON without its newline. Metrics may be any scalar that `float` takes."""
        row: dict[str, Any] = {"kind": self.kind, "env_steps": int(self.env_steps), "updates": int(self.updates)}
        row["wall_seconds"] = _number_to_json(self.wall_seconds)
        row["seed"] = None if self.seed is None else int(self.seed)
        row["metrics"] = {name: _number_to_json(value) for name, value in self.metrics.items()}
        if self.text is not None:
            row["text"] = self.text
        return json.dumps(row, allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> "Record":
        """Reads what `to_json` wrote; raises `ConfigError` for anything else."""
        try:
            row = json.loads(line)
            known = {field.name: row[field.name] for field in dataclasses.fields(cls) if field.name in row}
            known["wall_seconds"] = _number_from_json(row["wall_seconds"])
            known["metrics"] = {name: _number_from_json(value) for name, value in row["metrics"].items()}
            return cls(**known)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"not a record: {line[:80]!r} ({error}); delete that line") from None


@runtime_checkable
class Logger(Protocol):
    """Receives the records of one run, in order, from one thread of one process.

    A resumed run calls `restore` before its first `log`, before or after `start`. `restore({})` says that the run begins again
    at its first step, in the place of one that was cut before its first checkpoint.
    """

    def log(self, record: Record, /) -> None:
        """Takes one record."""
        ...

    def start(self, run_info: dict[str, Any], /) -> None:
        """Takes the config as plain data; called once."""
        ...

    def state(self) -> dict[str, Any]:
        """What `restore` needs to continue after the records logged so far: plain JSON data, stored in each checkpoint."""
        ...

    def restore(self, state: dict[str, Any], /) -> None:
        """Goes back to `state`: rows logged after it, by the run that was cut, will be logged again."""
        ...

    def flush(self) -> None:
        """Returns when all rows are where a crash cannot reach them."""
        ...

    def close(self) -> None:
        """Ends the log; nothing is called after it."""
        ...


class JsonlLogger:
    """Appends each record to a file, so that an interrupted and resumed run leaves the rows of the uninterrupted one.

    Rows that a cut run wrote after its last checkpoint, or half wrote, move to `<stem>.dropped.jsonl` beside the file.
    Raises `RunDirectoryError` where the file cannot be written.
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
            _warn("%s has %d bytes where the checkpoint expects %d: its early rows are missing", self.path, size, offset)
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
            os.fsync(dropped.fileno())  # before the truncation: a kill in between may copy rows twice, never lose them
        os.ftruncate(self._descriptor, offset)

    def _unwritable(self, error: OSError) -> RunDirectoryError:
        cure = "free space or choose another place with --logger.jsonl PATH, then resume"
        return RunDirectoryError(f"cannot write records to {self.path}: {error.strerror or error}; {cure}")


class ConsoleLogger:
    """Prints evaluations, texts, events and errors, each as one line that leaves a progress bar whole."""

    def log(self, record: Record, /) -> None:
        if record.kind == "train" or record.seed is not None:  # of several seeds, their mean
            return
        metrics = [f"{name.removeprefix('eval/')} {value:.4g}" for name, value in record.metrics.items()]
        parts = [f"{human_count(record.env_steps):>6} steps | {human_seconds(record.wall_seconds)}", *metrics]
        if record.text is not None:
            parts.insert(1, record.text if record.kind == "text" else f"{record.kind}: {record.text}")
        tqdm.write(" | ".join(parts))

    def start(self, run_info: dict[str, Any], /) -> None: ...
    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any], /) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class WandbLogger:
    """Copies records to Weights & Biases; whatever fails there costs one warning and never the training.

    The run opens at the first `log`, so that `restore` can bring its id. No row is lost by a resume: rows that W&B refused, or
    took less than a minute ago, are part of the state and are sent again. Rows older than that are not repeated:
    `<directory>/wandb_run.json` says how far they reach. So after a closed run none appears twice, after a killed one those of
    its last minute may (with `directory` None, also those that the cut run logged after its checkpoint).
    Metrics of one seed appear as `<metric>/seed_<n>`; `failures` counts exceptions.
    """

    def __init__(self, config: LoggerConfig, directory: str | os.PathLike[str] | None):
        self.failures = 0
        self._config = config
        self._directory = None if directory is None else Path(directory)
        self._id = secrets.token_hex(4)
        self._hparams: dict[str, Any] = {}
        self._run: Any = None
        self._gave_up = False
        self._seen: dict[str, Position] = {}  # by this run, in its own order
        self._settled: dict[str, Position] = {}  # safe at W&B, from this run and the one it continues
        self._backlog: collections.deque[tuple[str, Position, Record]] = collections.deque(maxlen=_LONGEST_BACKLOG)
        self._unsettled: collections.deque[tuple[float, str, Position, Record]] = collections.deque()

    def start(self, run_info: dict[str, Any], /) -> None:
        self._hparams = redact(run_info)

    def log(self, record: Record, /) -> None:
        stream = record.kind if record.seed is None else f"{record.kind}/{record.seed}"
        env_steps, rows = self._seen.get(stream, (-1, 0))
        position = (record.env_steps, 1) if record.env_steps > env_steps else (env_steps, rows + 1)
        self._seen[stream] = position
        if position > self._settled.get(stream, (-1, 0)):
            self._backlog.append((stream, position, record))
            self.flush()

    def state(self) -> dict[str, Any]:
        rows = [*(row[1:] for row in self._unsettled), *self._backlog]
        return {
            "id": self._id,
            "seen": {stream: list(position) for stream, position in self._seen.items()},
            "rows": [[stream, list(position), record.to_json()] for stream, position, record in rows],
        }

    def restore(self, state: dict[str, Any], /) -> None:
        known: dict[str, Any] = {}
        self._attempt(lambda: known.update(self._read_settled()))
        self._id = state.get("id") or known.get("id") or self._id
        self._seen = _positions(state.get("seen", {}))
        self._settled = known["settled"] if known.get("id") == self._id else {}
        for stream, position, row in state.get("rows", []):
            if tuple(position) > self._settled.get(stream, (-1, 0)):
                self._backlog.append((stream, (position[0], position[1]), Record.from_json(row)))

    def flush(self) -> None:
        if self._backlog and not self._gave_up:
            self._attempt(self._send)

    def close(self) -> None:
        self.flush()
        if self._run is not None:
            self._attempt(self._finish)
        self._run, self._gave_up = None, True

    def _finish(self) -> None:
        self._run.finish()
        self._settle(after=0.0)

    def _send(self) -> None:
        if self._run is None:
            try:
                self._run = self._open()
            except Exception:
                self._gave_up = True  # each further try could wait for the network again
                raise
        while self._backlog:
            stream, position, record = self._backlog[0]
            self._run.log(_wandb_row(record))
            self._unsettled.append((time.monotonic(), stream, position, record))
            self._backlog.popleft()
        self._settle(after=_SETTLED_AFTER)

    def _settle(self, *, after: float) -> None:
        changed, limit = False, time.monotonic() - after
        while self._unsettled and self._unsettled[0][0] <= limit:
            _, stream, position, _ = self._unsettled.popleft()
            self._settled[stream] = position
            changed = True
        if self._directory is not None and (changed or not self._settled):
            fresh = self._directory / "wandb_run.json.new"
            fresh.write_text(json.dumps({"id": self._id, "settled": self._settled}))
            fresh.replace(self._directory / "wandb_run.json")

    def _open(self) -> Any:
        import wandb

        config, directory = self._config, self._directory
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
        run = wandb.init(
            id=self._id,
            resume="allow",
            reinit="create_new",
            mode=config.wandb,
            dir=directory,
            project=config.wandb_project,
            entity=config.wandb_entity,
            name=config.wandb_name or (directory.resolve().name if directory else None),
            group=config.wandb_group,
            tags=config.wandb_tags,
            config=self._hparams,
            allow_val_change=True,
            save_code=False,
            settings=wandb.Settings(console="off"),  # it would replace stdout, under the progress bar
        )
        run.define_metric("env_steps")
        for names in ("train/*", "eval/*"):
            run.define_metric(names, step_metric="env_steps")
        return run

    def _attempt(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except Exception as error:  # whatever it is, the records are safe in the JSONL file
            self.failures += 1
            if self.failures == 1:
                cure = "run `wandb login`, or use --wandb offline" if self._run is None else "the JSONL file has all rows"
                _warn("Weights & Biases failed (%s: %s); training and local files go on; %s", type(error).__name__, error, cure)

    def _read_settled(self) -> dict[str, Any]:
        path = self._directory and self._directory / "wandb_run.json"
        if path is None or not path.exists():
            return {}
        found = json.loads(path.read_text())
        return {"id": found["id"], "settled": _positions(found["settled"])}


class MultiLogger:
    """Hands everything to several loggers. One that fails is reported once and does not stop the others.

    `RunDirectoryError` (the JSONL file, hence the source of truth, cannot be written) is raised after all had their turn.
    """

    def __init__(self, loggers: Sequence[Logger]):
        self.loggers: dict[str, Logger] = {}  # by kind of logger: a resumed run may have another set of them
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
        self._each(lambda name, logger: logger.restore(state.get(name, {})) if name in state or not state else None)

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
                    _warn("%s failed (%s: %s); training and the other loggers go on", name, type(error).__name__, error)
        if fatal is not None:
            raise fatal


def make_logger(config: LoggerConfig, directory: str | os.PathLike[str] | None) -> Logger:
    """The loggers that `config` asks for; `directory`: the run directory, or None for a run that has none."""
    path = config.jsonl or (None if directory is None else Path(directory) / "metrics.jsonl")
    loggers: list[Logger] = [] if path is None else [JsonlLogger(path)]
    if config.console:
        loggers.append(ConsoleLogger())
    if config.wandb is not None:
        loggers.append(WandbLogger(config, directory))
    return MultiLogger(loggers)


def as_logger(
    value: Logger | LoggerConfig | str | os.PathLike[str] | None, directory: str | os.PathLike[str] | None = None
) -> Logger:
    """A logger from a logger, its config, the path of a JSONL file, or None (the defaults of `LoggerConfig`)."""
    if value is None or isinstance(value, LoggerConfig):
        return make_logger(value or LoggerConfig(), directory)
    if isinstance(value, str | os.PathLike):
        return JsonlLogger(value)
    if isinstance(value, Logger):
        return value
    raise ConfigError(f"cannot log to {value!r}; give a LoggerConfig, the path of a JSONL file, or a Logger")


def read_records(path: str | os.PathLike[str]) -> list[Record]:
    """All records of a JSONL file. Raises `ConfigError` for a missing file and for rows that are no records."""
    try:
        rows = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        cure = "give the metrics.jsonl of a run directory (`rlkit train` with a run directory writes one)"
        raise ConfigError(f"cannot read records from {path}: {error.strerror or error}; {cure}") from None
    records = []
    for number, row in enumerate(rows[:-1], start=1):  # after the last newline: nothing, or a half-written row
        try:
            records.append(Record.from_json(row.decode()))
        except ValueError as error:  # ConfigError is one, UnicodeDecodeError too
            raise ConfigError(f"{path}, line {number}: {error}") from None
    return records


def redact(value: Any) -> Any:
    """Plain data with the values of keys that name a token, secret, password or API key replaced."""
    if isinstance(value, dict):
        return {key: "<redacted>" if _SECRET.search(str(key)) else redact(item) for key, item in value.items()}
    return [redact(item) for item in value] if isinstance(value, list | tuple) else value


def human_count(count: float) -> str:
    """A count in at most five letters: 950, 12.5k, 1.2M, 3B."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(count) >= size * 0.9995:
            return f"{count / size:.3g}{unit}"
    return f"{count:.3g}"


def human_seconds(seconds: float) -> str:
    """A duration: 42s, 3m05s, 2h10m."""
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def _positions(found: dict[str, Any]) -> dict[str, Position]:
    return {stream: (position[0], position[1]) for stream, position in found.items()}


def _wandb_row(record: Record) -> dict[str, Any]:
    suffix = "" if record.seed is None else f"/seed_{record.seed}"
    row: dict[str, Any] = {"env_steps": record.env_steps, "updates": record.updates, "wall_seconds": record.wall_seconds}
    row |= {f"{name}{suffix}": float(value) for name, value in record.metrics.items()}
    return row if record.text is None else row | {record.kind: record.text}


def _number_to_json(value: Any) -> float | str | None:
    number = float(value)
    if math.isfinite(number):
        return number
    return None if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _number_from_json(value: float | str | None) -> float:
    return math.nan if value is None else float(value)
