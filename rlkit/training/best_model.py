"""`BestModel`: a callback that keeps a copy of the best policy up to date."""

import os
import pathlib
import shutil

from rlkit.errors import RunDirectoryError, require
from rlkit.training.callbacks import Callback, RunView


class BestModel(Callback):
    """Keeps the policy of the best checkpoint in a directory of its own, for `load_policy`.

    The copy is small: neither optimiser nor environments nor replay memory are in it. It is
    replaced whenever a checkpoint is better, and always whole, whenever you look. Needs a run that
    saves checkpoints and evaluates. Raises `RunDirectoryError` if the directory exists when a run
    begins; one that is resumed goes on with it.
    """

    def __init__(self, directory: str | os.PathLike[str]):
        self.directory = pathlib.Path(os.path.abspath(os.path.expanduser(directory)))
        self.step: int | None = None  # that the copy is of; None: not known to this process

    def on_run_start(self, trainer: RunView) -> None:
        """Checks the directory."""
        is_free = trainer.outer_iteration > 0 or not self.directory.exists()
        fix = "choose another directory, or move it away"
        require(is_free, f"{self.directory} already exists", fix, RunDirectoryError)

    def on_checkpoint(self, trainer: RunView, iteration: int) -> None:
        """Copies the best policy if it is another one now; waits until it is on disk."""
        best = trainer.best_checkpoint
        if best is None or best == self.step:
            return
        new, old = (self.directory.with_name(f".{self.directory.name}-{x}") for x in ("new", "old"))
        shutil.rmtree(new, ignore_errors=True)  # of a process that was killed meanwhile
        shutil.rmtree(old, ignore_errors=True)
        trainer.export_policy(new)
        if self.directory.exists():
            self.directory.rename(old)
        new.rename(self.directory)
        shutil.rmtree(old, ignore_errors=True)
        self.step = best
