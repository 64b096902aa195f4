"""`rlkit plot`: plots the learning curves of one or several runs."""

import dataclasses
import itertools
import os
from collections.abc import Sequence
from typing import Annotated, Literal

import tyro

from rlkit.cli import flags
from rlkit.errors import require

COMMAND = "rlkit plot"
DEFAULT_OUTPUT = "learning_curve.png"
EXAMPLES = f"""examples:
  {COMMAND} runs/mine
  {COMMAND} runs/ppo runs/dqn --output both.pdf --x wall_seconds
  {COMMAND} runs/mine --metric train/loss --output loss.png"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlotFlags:
    """Plots the learning curves of finished or running runs into one image.

    Each environment has a panel of its own.
    """

    run_dirs: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN_DIR...", help_behavior_hint="(required)"),
    ]
    """Run directories."""
    output: str | None = None
    """File to write, as png, pdf or svg, by its ending.
    None: learning_curve.png or, if that exists, learning_curve-2.png and so on.
    """
    overwrite: bool = False
    """Replace the image if it exists."""
    metric: str = "eval/avg_return"
    """Metric to plot, by its name in metrics.jsonl."""
    x: Literal["env_steps", "wall_seconds"] = "env_steps"
    """Metric of the x-axis."""
    title: str | None = None
    """Title of the plot; None: the algorithm and the environment, if all runs have the same."""


def run(arguments: Sequence[str]) -> int:
    """Plots the curves and returns the exit code."""
    chosen = flags.parse(PlotFlags, arguments, command=COMMAND, epilogue=EXAMPLES)
    output = (
        _free_name()
        if chosen.output is None and not chosen.overwrite
        else chosen.output or DEFAULT_OUTPUT
    )
    free = chosen.overwrite or not os.path.lexists(output)
    require(free, f"{output} already exists", "add --overwrite, or choose another --output")
    from rlkit.training.logs.plotting import learning_curve

    print(
        learning_curve(
            chosen.run_dirs, output, metric=chosen.metric, x=chosen.x, title=chosen.title
        )
    )
    return 0


def _free_name() -> str:
    stem, ending = os.path.splitext(DEFAULT_OUTPUT)
    names = itertools.chain([DEFAULT_OUTPUT], (f"{stem}-{n}{ending}" for n in itertools.count(2)))
    return next(name for name in names if not os.path.lexists(name))
