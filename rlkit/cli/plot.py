"""`rlkit plot`: draws the learning curves of one or several runs."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Literal

import tyro

from rlkit.cli import flags

COMMAND = "rlkit plot"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlotFlags:
    """Draws the learning curves of runs, finished or running, into one picture."""

    run_dirs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN_DIR...")]
    """Directories of the runs."""
    output: str = "learning_curve.png"
    """The picture, a PNG file; replaced if it exists."""
    metric: str = "eval/avg_return"
    """What to draw, by its name in metrics.jsonl."""
    x: Literal["env_steps", "wall_seconds"] = "env_steps"
    """What to draw it over."""
    title: str | None = None
    """Line above the picture."""


def run(arguments: Sequence[str]) -> int:
    """Draws as `arguments` say; returns the exit code."""
    chosen = flags.parse(PlotFlags, arguments, command=COMMAND)
    from rlkit.training.plotting import learning_curve

    print(learning_curve(chosen.run_dirs, chosen.output, metric=chosen.metric, x=chosen.x, title=chosen.title))
    return 0
