"""`RecordVideo`: a callback that films the policy while it learns."""

import logging
import os
from pathlib import Path

from rlkit.errors import require, require_positive_integer
from rlkit.training.callbacks import Callback, RunView
from rlkit.training.config import TrainerConfig
from rlkit.training.directories import absolute_path
from rlkit.training.run_config import require_seed
from rlkit.training.video.movie_file import ENDINGS, check_movie_file

_OWNER = ".owner"  # in a directory that was chosen: the directory of the run

# Not `warnings.warn`: under `-W error`, a video that fails would end the training.
_warn = logging.getLogger("rlkit").warning


class RecordVideo(Callback):
    """Records a video of the policy after every `every` outer iterations.

    The files are `<directory>/iteration-<n>.mp4`; Weights & Biases gets each one, if the run is
    logged there. The training waits while a video is recorded, a second or more. If one cannot be,
    a warning says why, once, and the training goes on without videos. A resumed run records again
    what it repeats.

    Args:
        every: outer iterations from one video to the next.
        episodes: episodes in each video.
        seed_index: which of several parallel seeds is shown, counted from 0.
        directory: where the videos go. None: `videos` in the directory of the run.
        ending: ".mp4", which needs imageio-ffmpeg, or ".gif".

    Raises `ConfigError` for other arguments, when the Trainer is made if there is no directory or
    videos of this kind cannot be written, and when a new run starts if the directory holds such
    files already.
    """

    def __init__(
        self,
        *,
        every: int = 1,
        episodes: int = 1,
        seed_index: int = 0,
        directory: str | os.PathLike[str] | None = None,
        ending: str = ".mp4",
    ):
        require_positive_integer("RecordVideo every", every, example=5)
        require_positive_integer("RecordVideo episodes", episodes, example=1)
        require(
            ending in ENDINGS,
            f"RecordVideo ending must be one of {', '.join(ENDINGS)}, got {ending!r}",
            "pass ending='.gif'",
        )
        self.every, self.episodes, self.seed_index = every, episodes, seed_index
        self.directory, self.ending = directory, ending
        self._failed = False
        self._at = Path()  # where the videos of this run are, wherever the process goes

    def check_config(self, config: TrainerConfig) -> None:
        """Raises `ConfigError` if there is no directory for videos, or no such seed."""
        self._folder(config)
        require_seed(self.seed_index, config.num_seeds)
        check_movie_file(f"video{self.ending}", overwrite=True)

    def on_run_start(self, trainer: RunView) -> None:
        """Raises `ConfigError` rather than replace the videos of another run."""
        self._at = folder = self._folder(trainer.config)
        if self.directory is None:  # in the run's own directory
            return
        taken, mark = sorted(folder.glob("iteration-*")), folder / _OWNER
        run_dir = trainer.config.run_dir
        owner = "" if run_dir is None else str(absolute_path(run_dir))
        marked = mark.read_text(encoding="utf-8") if mark.is_file() else ""
        is_ours = bool(owner) and marked == owner
        # A run that goes on may have been moved since; a branch goes on as well, as another run.
        is_resumed = trainer.outer_iteration > 0 and not (marked and Path(marked).is_dir())
        fix = "choose another directory, or move them away"
        first = taken[0].name if taken else ""
        problem = f"{folder} already holds {first} of another run"
        require(is_ours or is_resumed or not taken, problem, fix)
        if owner:
            folder.mkdir(parents=True, exist_ok=True)
            mark.write_text(owner, encoding="utf-8")

    def on_iteration_end(self, trainer: RunView, iteration: int, metrics: dict[str, float]) -> None:
        """Records the newest policy, which may already be that of the next outer iteration."""
        if self._failed or iteration % self.every:
            return
        path = self._at / f"iteration-{iteration}{self.ending}"
        try:
            trainer.record_video(
                path, episodes=self.episodes, seed_index=self.seed_index, overwrite=True
            )
        except Exception as error:  # whatever a picture fails by, the training is fine
            self._failed = True
            reason = f"{type(error).__name__}: {error}"
            _warn("no video could be recorded (%s); training continues without videos", reason)

    def _folder(self, config: TrainerConfig) -> Path:
        known = self.directory is not None or config.run_dir is not None
        fix = "pass directory='videos', or set run_dir"
        require(known, "RecordVideo has no directory for its videos", fix)
        return absolute_path(self.directory or os.path.join(str(config.run_dir), "videos"))
