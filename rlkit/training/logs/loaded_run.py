"""`load_run`: the settings, records and results of a run, read from its directory. No JAX."""

import dataclasses
import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import yaml

from rlkit.errors import ConfigError, RunDirectoryError, did_you_mean, require
from rlkit.training.directories import near_run, require_copied
from rlkit.training.logs.records import Record, read_records
from rlkit.training.logs.series import Series, seeds_in, series
from rlkit.training.plain_yaml import parse_yaml
from rlkit.validation import PlainData

if TYPE_CHECKING:
    import pandas as pd

CONFIG, METRICS, SUMMARY = "config.yaml", "metrics.jsonl", "summary.json"
STATUS, LOCK = "status.json", ".lock"
Status = Literal["running", "finished", "stopped", "failed", "killed", "unknown"]
_PLAN = re.compile(r"training (?:from step ([\d,]+) )?to ([\d,]+) environment steps")
_REFILL = re.compile(r"the replay buffer was not saved: ([\d,]+) steps")
_PHASE = re.compile(r"(phase (\d+)) of \d+(?: \((.*)\))? begins: ")
COLUMNS = ("kind", "env_steps", "updates", "wall_seconds", "seed")  # of a frame, before metrics


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LoadedRun:
    """A run as it was when it was read; made by `load_run`."""

    directory: Path
    """The directory it was read from."""
    config: PlainData = dataclasses.field(repr=False)
    """The settings in `config.yaml`; {} without one."""
    summary: PlainData = dataclasses.field(repr=False)
    """The contents of `summary.json`; {} while the run has not ended."""
    records: tuple[Record, ...] = dataclasses.field(repr=False)
    """All records, text included, in the order in which they were logged."""

    @property
    def status(self) -> Status:
        """What the run does now, or how it ended.

        "stopped": it was asked to stop early, or interrupted; "failed": by an error, see
        `status_reason`; "killed": it ended without a word; "unknown": it never trained, or before
        runs said so.
        """
        status = self._status.get("status", "unknown")
        if status != "running":
            return status
        return "running" if _is_locked(self.directory / LOCK) else "killed"

    @property
    def status_reason(self) -> str | None:
        """What stopped it, or the error that it failed with; None otherwise."""
        return self._status.get("reason")

    @property
    def _status(self) -> PlainData:
        try:
            return dict(json.loads((self.directory / STATUS).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return {}

    @property
    def algorithm(self) -> str | None:
        """Name of the algorithm; None: the settings have none."""
        return algorithm_in(self.config)

    @property
    def env(self) -> str | None:
        """Id of the environment; None: the settings have none."""
        return env_in(self.config)

    @property
    def num_seeds(self) -> int:
        """Number of parallel seeds, by the records."""
        return max(len(seeds_in(self.records)), 1)

    @property
    def extended_at(self) -> list[int]:
        """Environment steps at which the finished run was extended."""
        found, end, refilled = [], None, 0
        for record in self.records:
            if record.kind != "event":
                continue
            if refill := _REFILL.match(record.text or ""):
                refilled = _count(refill[1])  # on top of the end
            elif plan := _PLAN.match(record.text or ""):
                start, stop = (_count(part or "0") for part in plan.groups())
                found += [end] if end is not None and start - refilled == end else []
                end, refilled = stop, 0
        return found

    @property
    def phases_at(self) -> list[tuple[int, str]]:
        """(environment steps, name) of each phase of its curriculum but the first."""
        events = ((_PHASE.match(x.text or ""), x) for x in self.records if x.kind == "event")
        found = {
            int(match[2]): (record.env_steps, match[3] or match[1])
            for match, record in events
            if match
        }
        return [found[number] for number in sorted(found) if number > 1]

    @property
    def metrics(self) -> list[str]:
        """The names of all metrics, in the order in which they first appear."""
        return list(dict.fromkeys(name for record in self.records for name in record.metrics))

    def arrays(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """(env_steps [K], values [S, K]) of `metric`: a row for each seed, also if there is one.

        K counts the moments with the metric; where a seed lacks it, or has no number, its value is
        NaN. A metric of all seeds together, such as train/steps_per_second, has one row. Raises
        `ConfigError` for an unknown metric.
        """
        found = self.series(metric)
        return found.env_steps, found.seeds if len(found.seeds) else found.together[None]

    def series(self, metric: str) -> Series:
        """`metric` over steps and time, with its mean over seeds as logged.

        Raises `ConfigError` for an unknown metric.
        """
        known = sorted(self.metrics)
        fix = (
            "wait for its first evaluation, or train longer; a logger of your own takes the place"
            " of the others, so pass logger=[LoggerConfig(), yours] in its script"
        )
        own, elsewhere = self.directory / METRICS, _jsonl_in(self.config)
        if elsewhere and not own.exists():
            fix = f"its records are in {elsewhere} (--jsonl): copy that file to {own}"
        require(bool(known), f"{self.directory} has no metrics yet", fix)
        if metric not in known:
            fix = did_you_mean(metric, known)
            others = f" It has {', '.join(known)}" if fix.startswith("did you mean") else ""
            raise ConfigError(f"{self.directory} has no metric {metric!r}; {fix}{others}")
        return series(self.records, metric)

    def frame(self) -> "pd.DataFrame":
        """A row for each record of numbers and each seed.

        The columns are kind, env_steps, updates, wall_seconds, seed (its index, from 0), then the
        metrics, NaN where a record lacks one. With several seeds, their logged means are left out:
        `groupby` gives them. What was only logged for all seeds together has rows without a seed.
        """
        return to_frame(list(self.rows()))

    def rows(self) -> Iterator[PlainData]:
        """The rows of `frame`, without the metrics that they lack."""
        seeds = seeds_in(self.records)
        per_seed = {
            name for record in self.records if record.seed is not None for name in record.metrics
        }
        for record in self.records:
            metrics, seed = record.metrics, record.seed
            if seed is None and seeds:
                metrics = {name: x for name, x in metrics.items() if name not in per_seed}
            if metrics:
                seed = 0 if not seeds else seed
                when = (record.kind, record.env_steps, record.updates, record.wall_seconds, seed)
                yield dict(zip(COLUMNS, when, strict=True)) | metrics


def _count(text: str) -> int:
    return int(text.replace(",", ""))


def _is_locked(path: Path) -> bool:
    """Whether a process holds the lock of a run."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def load_run(directory: str | os.PathLike[str]) -> LoadedRun:
    """The settings, records and results in a run's directory, also while it trains.

    Raises `RunDirectoryError` if it holds no run, `ConfigError` for files that cannot be read.
    """
    fix = "pass the path of a run directory"
    require(isinstance(directory, str | os.PathLike), f"{directory!r} is not a path", fix)
    require_copied(directory)
    path = Path(directory).expanduser()
    require(
        holds_run(path),
        f"{path} does not contain a run",
        near_run(path)
        or f"pass the run_dir of a training run, a directory with a {CONFIG} or {METRICS}",
        RunDirectoryError,
    )
    metrics = path / METRICS
    return LoadedRun(
        directory=path,
        config=_read(path / CONFIG, parse_yaml),
        summary=_read(path / SUMMARY, json.loads),
        records=tuple(read_records(metrics)) if metrics.exists() else (),
    )


def holds_run(path: Path) -> bool:
    """Whether it is a directory with a run, perhaps one that has only just begun."""
    return (path / CONFIG).is_file() or (path / METRICS).is_file()


def to_frame(rows: list[PlainData], first: tuple[str, ...] = ()) -> "pd.DataFrame":
    """The frame of rows as `LoadedRun.rows` gives them, with other columns `first`."""
    import pandas as pd

    names = dict.fromkeys([*first, *COLUMNS, *(name for row in rows for name in row)])
    return pd.DataFrame(rows, columns=[*names]).astype({"seed": "Int64"})


def _read(path: Path, parse: Callable[[str], Any]) -> PlainData:
    """The mapping in a file; {} if there is no file."""
    if not path.is_file():
        return {}
    fix = "restore the file that the run wrote"
    try:
        found = parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())  # YAML's has several lines
        raise ConfigError(f"cannot read {path}: {problem}; {fix}") from None
    require(isinstance(found, dict), f"{path} has no names and values", fix)
    return found


def algorithm_in(settings: PlainData) -> str | None:
    """Name of the algorithm in the settings of a run; None: they have none."""
    return _name(settings.get("algorithm"))


def env_in(settings: PlainData) -> str | None:
    """Id of the environment in the settings of a run; None: they have none."""
    env = settings.get("env")
    return _name(env.get("id") if isinstance(env, dict) else env)


def _jsonl_in(settings: PlainData) -> str | None:
    """The file of records that the settings of a run name; None: it is in its directory."""
    trainer = settings.get("trainer")
    logs = trainer.get("logger_config") if isinstance(trainer, dict) else None
    return logs.get("jsonl") if isinstance(logs, dict) else None


def _name(part: object) -> str | None:
    """The name of a part; beside parts built in Python, it is stored as [name, settings]."""
    part = part[0] if isinstance(part, list) and part else part
    return part if isinstance(part, str) else None
