"""`SweepFiles`: where the files of a sweep are, and who may write them. No JAX."""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlkit.errors import RlkitError, RunDirectoryError, require
from rlkit.training.directories import (
    SWEEP,
    make_directory,
    require_no_address,
    write_atomically,
)
from rlkit.training.files.run_directory import take_lock
from rlkit.training.logs.loaded_run import LOCK, SUMMARY
from rlkit.training.run_config import read_yaml
from rlkit.training.sweeps.config import SweepConfig, dump, from_dict, load, to_dict
from rlkit.training.sweeps.results import ResultFile, Results, TrialResult

POLL = 0.5  # seconds between two looks at a lock that another process holds


def holds_sweep(path: str | os.PathLike[str]) -> bool:
    """Whether a directory is that of a sweep."""
    return (Path(path) / SWEEP).is_file()


class SweepFiles:
    """Where the files of a sweep are.

    sweep.yaml has its settings, results.jsonl a row for each trial and rung, and `trials` the run
    directories of the trials. `together` is what groups of trials leave until the sweep is
    finished: their plan, the run directories of programs that train several, their results. Each
    of these files is written by one process, that of a group or that of the sweep, so that groups
    may be trained on several machines. A group is named by the number of its first trial.
    """

    def __init__(self, path: Path, config: SweepConfig):
        self.path, self.config = path, config
        self._collected = ResultFile(path / "results.jsonl")

    @property
    def together(self) -> Path:
        """What groups leave until the sweep is finished."""
        return self.path / "together"

    @property
    def title(self) -> str:
        """What is trained, for a picture."""
        run = self.config.run
        return f"{run.algorithm} on {run.env.id}"

    def plan(self, first: int) -> Path:
        """The plan of a batch of trials, by the number of the first one."""
        return self.together / f"plan-{first:03d}.json"

    def joint(self, rung: int, group: int) -> Path:
        """The run directory of the program that trains a group up to a rung."""
        return self.together / f"rung-{rung}-group-{group}"

    def log(self, group: int) -> Path:
        """What the process of a group said, if it has one of its own."""
        return self.together / f"group-{group}.log"

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
        (self.together / f"group-{group}-one-by-one").touch()

    def results(self) -> Results:
        """What all trials reached, by (rung, trial), as far as groups have said."""
        found = self._collected.read()
        for path in self.together.glob("group-*.jsonl"):
            found |= ResultFile(path).read()
        return {place: found[place] for place in sorted(found)}

    def add_results(self, group: int, results: Sequence[TrialResult]) -> None:
        """Writes what trials of a group reached; its process alone may."""
        ResultFile(self.together / f"group-{group}.jsonl").add(results)

    def collect(self) -> None:
        """Writes the results of all groups to results.jsonl; the process of the sweep alone may."""
        found = self.results()
        if found != self._collected.read():
            self._collected.write(list(found.values()))

    @contextlib.contextmanager
    def locked_group(self, group: int, patience: float = 0.0) -> Iterator[None]:
        """Trains the group in this process alone.

        Waits up to `patience` seconds for another one that has it, then raises
        `RunDirectoryError`.
        """
        make_directory(self.together)
        lock, deadline = self.together / f"group-{group}.lock", time.monotonic() + patience
        while True:
            try:
                descriptor = take_lock(lock, f"the group of trial {group} in {self.path}")
                break
            except RunDirectoryError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL)
        try:
            yield
        finally:
            os.close(descriptor)

    def write_text(self, name: str, text: str) -> None:
        """Writes a file of the sweep atomically. Raises `RunDirectoryError` if it cannot."""
        write_atomically(self.path / name, text)


def sweep_in(path: str | os.PathLike[str]) -> SweepFiles:
    """The sweep in a directory, for a process that trains one of its groups.

    Raises `RunDirectoryError` if there is none.
    """
    found = _absolute(path)
    _require_sweep(found, holds_sweep(found))
    return SweepFiles(found, load(found / SWEEP))


@contextlib.contextmanager
def locked_sweep(path: str | os.PathLike[str], config: SweepConfig | None) -> Iterator[SweepFiles]:
    """The sweep in a directory, which is made if there is none; this process alone plans it.

    `config` is what it tries; None: what its file says. Raises `RunDirectoryError` if the directory
    holds another sweep or anything else, or is in use, or if there is no sweep to continue. A new
    one in which an `RlkitError` comes before any training is removed.
    """
    found = _absolute(path)
    held = holds_sweep(found)
    _require_sweep(found, held or config is not None)
    foreign = [] if held or not found.is_dir() else sorted(os.listdir(found))
    foreign = [name for name in foreign if name != LOCK and not name.startswith(".tmp-")]
    require(
        not foreign and not found.is_file(),
        f"{found} is there already, and holds no sweep",
        "choose a new or empty directory",
        RunDirectoryError,
    )
    make_directory(found)
    lock = take_lock(found / LOCK)
    try:
        if held:
            files = SweepFiles(found, load(found / SWEEP))
            require(
                config is None or to_dict(config) == _plain(found / SWEEP),
                f"{found} holds a sweep with other settings",
                "choose another directory, or continue it with `rlkit resume`",
                RunDirectoryError,
            )
        else:
            assert config is not None
            files = SweepFiles(found, config)
            files.write_text(SWEEP, dump(config))
        (found / "trials").mkdir(exist_ok=True)
        yield files
    except RlkitError:
        if not held:
            _forget_start(found)
        raise
    finally:
        os.close(lock)


def _forget_start(path: Path) -> None:
    """Removes a sweep that ended before it trained anything, so that it can be started again."""
    begun = [*path.glob("trials/*"), *path.glob("together/rung-*"), *path.glob("results*")]
    if not begun:
        (path / SWEEP).unlink(missing_ok=True)
        for name in ("trials", "together"):
            shutil.rmtree(path / name, ignore_errors=True)


def _absolute(path: str | os.PathLike[str]) -> Path:
    require_no_address(path)
    return Path(os.path.abspath(os.path.expanduser(path)))


def _require_sweep(path: Path, is_there: bool) -> None:
    require(
        is_there,
        f"{path} holds no sweep",
        f"name a directory with a {SWEEP}, or start one with `rlkit sweep`",
        RunDirectoryError,
    )


def _plain(path: Path) -> object:
    """The settings in a sweep's file, completed by their defaults."""
    return to_dict(from_dict(read_yaml(path)))
