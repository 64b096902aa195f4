"""`rlkit video`: episodes of a trained policy as an MP4 or a GIF."""

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlkit.cli import flags, trained
from rlkit.validation import Episodes, PositiveInt

if TYPE_CHECKING:
    from rlkit.training.video.film import Film

COMMAND = "rlkit video"
EXAMPLES = f"""examples:
  {COMMAND} runs/mine
  {COMMAND} runs/mine --output pole.gif --episodes 1
  {COMMAND} runs/mine --checkpoint latest --seed-index 0 --sampled"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class VideoFlags(trained.PlayFlags):
    """Records episodes of the policy of a run as a video."""

    output: str | None = None
    """File to write, as mp4 or gif, by its ending.
    None: videos/checkpoint-STEP.mp4 in the directory of the run, or -2.mp4 and so on.
    """
    overwrite: bool = False
    """Replace the file if it exists."""
    episodes: Episodes = 3
    """Number of episodes."""
    sampled: bool = False
    """Sample actions, as in training; otherwise the most likely ones are taken."""
    max_steps: PositiveInt | None = None
    """Longest episode to show, in environment steps; None: the whole episode."""
    fps: PositiveInt | None = None
    """Frames per second; None: as the environment says."""


def run(arguments: Sequence[str]) -> int:
    """Records the video and returns the exit code."""
    chosen = flags.parse(VideoFlags, arguments, command=COMMAND, epilogue=EXAMPLES)
    video = record(chosen, ".mp4")
    many = "episode, return" if len(video.returns) == 1 else "episodes, returns"
    returns = ", ".join(f"{value:.4g}" for value in video.returns)
    cut = chosen.max_steps is not None and chosen.max_steps in video.lengths
    ending = f" (episodes end after {chosen.max_steps:,} steps)" if cut else ""
    print(f"{video.path}: {len(video.returns)} {many} {returns}{ending}")
    return 0


def record(chosen: VideoFlags, ending: str) -> "Film":
    """Records the video; `ending` is that of the file if the flags name none."""
    trained.check(chosen)
    from rlkit.training.video.movie_file import check_movie_file

    file = chosen.output or f"video{ending}"
    check_movie_file(file, overwrite=chosen.overwrite or not chosen.output)
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")  # which it reads when it is imported
    policy = trained.load(chosen)
    name = f"checkpoint-{policy.checkpoint_step}{ending}"
    default = os.path.join(chosen.run_dir, "videos", name)
    return policy.record_video(
        chosen.output or (default if chosen.overwrite else flags.free_name(default)),
        episodes=chosen.episodes,
        deterministic=not chosen.sampled,
        seed=chosen.seed,
        max_steps=chosen.max_steps,
        fps=chosen.fps,
        overwrite=chosen.overwrite,
    )
