"""The directory of one run: who may write there, and where its files are."""

import fcntl
import functools
import json
import os
import pathlib
import re
from typing import Any, Self

import yaml

from rlkit.errors import RunDirectoryError, require
from rlkit.training.directories import (
    absolute_path,
    make_directory,
    require_no_address,
    write_atomically,
)
from rlkit.training.logs.loaded_run import CONFIG, LOCK, METRICS, STATUS, SUMMARY
from rlkit.training.plain_yaml import parse_yaml

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_CHECKPOINTS = "checkpoints"
_WANDB = "wandb"  # where W&B writes
BRANCH_MARK = ".tmp-branch"  # in a run that continues another one and has no checkpoint yet
_require = functools.partial(require, error=RunDirectoryError)


class RunDirectory:
    """A run directory, locked for this process until `close`.

    `RunDirectory(path)` starts a run; `open` can also continue one. A run is new if the directory
    is absent or empty, or holds a start that came to nothing (`has_begun`); otherwise, one with a
    `config.yaml` holds a run. Opening follows no symbolic link out of the directory. Every failure
    is a `RunDirectoryError`. The kernel holds the lock, so it ends with the process, however that
    ends.
    """

    def __init__(self, path: str | os.PathLike[str], *, may_exist: bool = False):
        self.path = _checked(path)
        """The absolute path of the directory."""
        self._lock: int | None = None
        try:
            # Checked first, so that no lock file ends up among somebody else's files.
            _require_ours(self.path, _foreign_files(self.path))
            make_directory(self.path)
            _require(
                os.access(self.path, os.W_OK | os.X_OK),
                f"{self.path} is not writable",
                "choose another",
            )
            self._lock = take_lock(self.path / LOCK)
            _require_ours(self.path, _foreign_files(self.path))
            require_no_links_out(self.path)
            _require_begun(self.path)
            holds_run = self.config_file.exists()
            self.is_new: bool = not holds_run or not (may_exist or has_begun(self.path))
            """Whether it held no run when it was opened, or a start that came to nothing."""
            self.has_leftovers = self.is_new and holds_run
            _require(
                self.is_new or may_exist,
                f"{self.path} already holds a run",
                "continue it with `rlkit resume`, or in Python with"
                ' restore_checkpoint="auto" in the TrainerConfig, or choose another directory',
            )
        except OSError as error:
            self.close()
            raise RunDirectoryError(
                f"cannot use {self.path}: {error.strerror}; choose another directory"
            ) from None
        except RunDirectoryError:
            self.close()
            raise

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, must_exist: bool = True) -> Self:
        """Opens the run at `path`; without one, raises if `must_exist`, else starts a new one."""
        if must_exist:  # before anything is created
            found = _checked(path)
            _require(
                (found / CONFIG).is_file(),
                f"{found} holds no run",
                f"name a directory with a {CONFIG}",
            )
        return cls(path, may_exist=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def config_file(self) -> pathlib.Path:
        """The settings of the run; its presence makes the directory a run."""
        return self.path / CONFIG

    @property
    def metrics_file(self) -> pathlib.Path:
        """The records of the run, one JSON object per line."""
        return self.path / METRICS

    @property
    def checkpoint_directory(self) -> pathlib.Path:
        """The directory for `CheckpointerConfig.directory`."""
        return self.path / _CHECKPOINTS

    @property
    def curve_file(self) -> pathlib.Path:
        """The plot of the evaluation return."""
        return self.path / "learning_curve.png"

    @property
    def summary_file(self) -> pathlib.Path:
        """The result of the finished run."""
        return self.path / SUMMARY

    @property
    def status_file(self) -> pathlib.Path:
        """Whether the run trains or why it ended, see `LoadedRun.status`."""
        return self.path / STATUS

    def write_text(self, name: str, text: str) -> pathlib.Path:
        """Writes the run's file `name` atomically, even if the power fails; returns its path."""
        if self._lock is None:
            raise RunDirectoryError(f"{self.path} is closed; open it again")
        plain = _NAME.fullmatch(name) is not None
        _require(plain, f"{name!r} is not a file name", "use letters, digits, '.', '_' and '-'")
        require_still_locked(self._lock, self.path)
        target = self.path / name
        write_atomically(target, text)
        return target

    def close(self) -> None:
        """Releases the lock. May be called twice."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def _checked(path: str | os.PathLike[str]) -> pathlib.Path:
    """The absolute path; raises `RunDirectoryError` if its last part is not a usable name."""
    text = os.fspath(path)
    _require(text != "", "the run directory has no name", "name one, such as runs/mine")
    require_no_address(text)
    _require("\0" not in text, f"{text!r} contains a NUL character", "choose another name")
    found = absolute_path(text)
    cure = "use at most 128 letters, digits, '.', '_' and '-', starting with a letter or digit"
    _require(_NAME.fullmatch(found.name) is not None, f"{found.name!r} is not a run name", cure)
    is_file = found.exists() and not found.is_dir()
    _require(not is_file, f"{found} is a file", "name a directory")
    return found


def inspect(path: str | os.PathLike[str]) -> tuple[pathlib.Path, bool]:
    """The absolute path, and whether it holds a run; creates and locks nothing.

    Raises `RunDirectoryError` if it cannot hold a run: a file, an unusable name, or a directory
    with other files.
    """
    found = _checked(path)
    _require_ours(found, _foreign_files(found))
    _require_begun(found)
    return found, (found / CONFIG).is_file()


def has_begun(path: pathlib.Path) -> bool:
    """Whether the run in `path` has anything to lose: a checkpoint, a summary, a row of metrics.

    A start that failed, or was killed while it compiled, has not; nor has one that only evaluated
    its first parameters. One whose settings name files elsewhere counts as begun, since they are
    not looked at here.
    """
    checkpoints, metrics = path / _CHECKPOINTS, path / METRICS
    saved = os.listdir(checkpoints) if checkpoints.is_dir() else []
    is_kept = any(name.isdecimal() or name.startswith("damaged-") for name in saved)
    if is_kept or (path / SUMMARY).exists():
        return True
    try:
        trainer = parse_yaml((path / CONFIG).read_text(encoding="utf-8"))["trainer"]
        elsewhere = (trainer.get("logger_config") or {}).get("jsonl") or (
            trainer.get("checkpointer_config") or {}
        ).get("directory")
        rows = metrics.read_text(encoding="utf-8") if metrics.exists() else ""
        has_trained = any(_is_of_training(json.loads(row)) for row in rows.splitlines())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        return True  # what cannot be read is not ours to replace
    return bool(elsewhere) or has_trained


def _is_of_training(row: dict[str, Any]) -> bool:
    """Whether a row tells of more than messages and an evaluation before the first update."""
    if row["kind"] in ("event", "warning", "error"):
        return False
    return row["kind"] != "eval" or row["updates"] > 0


def require_no_links_out(path: pathlib.Path) -> None:
    """Raises `RunDirectoryError` for a symbolic link in a directory that leads out of it.

    What a run writes, cuts and deletes is then inside, whoever made the directory.
    """
    inside = os.path.realpath(path)
    for folder, folders, files in os.walk(inside, followlinks=False):
        names = (*folders, *files)
        if folder == inside and _WANDB in folders:  # W&B links its logs to where it keeps them
            folders.remove(_WANDB)
        for name in names:
            found = os.path.join(folder, name)
            if not os.path.islink(found):
                continue
            target = os.path.realpath(found)
            _require(
                os.path.commonpath([inside, target]) == inside,
                f"{found} is a symbolic link out of the run, to {target}",
                "replace it by what it points to; checkpoints elsewhere have a setting, directory",
            )


def _require_begun(path: pathlib.Path) -> None:
    """Raises `RunDirectoryError` for a branch that would train from scratch."""
    is_cut_short = (path / BRANCH_MARK).exists() and (path / CONFIG).is_file()
    problem = f"{path} is an unfinished branch: it was interrupted before its first checkpoint"
    _require(not is_cut_short, problem, "remove it, and branch off again")


def _foreign_files(path: pathlib.Path) -> list[str]:
    """The files in a directory that is not a run's.

    Ignores the lock and temporary files, which a run killed early leaves behind.
    """
    if not path.is_dir() or (path / CONFIG).is_file():
        return []
    return sorted(
        name for name in os.listdir(path) if name != LOCK and not name.startswith(".tmp-")
    )


def _require_ours(path: pathlib.Path, foreign: list[str]) -> None:
    problem = (
        f"{path} is not a run directory: it holds other files ({', '.join(foreign[:3])}) and no"
        f" {CONFIG}"
    )
    _require(not foreign, problem, "choose a new or empty directory")


def take_lock(path: pathlib.Path, what: str | None = None) -> int:
    """The descriptor of the locked file, which holds our process id.

    The lock ends when it is closed. Raises `RunDirectoryError` if somebody else has it, about
    `what` it locks (None: its directory).
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        who = "this" if owner == str(os.getpid()) else "another"
        problem = f"{what or path.parent} is in use by {who} process (pid {owner})"
        raise RunDirectoryError(
            f"{problem}; wait for it to end or choose another directory"
        ) from None
    except OSError:
        os.close(descriptor)
        raise
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def require_still_locked(lock: int, directory: pathlib.Path) -> None:
    """Raises `RunDirectoryError` if another run has begun in the place of a removed directory."""
    try:
        is_ours = os.path.samestat(os.fstat(lock), os.stat(directory / LOCK))
    except FileNotFoundError:  # only our lock was removed, or nothing else is there yet
        return
    problem = f"{directory} was removed while a run wrote to it, and another run began there"
    _require(is_ours, problem, "start this one again in another directory")
