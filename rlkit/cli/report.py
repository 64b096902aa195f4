"""`rlkit report`: one or several runs as one HTML page, which opens without a network."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Annotated, Literal

import tyro

from rlkit.cli import flags, video
from rlkit.cli.plot import runs_in
from rlkit.errors import RlkitError
from rlkit.validation import PositiveInt

COMMAND = "rlkit report"
EXAMPLES = f"""examples:
  {COMMAND} runs/mine
  {COMMAND} runs/mine --video
  {COMMAND} runs/* --group algorithm --output comparison.html
  {COMMAND} runs/ppo runs/dqn --metrics eval/avg_return train/loss"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportFlags:
    """Writes finished or running runs as one HTML page: results, curves, settings, warnings.

    The page fetches nothing, so it can be opened, sent and kept as it is.
    """

    run_dirs: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN_DIR...", help_behavior_hint="(required)"),
    ] = ()
    """Run directories."""
    output: str | None = None
    """File to write. None: report.html in the current directory or, if that exists, report-2.html
    and so on.
    """
    overwrite: bool = False
    """Replace the file if it exists."""
    video: bool = False
    """Record a video of each run that has none, as `rlkit video` does, of one episode."""
    env: str | None = None
    """With --video, the runs' environment again, if it is your own class (module:Class)."""
    metrics: tuple[str, ...] = ()
    """Metrics to draw, by their names in metrics.jsonl; none: all, the usual ones first."""
    group: Literal["run", "settings", "algorithm"] = "run"
    """Which runs become one curve: none, those with the same settings but for the seed, or those of
    an algorithm on an environment.
    """
    center: Literal["mean", "interquartile_mean", "median"] = "mean"
    """What stands for several seeds."""
    band: Literal["auto", "standard_error", "interval", "min_max", "none"] = "auto"
    """What surrounds it. interval: of 95 %, by a bootstrap over seeds; min_max: from the least to
    the greatest seed; auto: the standard error of a mean.
    """
    smooth: PositiveInt = 1
    """Smooth curves: each point is the mean of this many logged values."""
    title: str | None = None
    """Title of the page; None: the algorithm and the environment, if all runs have the same."""


def run(arguments: Sequence[str]) -> int:
    """Writes the report and returns the exit code."""
    chosen = flags.parse(ReportFlags, arguments, command=COMMAND, epilogue=EXAMPLES)
    default = "report.html"
    output = chosen.output or (default if chosen.overwrite else flags.free_name(default))
    from rlkit.training.report.write_report import check_report_file, write_report

    check_report_file(output, overwrite=chosen.overwrite)
    runs = runs_in(chosen.run_dirs)
    if chosen.video:
        _record_videos(runs, chosen.env)
    names = ("metrics", "group", "center", "band", "smooth", "title", "overwrite")
    print(write_report(runs, output, **{name: getattr(chosen, name) for name in names}))
    return 0


def _record_videos(runs: Sequence[str], env: str | None) -> None:
    """Records a video of each run that has none; says which cannot be recorded."""
    from rlkit.training.logs.loaded_run import load_run
    from rlkit.training.report.films import newest_film
    from rlkit.training.video.movie_file import can_write_mp4

    for run_dir in runs:
        if newest_film(load_run(run_dir)) is None:
            film = video.VideoFlags(run_dir=run_dir, env=env, episodes=1)
            ending = ".mp4" if can_write_mp4() else ".gif"
            try:
                print(video.record(film, ending).path)
            except RlkitError as error:
                print(f"rlkit: no video of {run_dir}: {error}", file=sys.stderr)
