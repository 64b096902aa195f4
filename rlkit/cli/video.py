"""`rlkit video`: episodes of a trained policy as an MP4 or a GIF."""

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Literal

from rlkit import validation
from rlkit.cli import flags, own_env
from rlkit.cli.evaluate import check_step
from rlkit.training.config import TrainerConfig
from rlkit.training.run_config import Seed, read_settings, require_seed
from rlkit.validation import Count, Episodes, PositiveInt

COMMAND = "rlkit video"
EXAMPLES = f"""examples:
  {COMMAND} runs/mine
  {COMMAND} runs/mine --output pole.gif --episodes 1
  {COMMAND} runs/mine --checkpoint latest --seed-index 0 --sampled"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class VideoFlags:
    """Records episodes of the policy of a run as a video."""

    run_dir: flags.RunDir
    """Directory of the run."""
    output: str | None = None
    """File to write, as mp4 or gif, by its ending.
    None: videos/checkpoint-STEP.mp4 in the directory of the run, or -2.mp4 and so on.
    """
    overwrite: bool = False
    """Replace the file if it exists."""
    episodes: Episodes = 3
    """Number of episodes."""
    checkpoint: Count | Literal["latest", "best"] | None = None
    """Which policy: best, latest or the step of a checkpoint.
    None: the best one, or the latest if the run was never evaluated.
    """
    seed_index: Count | None = None
    """Which of several parallel seeds, counted from 0; None: the best one."""
    sampled: bool = False
    """Sample actions, as in training; otherwise the most likely ones are taken."""
    seed: Seed | None = None
    """Seed of the episodes; None: fixed episodes that differ from those during training."""
    max_steps: PositiveInt | None = None
    """Longest episode to show, in environment steps; None: the whole episode."""
    fps: PositiveInt | None = None
    """Frames per second; None: as the environment says."""
    env: str | None = None
    """The run's environment again, if it is your own class (module:Class):
    rlkit never imports code that is named in a file.
    """
    accept_differences: bool = False
    """Use the settings of config.yaml even if the checkpoint was trained with others."""


def run(arguments: Sequence[str]) -> int:
    """Records the video and returns the exit code."""
    chosen = flags.parse(VideoFlags, arguments, command=COMMAND, epilogue=EXAMPLES)
    flags.validate(chosen, VideoFlags)
    settings = read_settings(chosen.run_dir)
    own_env.check_run(own_env.id_in(settings), typed=chosen.env, run_dir=chosen.run_dir)
    config = validation.from_dict(TrainerConfig, settings["trainer"])
    require_seed(chosen.seed_index, config.num_seeds)
    check_step(chosen.checkpoint, chosen.run_dir, config)
    from rlkit.training.video.movie_file import check_movie_file

    check_movie_file(chosen.output or "video.mp4", overwrite=chosen.overwrite or not chosen.output)
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")  # which it reads when it is imported
    own_env.register(chosen.env)
    from rlkit.training.compile.compilation_cache import enable_compilation_cache
    from rlkit.training.policy import load_policy
    from rlkit.xla_cpu import enable

    enable_compilation_cache()
    enable()
    policy = load_policy(
        chosen.run_dir,
        which=chosen.checkpoint,
        seed_index=chosen.seed_index,
        accept_differences=chosen.accept_differences,
    )
    default = os.path.join(chosen.run_dir, "videos", f"checkpoint-{policy.checkpoint_step}.mp4")
    video = policy.record_video(
        chosen.output or (default if chosen.overwrite else flags.free_name(default)),
        episodes=chosen.episodes,
        deterministic=not chosen.sampled,
        seed=chosen.seed,
        max_steps=chosen.max_steps,
        fps=chosen.fps,
        overwrite=chosen.overwrite,
    )
    many = "episode, return" if len(video.returns) == 1 else "episodes, returns"
    returns = ", ".join(f"{value:.4g}" for value in video.returns)
    print(f"{video.path}: {len(video.returns)} {many} {returns}")
    return 0
