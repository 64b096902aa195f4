"""`RunFiles`: the run directory of a run, its logs, checkpoints, summary and learning curve."""

import contextlib
import dataclasses
import json
import logging
import math
import os
import pathlib
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

from rlkit.errors import CheckpointError, ConfigError, RunDirectoryError, require, shown
from rlkit.protocols import follows
from rlkit.training import run_config
from rlkit.training.config import CheckpointerConfig, LoggerConfig, Plan, TrainerConfig, make_plan
from rlkit.training.directories import absolute_path, is_address
from rlkit.training.files.checkpointer import Checkpointer
from rlkit.training.files.exported_policy import export_policy
from rlkit.training.files.other_processes import UnwrittenCheckpoints
from rlkit.training.files.run_description import require_same_settings
from rlkit.training.files.run_directory import RunDirectory, inspect
from rlkit.training.logs.loaded_run import Status
from rlkit.training.logs.logger import Outcome, Publisher
from rlkit.training.logs.loggers import (
    LoggerSource,
    as_logger,
    check_logger,
    jsonl_files,
    make_logger,
)
from rlkit.training.logs.records import read_records
from rlkit.training.logs.strict_json import to_strict_json
from rlkit.training.plain_yaml import dump_yaml
from rlkit.validation import PlainData

# Not `warnings.warn`: under `-W error`, a picture that fails would end the run.
_warn = logging.getLogger("rlkit").warning
Path = str | os.PathLike[str]
# settings that are paths, or hold some
_PATHS: dict[type, tuple[str, ...]] = {
    TrainerConfig: ("run_dir", "warm_start", "logger_config", "checkpointer_config"),
    LoggerConfig: ("jsonl",),
    CheckpointerConfig: ("directory",),
}
LENGTH = ("total_steps", "num_checkpoints", "epochs_per_checkpoint")  # settings of a Trainer


class RunFiles:
    """Opens the files of a run, each at most once, and closes those it opened.

    With a run directory, logs and checkpoints default to locations in it. Unless
    `accept_differences`, raises
    `RunDirectoryError` before anything is trained if the directory cannot be used, or holds a run
    with other settings. Where several processes train, only the main one has files.
    """

    def __init__(
        self,
        config: TrainerConfig,
        description: PlainData,
        *,
        logger: LoggerSource = None,
        checkpointer: Checkpointer | CheckpointerConfig | Path | None = None,
        accept_differences: bool = False,
        is_main: bool = True,
    ):
        self.run_directory: RunDirectory | None = None
        self._is_main = is_main
        self._accepts = accept_differences
        self.description = description
        self.is_logging = False
        self._has_published = False
        self._config = config
        closers: list[Callable[[], None]] = []
        self._closers = closers
        if not is_main:
            self.logger = make_logger(None, None)
            self.checkpointer = self._unwritten(config, checkpointer)
            return
        logs = config.logger_config if logger is None else logger
        check_logger(logs, config.run_dir)
        try:
            if config.run_dir is not None:
                _require_no_rows(logs, config.run_dir)
                self.run_directory = self._open_directory(config, description)
                closers.append(self.run_directory.close)
            folder = None if self.run_directory is None else str(self.run_directory.path)
            self.checkpointer = self._open_checkpointer(config, checkpointer)
            if self.checkpointer is not None and self.checkpointer is not checkpointer:
                closers.insert(0, self.checkpointer.close)
            self.logger = (
                make_logger(config.logger_config, folder)
                if logger is None
                else as_logger(logger, folder)
            )
            if self.logger is not logger:
                closers.insert(0, self.logger.close)
            if self.run_directory is not None and self.run_directory.has_leftovers:
                for file in self.run_directory.path.glob("wandb_run*.json"):
                    file.unlink()  # this is another run at W&B, perhaps with other settings
                self.logger.restore({})  # rows of a start that came to nothing are set aside
        except BaseException:
            self.close()
            raise

    def start_logging(self, run_info: Callable[[], PlainData]) -> None:
        """Tells the logger about the run, unless it knows; must come before the first record."""
        if not self.is_logging:
            self.is_logging = True
            self.logger.start(run_info())

    def checkpointer_for(self, step: int) -> Checkpointer:
        """The run's own checkpointer, to save `step` with.

        Raises `CheckpointError` if there is none, or if the step is already saved.
        """
        if self.checkpointer is None:
            raise CheckpointError(
                "this run has no checkpoints; set run_dir, or call save_checkpoint(path)"
            )
        require(
            step not in self.checkpointer.all_steps(),
            f"outer iteration {step} is already saved, and train_step() does not advance it",
            "use train_epoch(), or save_checkpoint(path) with another directory",
            CheckpointError,
        )
        return self.checkpointer

    def checkpointer_in(self, directory: Path) -> Checkpointer:
        """A checkpointer for another directory; saves the replay memory if the run's own does."""
        own = self.checkpointer or self._config.checkpointer_config
        save_replay = None if own is None else own.save_replay
        settings = CheckpointerConfig(directory=str(directory), save_replay=save_replay)
        kind: Any = Checkpointer if self._is_main else UnwrittenCheckpoints
        return kind(settings)

    def record_settings(self) -> None:
        """Records the settings of this part of the run in `config.yaml`; the old ones go."""
        if self.run_directory is not None:
            file = self.run_directory.config_file
            stored: Any = run_config.read_yaml(file)
            seed = (
                stored.get("seed") if self.description["seed"] is None else self.description["seed"]
            )
            self.run_directory.write_text(file.name, dump_yaml(self.description | {"seed": seed}))

    def record_devices(self) -> None:
        """Records in `config.yaml` on which devices the run trains from now on."""
        if self.run_directory is None:
            return
        file = self.run_directory.config_file
        stored: Any = run_config.read_yaml(file)
        own = {name: getattr(self._config, name) for name in ("devices", "shard")}
        if any(stored["trainer"].get(name, value) != value for name, value in own.items()):
            stored = stored | {"trainer": stored["trainer"] | own}
            self.run_directory.write_text(file.name, dump_yaml(stored))

    def record_length(self, plan: Plan) -> None:
        """Records in `config.yaml` that the run trains to the end of `plan`.

        Leaves the file alone if the run's own settings of its length are those that it holds.
        """
        if self.run_directory is None:
            return
        stored: Any = run_config.read_yaml(self.run_directory.config_file)
        if plan.phases:  # their lengths are those of the curriculum, up to `total_steps`
            total = {"total_steps": self._config.total_steps}
            if stored["trainer"].get("total_steps") != self._config.total_steps:
                stored = stored | {"trainer": stored["trainer"] | total}
                self.run_directory.write_text(
                    self.run_directory.config_file.name, dump_yaml(stored)
                )
            return
        own = make_plan(
            self._config,
            env_steps_per_iteration=plan.env_steps_per_iteration,
            prefill_steps=plan.prefill_steps,
        )
        settings = self.description["trainer"]
        if own == plan and all(stored["trainer"].get(name) == settings[name] for name in LENGTH):
            return
        length = {
            "total_steps": plan.total_steps,
            "num_checkpoints": None,
            "epochs_per_checkpoint": plan.epochs_per_checkpoint,
        }
        stored = stored | {"trainer": stored["trainer"] | length}
        self.run_directory.write_text(self.run_directory.config_file.name, dump_yaml(stored))

    def write_summary(self, summary: PlainData, *, replace: bool = True) -> None:
        """Writes `summary.json` and `learning_curve.png` if there is a run directory.

        Then hands the outcome of the run to loggers that publish it. Unless `replace`, does nothing
        if there is a summary already.
        """
        curve, directory = None, self.run_directory
        has_summary = self._has_published if directory is None else directory.summary_file.exists()
        if has_summary and not replace:
            return
        self._has_published = True
        if directory is not None:
            text = to_strict_json(summary, indent=2) + "\n"
            directory.write_text(directory.summary_file.name, text)
            self.logger.flush()
            curve = _draw_curve(directory, summary.get("eval_return_mean"))
        if follows(self.logger, Publisher):
            export = self.checkpointer and partial(
                export_policy, self.checkpointer, self.description, may_exist=True
            )
            self.logger.publish(Outcome(curve=curve, export_policy=export))

    def stop_reason(self) -> str | None:
        """Why the run in the directory ended early; None: it did not, or a signal stopped it."""
        file = None if self.run_directory is None else self.run_directory.summary_file
        try:
            reason = json.loads(file.read_text(encoding="utf-8"))["stop_reason"] if file else None
        except (OSError, ValueError, KeyError, TypeError):
            return None  # it has no summary yet, or a damaged one, which the run replaces
        return reason if reason not in signal.Signals.__members__ else None

    def write_status(self, status: Status, reason: str | None = None) -> None:
        """Writes `status.json` if there is a run directory, see `LoadedRun.status`."""
        if self.run_directory is not None:
            text = json.dumps({"status": status, "reason": reason}, indent=2) + "\n"
            self.run_directory.write_text(self.run_directory.status_file.name, text)

    @property
    def has_trained(self) -> bool:
        """Whether an earlier part of the run logged training, as far as its directory shows."""
        directory = self.run_directory
        if directory is None or directory.is_new:
            return False
        if directory.summary_file.exists():
            return True
        try:
            records = read_records(directory.metrics_file)
        except ConfigError:  # there is none, or it is damaged
            return False
        return any(record.kind == "train" for record in records)

    def flush(self) -> None:
        """Returns once everything handed over so far is on disk."""
        self.logger.flush()
        if self.checkpointer is not None:
            self.checkpointer.wait()

    def close(self) -> None:
        """Closes everything this object opened, even if closing one fails."""
        errors = []
        while self._closers:
            try:
                self._closers.pop(0)()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _open_directory(self, config: TrainerConfig, description: PlainData) -> RunDirectory:
        assert config.run_dir is not None
        if config.restore_checkpoint is None:
            directory = RunDirectory(config.run_dir)
        else:
            directory = RunDirectory.open(
                config.run_dir, must_exist=config.restore_checkpoint != "auto"
            )
        try:
            if directory.is_new:
                directory.write_text(directory.config_file.name, dump_yaml(description))
            elif not self._accepts:
                asked = dict(description)
                if asked["seed"] is None:  # unknown, or a key; keys are compared later
                    del asked["seed"]
                stored: Any = run_config.read_yaml(directory.config_file)
                require_same_settings(str(directory.path), stored, asked)
        except BaseException:
            directory.close()
            raise
        return directory

    def _open_checkpointer(
        self, config: TrainerConfig, checkpointer: Checkpointer | CheckpointerConfig | Path | None
    ) -> Checkpointer | None:
        if isinstance(checkpointer, Checkpointer):
            return checkpointer
        run = self.run_directory
        settings = _settings(config, checkpointer, run and run.checkpoint_directory)
        if settings is not None and settings.directory is not None:
            return Checkpointer(settings)
        require(
            config.restore_checkpoint is None,
            f"restore_checkpoint={config.restore_checkpoint!r} but there is nowhere to restore"
            " from",
            "leave out checkpointer_config=None"
            if settings is None
            else "set run_dir, or directory in checkpointer_config",
            CheckpointError,
        )
        return None

    def _unwritten(
        self, config: TrainerConfig, checkpointer: Checkpointer | CheckpointerConfig | Path | None
    ) -> Any:
        """Stands for the checkpointer of the main process."""
        if isinstance(checkpointer, Checkpointer):
            raise ConfigError(
                "each of several processes made a Checkpointer of its own; pass its"
                " CheckpointerConfig or its directory: process 0 opens it"
            )
        settings = _settings(config, checkpointer, config.run_dir)
        if settings is None or settings.directory is None:
            return None
        return UnwrittenCheckpoints(settings)


def located(settings: Any) -> Any:
    """Paths, and those in settings, from the root: the process may change its directory.

    Addresses, names that are missing and objects that are no settings stay as they are.
    """
    if isinstance(settings, list | tuple):
        return [located(each) for each in settings]
    if isinstance(settings, str | os.PathLike):
        text = os.fspath(settings)
        return settings if not text or is_address(text) else str(absolute_path(text))
    paths = {name: located(getattr(settings, name)) for name in _PATHS.get(type(settings), ())}
    return dataclasses.replace(settings, **paths) if paths else settings


def own_checkpoint_directory(
    config: TrainerConfig, checkpointer: Checkpointer | CheckpointerConfig | Path | None
) -> Path | None:
    """The directory of a run's own checkpoints; None: they are not saved."""
    if isinstance(checkpointer, Checkpointer):
        return checkpointer.directory
    own = None if config.run_dir is None else os.path.join(config.run_dir, "checkpoints")
    settings = _settings(config, checkpointer, own)
    return None if settings is None else settings.directory


def open_checkpoints(path: Path) -> Checkpointer:
    """The checkpoints of a run directory or checkpoint directory, opened read-only."""
    outer = absolute_path(path)
    inner = outer / "checkpoints"
    directory = os.fspath(inner if inner.is_dir() else outer)
    return Checkpointer(CheckpointerConfig(directory=directory), read_only=True)


def _require_no_rows(logger: LoggerSource, run_dir: str) -> None:
    """Raises `RunDirectoryError` if a new run would write into another one's file of records.

    When resumed, each of the two would move the other's rows out of it.
    """
    _, holds_run = inspect(run_dir)
    for file in () if holds_run else jsonl_files(logger):
        has_rows = False
        with contextlib.suppress(OSError):  # the logger says what is wrong with the file
            has_rows = file.is_file() and file.stat().st_size > 0
        fix = "name another file (--jsonl), or leave it out: metrics.jsonl is in the run directory"
        require(not has_rows, f"{file} already holds rows of another run", fix, RunDirectoryError)


def _draw_curve(directory: RunDirectory, mean: float | None) -> pathlib.Path | None:
    """Draws the learning curve of a run whose last evaluation had a return of `mean`.

    Returns its path; None if there is nothing to plot: the run was not evaluated, its logger writes
    elsewhere, or it continued a finished one and had nothing left to train.
    """
    logged = directory.metrics_file.exists()
    if not logged or mean is None or not math.isfinite(mean):
        return None
    from rlkit.training.logs.plotting import plot_runs

    try:
        if all(record.kind != "eval" for record in read_records(directory.metrics_file)):
            return None
        return plot_runs([directory.path], directory.curve_file)
    except ConfigError as error:  # a damaged row, or no disk space: the run itself is fine
        _warn("%s was not drawn: %s", directory.curve_file, error)
        return None


def _settings(
    config: TrainerConfig, checkpointer: CheckpointerConfig | Path | None, directory: Path | None
) -> CheckpointerConfig | None:
    """How the run's own checkpoints are saved, in `directory` unless they name another.

    None, or without a directory: they are not saved.
    """
    settings = config.checkpointer_config
    if isinstance(checkpointer, CheckpointerConfig):
        settings = checkpointer
    elif checkpointer is not None:
        require(
            isinstance(checkpointer, str | os.PathLike),
            f"cannot save checkpoints to {shown(checkpointer)}",
            "pass a CheckpointerConfig, the path of a directory, or a Checkpointer",
        )
        settings = _in_directory(settings or CheckpointerConfig(), checkpointer)
    if settings is not None and settings.directory is None and directory is not None:
        settings = _in_directory(settings, directory)
    return settings


def _in_directory(config: CheckpointerConfig, directory: Path) -> CheckpointerConfig:
    return dataclasses.replace(config, directory=os.fspath(directory))
