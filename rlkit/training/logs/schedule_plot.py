"""The picture of a learning rate's schedule."""

import os
from collections.abc import Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from rlkit.optimizers import OptimizerConfig
from rlkit.optimizers.schedules import schedule_of
from rlkit.training.logs.figures import new_figure, require_format, save_figure
from rlkit.training.logs.human_units import human_count

NUM_POINTS = 1001  # so that steps look like steps


def plot_schedule(
    config: OptimizerConfig,
    output: str | os.PathLike[str],
    *,
    total_steps: int | None = None,
    later: Sequence[tuple[float, OptimizerConfig]] = (),
    title: str = "",
) -> Path:
    """Plots the learning rate over a run, as png, pdf or svg; returns the file's path.

    The x-axis is in environment steps if `total_steps` says how many the run has, else in per cent.
    `later` are the settings of the later phases of a curriculum, each with the progress at which it
    begins.
    Raises `ConfigError` for settings that do not fit together, or if the file cannot be written.
    """
    output = Path(output).expanduser()
    require_format(output)
    progress = np.linspace(0.0, 1.0, NUM_POINTS, dtype=np.float32)
    rates = np.asarray(schedule_of(config)(jnp.asarray(progress)))
    for start, phase in later:
        rates = np.where(progress < start, rates, schedule_of(phase)(jnp.asarray(progress)))
    figure = new_figure((6.8, 3.2))
    axes = figure.add_subplot()
    axes.plot(progress * (total_steps or 100), rates, color="#0072B2", lw=2)
    axes.set_ylim(0.0, 1.05 * float(rates.max()))
    axes.set_ylabel("learning rate")
    axes.set_xlabel("environment steps" if total_steps else "per cent of the run")
    axes.xaxis.set_major_formatter(lambda value, _: human_count(value))
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    axes.set_title(title, loc="left", fontsize=12)
    axes.grid(color="0.9", lw=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.02)
    axes.spines[["top", "right"]].set_visible(False)
    return save_figure(figure, output)
