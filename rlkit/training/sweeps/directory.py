"""`SweepDirectory`: the directory of a sweep, locked while it trains. No JAX."""

import os
import shutil
from pathlib import Path
from typing import Self

from rlkit.errors import RunDirectoryError, require
from rlkit.training.directories import SWEEP, make_directory, write_atomically
from rlkit.training.files.run_directory import take_lock
from rlkit.training.logs.loaded_run import LOCK, SUMMARY
from rlkit.training.run_config import read_yaml
from rlkit.training.sweeps.config import SweepConfig, dump, from_dict, load, to_dict
from rlkit.training.sweeps.results import ResultFile


def holds_sweep(path: str | os.PathLike[str]) -> bool:
    """Whether a directory is that of a sweep."""
    return (Path(path) / SWEEP).is_file()


class SweepDirectory:
    """The files of a sweep.

    sweep.yaml has its settings, results.jsonl a row for each trial and rung, `trials` the run
    directories of the trials, and `together` those of programs that train several, until the sweep
    is finished. Raises `RunDirectoryError` if the directory holds another sweep or anything else,
    or is in use; `ConfigError` if there is no sweep to continue.
    """

    def __init__(self, path: str | os.PathLike[str], config: SweepConfig | None):
        self.path = Path(os.path.abspath(os.path.expanduser(path)))
        held = holds_sweep(self.path)
        require(
            held or config is not None,
            f"{self.path} holds no sweep",
            f"name a directory with a {SWEEP}, or start one with `rlkit sweep`",
            RunDirectoryError,
        )
        foreign = [] if held or not self.path.is_dir() else sorted(os.listdir(self.path))
        foreign = [name for name in foreign if name != LOCK and not name.startswith(".tmp-")]
        require(
            not foreign and not self.path.is_file(),
            f"{self.path} is there already, and holds no sweep",
            "choose a new or empty directory",
            RunDirectoryError,
        )
        make_directory(self.path)
        self._lock = take_lock(self.path / LOCK)
        try:
            if held:
                self.config = load(self.path / SWEEP)
                require(
                    config is None or to_dict(config) == _plain(self.path / SWEEP),
                    f"{self.path} holds a sweep with other settings",
                    "choose another directory, or continue it with `rlkit resume`",
                    RunDirectoryError,
                )
            else:
                assert config is not None
                self.config = config
                self.write_text(SWEEP, dump(config))
            (self.path / "trials").mkdir(exist_ok=True)
        except BaseException:
            self.close()
            raise
        self.results = ResultFile(self.path / "results.jsonl")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Releases the lock."""
        os.close(self._lock)

    @property
    def together(self) -> Path:
        """Holds the runs of programs that train several trials."""
        return self.path / "together"

    @property
    def title(self) -> str:
        """What is trained, for a picture."""
        run = self.config.run
        return f"{run.algorithm} on {run.env.id}"

    def joint(self, rung: int, group: int) -> Path:
        """The run directory of the program that trains a group up to a rung."""
        return self.together / f"rung-{rung}-group-{group}"

    def trial(self, trial: int) -> Path:
        """The run directory of a trial."""
        return self.path / "trials" / f"{trial:03d}"

    def has_trial(self, trial: int) -> bool:
        """Whether the run directory of a trial is complete."""
        return (self.trial(trial) / SUMMARY).is_file()

    def fresh_trial(self, trial: int) -> Path:
        """The directory of a trial, without what an interrupted attempt to write it left."""
        found = self.trial(trial)
        if not self.has_trial(trial):
            shutil.rmtree(found, ignore_errors=True)
        return found

    def is_split(self, group: int) -> bool:
        """Whether the trials of a group are trained one by one, since they failed together."""
        return (self.together / f"group-{group}-one-by-one").exists()

    def split(self, group: int) -> None:
        """From now on, the trials of a group are trained one by one."""
        self.together.mkdir(exist_ok=True)
        (self.together / f"group-{group}-one-by-one").touch()

    def write_text(self, name: str, text: str) -> None:
        """Writes a file of the sweep atomically. Raises `RunDirectoryError` if it cannot."""
        write_atomically(self.path / name, text)


def _plain(path: Path) -> object:
    """The settings in a sweep's file, completed by their defaults."""
    return to_dict(from_dict(read_yaml(path)))
