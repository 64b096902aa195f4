"""`rlkit plot`: plots the learning curves of one or several runs, or a learning rate."""

import dataclasses
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro

from rlkit.cli import flags
from rlkit.errors import ConfigError, require
from rlkit.optimizers.config import OptimizerConfig, check_optimizer
from rlkit.training import run_config
from rlkit.training.logs.loaded_run import holds_run, load_run
from rlkit.training.phase_plan import steps_of_phases
from rlkit.validation import PositiveInt

COMMAND = "rlkit plot"
EXAMPLES = f"""examples:
  {COMMAND} runs/mine
  {COMMAND} runs/ppo runs/dqn --output both.pdf --x wall_seconds
  {COMMAND} runs/* --group algorithm --band interval --size column
  {COMMAND} runs/mine --metric train/loss --output loss.png
  {COMMAND} --schedule runs/mine"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlotFlags:
    """Plots the learning curves of finished or running runs into one image.

    Each environment has a panel of its own. With --schedule, plots a learning rate instead.
    """

    run_dirs: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN_DIR...", help_behavior_hint="(required)"),
    ] = ()
    """Run directories."""
    schedule: str | None = None
    """Plot the learning rate of these settings over the run: a YAML file or a run directory."""
    output: str | None = None
    """File to write, as png, pdf or svg, by its ending.
    None: learning_curve.png (or schedule.png) or, if that exists, learning_curve-2.png and so on.
    """
    overwrite: bool = False
    """Replace the image if it exists."""
    metric: str = "eval/avg_return"
    """Metric to plot, by its name in metrics.jsonl."""
    x: Literal["env_steps", "updates", "wall_seconds", "training_seconds"] = "env_steps"
    """What the x-axis counts; training_seconds leave out the time for compiling."""
    group: Literal["run", "settings", "algorithm"] = "run"
    """Which runs become one curve: none, those with the same settings but for the seed, or those of
    an algorithm on an environment.
    """
    center: Literal["mean", "interquartile_mean", "median"] = "mean"
    """What stands for several seeds."""
    band: Literal["auto", "standard_error", "interval", "min_max", "none"] = "auto"
    """What surrounds it. interval: of 95 %, by a bootstrap over seeds; min_max: from the least to
    the greatest seed; auto: each seed if there is one run, else the standard error of a mean.
    """
    smooth: PositiveInt = 1
    """Smooth curves: each point is the mean of this many logged values."""
    sampled: bool = False
    """Draw returns with sampled actions too, dotted."""
    labels: tuple[str, ...] = ()
    """Names for the curves, in order; none: their directories or algorithms."""
    size: Literal["screen", "column", "page"] = "screen"
    """Width of the picture: for a screen, a column of a paper (3.3 inches) or its page (6.8)."""
    title: str | None = None
    """Title of the plot; None: the algorithm and the environment, if all runs have the same."""


def run(arguments: Sequence[str]) -> int:
    """Plots the curves and returns the exit code."""
    chosen = flags.parse(PlotFlags, arguments, command=COMMAND, epilogue=EXAMPLES)
    default = "learning_curve.png" if chosen.schedule is None else "schedule.png"
    output = (
        flags.free_name(default)
        if chosen.output is None and not chosen.overwrite
        else chosen.output or default
    )
    output = os.path.expanduser(output)
    fix = f"name a file in it, such as {os.path.join(output, 'curve.png')}"
    require(not os.path.isdir(output), f"{output} is a directory", fix)
    free = chosen.overwrite or not os.path.lexists(output)
    require(free, f"{output} already exists", "add --overwrite, or choose another --output")
    if chosen.schedule is not None:
        require(not chosen.run_dirs, "--schedule plots no runs", "leave out the run directories")
        print(_plot_schedule(chosen.schedule, output, chosen.title))
        return 0
    from rlkit.training.logs.plotting import plot_runs

    runs = runs_in(chosen.run_dirs, chosen.metric)
    names = ("metric", "x", "group", "center", "band", "smooth", "sampled", "labels", "size")
    print(plot_runs(runs, output, title=chosen.title, **{n: getattr(chosen, n) for n in names}))
    return 0


def runs_in(paths: Sequence[str], metric: str | None = None) -> list[str]:
    """The runs among paths such as a shell makes of `runs/*`; says what it leaves out.

    These are directories without a run, and runs that have not logged the metric, if others have.
    """
    if len(paths) < 2:
        return list(paths)
    others = [path for path in paths if os.path.exists(path) and not holds_run(Path(path))]
    runs = [path for path in paths if path not in others]
    _say_left_out("they hold no run", others)
    if metric is None:
        return runs
    too_new = [
        path for path in runs if os.path.exists(path) and metric not in load_run(path).metrics
    ]
    if len(too_new) < len(runs):
        _say_left_out(f"they have not logged {metric} yet", too_new)
        runs = [path for path in runs if path not in too_new]
    return runs


def _say_left_out(reason: str, paths: Sequence[str]) -> None:
    if paths:
        print(f"rlkit: left out, since {reason}: {', '.join(paths)}", file=sys.stderr)


def _plot_schedule(path: str, output: str, title: str | None) -> os.PathLike[str]:
    """Plots the learning rate of the settings in a file or a run directory."""
    settings = run_config.read_settings(path) if os.path.isdir(path) else run_config.read_yaml(path)
    custom = settings.get("custom", ()) if isinstance(settings, dict) else ()
    if custom:  # other parts may still be known, but the config as a whole cannot be rebuilt
        named = f"{path} has parts built in Python ({', '.join(custom)})"
        fix = "draw its schedule in Python, with rlkit.create_schedule"
        raise ConfigError(f"{named}, which its settings do not describe in full; {fix}")
    config = run_config.from_dict(settings)
    described = config.hyperparameters
    known = isinstance(described, OptimizerConfig)
    fix = "plot that of another algorithm"
    require(known, f"{config.algorithm} describes no learning rate", fix)
    check_optimizer(described)
    from rlkit.training.logs.schedule_plot import plot_schedule

    steps = config.trainer.total_steps
    schedule = f"{described.learning_rate_schedule} learning rate"
    later: list[tuple[float, OptimizerConfig]] = []
    if config.curriculum is not None:
        from rlkit.training.phases import with_overrides

        phases = config.curriculum.phases
        described, *others = (with_overrides(described, phase) for phase in phases)
        *ends, steps = itertools.accumulate(steps_of_phases(config.curriculum, config.trainer))
        later = [(end / steps, settings) for end, settings in zip(ends, others, strict=True)]
        schedule = f"learning rate in {len(phases)} phases"
    about = title or f"{config.algorithm} on {config.env.id}: {schedule}"
    return plot_schedule(described, output, total_steps=steps, later=later, title=about)
