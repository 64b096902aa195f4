"""`BestModel`: a callback that keeps a copy of the best policy up to date."""

import json
import os
import pathlib
import shutil

from rlkit.errors import RunDirectoryError, require
from rlkit.training.callbacks import Callback, RunView
from rlkit.training.config import TrainerConfig
from rlkit.training.directories import absolute_path
from rlkit.validation import PlainData

_OWNER = "best_of.json"  # in the copy: the run and the step that it is of
_FILES = {"checkpoints", "config.yaml", _OWNER}


class BestModel(Callback):
    """Keeps the policy of the best checkpoint in a directory of its own, for `load_policy`.

    The copy is small: neither optimiser nor environments nor replay memory are in it. It is
    replaced by renaming whenever a checkpoint is better, so what you read is never half written. A
    resumed run, known by its `run_dir` or the directory in its `checkpointer_config`, continues to
    update it; any other directory that exists is left alone, also the copy of a run that was in the
    same place before.

    Raises `RunDirectoryError`, before a run directory is made if that can be told, if the directory
    exists and is not a copy of this run's, and `ConfigError`, when the run starts, if the run does
    not evaluate, save checkpoints and keep the best.
    """

    def __init__(self, directory: str | os.PathLike[str]):
        self.directory = absolute_path(directory)
        name = self.directory.name
        self._new, self._old = (self.directory.with_name(f".{name}-{x}") for x in ("new", "old"))

    @property
    def step(self) -> int | None:
        """The step of the checkpoint that the copy is of; None: there is no copy."""
        return self._owner().get("step")

    def check_config(self, config: TrainerConfig) -> None:
        """Raises `RunDirectoryError` unless the directory is free or this run's."""
        known = self._owner().get("run_dir")
        is_ours = known is not None and known == _place(config)
        fix = "choose another directory, or move it away"
        exists = os.path.lexists(self.directory)
        require(is_ours or not exists, f"{self.directory} already exists", fix, RunDirectoryError)

    def on_run_start(self, trainer: RunView) -> None:
        """Checks the directory, and completes what a kill interrupted."""
        require(
            trainer.keeps_best,
            "BestModel needs a run that evaluates, saves checkpoints and keeps the best",
            "set run_dir, and leave enable_evaluation and keep_best as they are",
        )
        if not self.directory.exists() and (self._old / _OWNER).is_file():
            self._old.rename(self.directory)
        self.check_config(trainer.config)
        require(  # what has not trained has no copy
            trainer.outer_iteration > 0 or not self.directory.exists(),
            f"{self.directory} is the copy of another run, which was in {_place(trainer.config)}",
            "choose another directory, or move it away",
            RunDirectoryError,
        )
        self._update(trainer)

    def on_checkpoint(self, trainer: RunView, iteration: int) -> None:
        """Copies the best policy if it is another one now; waits until it is on disk."""
        self._update(trainer)

    def _update(self, trainer: RunView) -> None:
        best = trainer.best_checkpoint
        if best is None or best == self.step:
            return
        _discard(self._new)
        _discard(self._old)
        trainer.export_policy(self._new)
        (self._new / _OWNER).write_text(
            json.dumps({"run_dir": _place(trainer.config), "step": best})
        )
        if self.directory.exists():
            self.directory.rename(self._old)
        self._new.rename(self.directory)
        _discard(self._old)

    def _owner(self) -> PlainData:
        try:
            owner = json.loads((self.directory / _OWNER).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return owner if isinstance(owner, dict) else {}


def _place(config: TrainerConfig) -> str | None:
    """The directory of the run, or of its checkpoints alone, by which it is known."""
    saves = config.checkpointer_config
    known = config.run_dir or (saves and saves.directory)
    return None if known is None else str(absolute_path(known))


def _discard(path: pathlib.Path) -> None:
    """Removes a copy that was left by a process that was killed, and nothing else."""
    if path.is_dir() and set(os.listdir(path)) <= _FILES:
        shutil.rmtree(path)
