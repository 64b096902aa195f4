"""The loggers of a run, made as its settings say. The JSONL file is the source of truth."""

import os
from collections.abc import Sequence
from pathlib import Path

from rlkit.errors import ConfigError, require
from rlkit.protocols import follows
from rlkit.training.config import LoggerConfig
from rlkit.training.logs.console_logger import ConsoleLogger
from rlkit.training.logs.csv_logger import CsvLogger
from rlkit.training.logs.jsonl_logger import JsonlLogger
from rlkit.training.logs.logger import Logger
from rlkit.training.logs.multi_logger import MultiLogger
from rlkit.training.logs.tensorboard_logger import TensorboardLogger, require_tensorboardx
from rlkit.training.logs.wandb_logger import WandbLogger

OneLogger = Logger | LoggerConfig | str | os.PathLike[str]
LoggerSource = OneLogger | Sequence[OneLogger] | None


def check_logger(value: LoggerSource, directory: str | os.PathLike[str] | None) -> None:
    """Raises `ConfigError` if `as_logger` cannot make what is asked for; opens no files."""
    if isinstance(value, list | tuple):
        for each in value:
            check_logger(each, directory)
    if not isinstance(value, LoggerConfig):
        return
    for name in ("tensorboard", "csv"):
        require(
            directory is not None or not getattr(value, name),
            f"{name}=True writes to the run directory, but there is none",
            "set run_dir in the TrainerConfig",
        )
    if value.tensorboard:
        require_tensorboardx()
    in_sweep = value.wandb is not None and "WANDB_SWEEP_ID" in os.environ
    require(
        not in_sweep or value.wandb_runs == "one",
        'wandb_runs="per_seed" in a sweep, whose agent gives each process one W&B run',
        'leave it out, or set wandb_runs="one"',
    )


def jsonl_files(value: LoggerSource) -> list[Path]:
    """The JSONL files that it names; that in a run directory has no need to be named."""
    if isinstance(value, list | tuple):
        return [file for each in value for file in jsonl_files(each)]
    named = value.jsonl if isinstance(value, LoggerConfig) else value
    return [Path(named).expanduser()] if isinstance(named, str | os.PathLike) else []


def make_logger(config: LoggerConfig | None, directory: str | os.PathLike[str] | None) -> Logger:
    """Creates the loggers for `config` (None: none); `directory` is the run directory, or None.

    Raises what `check_logger` raises.
    """
    if config is None:
        return MultiLogger([])
    check_logger(config, directory)
    folder = None if directory is None else Path(directory)
    path = config.jsonl or (folder and folder / "metrics.jsonl")
    loggers: list[Logger] = [] if path is None else [JsonlLogger(path)]
    try:
        if config.console:
            loggers.append(ConsoleLogger())
        if folder is not None and config.csv:
            loggers.append(CsvLogger(folder / "metrics.csv"))
        if folder is not None and config.tensorboard:
            loggers.append(TensorboardLogger(folder / "tensorboard"))
        if config.wandb is not None:
            loggers.append(WandbLogger(config, directory))
    except BaseException:
        MultiLogger(loggers).close()  # so that another try finds their files unlocked
        raise
    return MultiLogger(loggers)


def as_logger(
    value: LoggerSource,
    directory: str | os.PathLike[str] | None = None,
) -> Logger:
    """Creates a logger from a logger, its config, the path of a JSONL file, or None (defaults).

    Or from several of these. Loggers that are given are not closed with it.
    """
    if isinstance(value, list | tuple):
        return _together(value, directory)
    if value is None or isinstance(value, LoggerConfig):
        return make_logger(value or LoggerConfig(), directory)
    if isinstance(value, str | os.PathLike):
        return JsonlLogger(value)
    if follows(value, Logger):
        return value
    raise ConfigError(
        f"cannot log to {value!r}; pass a LoggerConfig, the path of a JSONL file, a Logger, or a"
        " list of these"
    )


def _together(values: Sequence[OneLogger], directory: str | os.PathLike[str] | None) -> Logger:
    found: list[Logger] = []
    given = [value for value in values if follows(value, Logger)]
    try:
        for value in values:
            made = as_logger(value, directory)
            if isinstance(value, LoggerConfig) and isinstance(made, MultiLogger):
                found += made.loggers.values()
            else:
                found.append(made)
    except BaseException:
        MultiLogger(found, kept_open=given).close()
        raise
    return MultiLogger(found, kept_open=given)
