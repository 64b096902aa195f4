"""Plots of finished or running training runs, from their directories."""

import dataclasses
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rlkit.errors import did_you_mean, require
from rlkit.training.logs.figures import new_figure, require_format, save_figure
from rlkit.training.logs.human_units import human_count
from rlkit.training.logs.loaded_run import LoadedRun, load_run
from rlkit.training.logs.loaded_runs import LoadedRuns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colorblind-safe palette, without its yellow, which is too pale on white.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", ":", "-.")
_LABELS = {
    "eval/avg_return": "average return per evaluation episode",
    "eval/avg_length": "average episode length (steps)",
}
_MOST_SEED_LINES = 10
_MOST_COLUMNS = 3  # of panels
_MOST_INSIDE = 5  # runs named inside of their panel; more are named below it
_LEGEND_ROW = 0.19  # inches


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Curve:
    """One run: P points, S seeds (S = 0 if only averages were logged). Missing values are NaN."""

    name: str
    algorithm: str | None  # None: config.yaml does not say
    env: str | None
    x: np.ndarray  # [P]
    mean: np.ndarray  # [P]
    seeds: np.ndarray  # [S, P]


def learning_curve(
    run_dirs: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    metric: str = "eval/avg_return",
    x: Literal["env_steps", "wall_seconds"] = "env_steps",
    title: str | None = None,
) -> Path:
    """Plots `metric` of each run over steps or time, averaged over seeds; returns the file's path.

    Each environment has a panel of its own. A single run also shows each seed as a thin line;
    several runs (or more than 10 seeds) show the standard error of the mean as a band. The ending
    of `output` chooses the format: png, pdf or svg. `title=None` says what was trained, as far as
    all runs agree.

    Raises `RunDirectoryError` for a directory without a run, `ConfigError` if there is nothing to
    plot or the file cannot be written.
    """
    if isinstance(run_dirs, str | os.PathLike):
        run_dirs = [run_dirs]
    require(len(run_dirs) > 0, "no run to plot", "pass at least one run directory")
    require(
        x in ("env_steps", "wall_seconds"),
        f"unknown x axis {x!r}",
        did_you_mean(x, ("env_steps", "wall_seconds")),
    )
    require_format(Path(output))
    runs = LoadedRuns(load_run(directory) for directory in run_dirs)
    curves = [_curve(run, name, metric, x) for run, name in zip(runs, runs.names, strict=True)]
    return _draw(curves, Path(output), metric=metric, x=x, title=title)


def _curve(run: LoadedRun, name: str, metric: str, x: str) -> _Curve:
    found = run.series(metric)
    together, seeds = (
        np.where(np.isfinite(values), values, np.nan) for values in (found.together, found.seeds)
    )
    # If the average was not logged: NaN if any seed is missing, since a mean over fewer seeds would
    # jump.
    mean = np.where(np.isnan(together), seeds.mean(axis=0), together) if len(seeds) else together
    require(
        bool(np.isfinite(mean).any() or np.isfinite(seeds).any()),
        f"{run.directory} has no finite value of {metric!r}",
        "check whether the run diverged, or choose another metric",
    )
    axis = found.env_steps.astype(float) if x == "env_steps" else found.wall_seconds
    return _Curve(name=name, algorithm=run.algorithm, env=run.env, x=axis, mean=mean, seeds=seeds)


def _draw(curves: list[_Curve], output: Path, *, metric: str, x: str, title: str | None) -> Path:
    panels: dict[str | None, list[_Curve]] = defaultdict(list)
    for curve in curves:
        panels[curve.env].append(curve)
    columns = min(len(panels), _MOST_COLUMNS)
    rows = -(-len(panels) // columns)
    width, height = (6.8, 4.2) if len(panels) == 1 else (4.6, 3.6)
    below = max(_legend_rows(shown, 0.8 * width) for shown in panels.values())
    figure = new_figure((width * columns, (height + _LEGEND_ROW * below) * rows))
    title = _about(curves) if title is None else title
    captions: list[str] = []
    known = list(dict.fromkeys(curve.algorithm for curve in curves))
    for index, (env, shown) in enumerate(panels.items()):
        axes = figure.add_subplot(rows, columns, index + 1)
        places = _places(shown, known)
        note = _draw_panel(axes, shown, places, metric=metric, x=x, alone=len(curves) == 1)
        if len(curves) > 1:
            _add_names(axes, shown, 0.8 * width)
        if len(curves) == 1:  # its caption is short
            axes.set_title(note, loc="right", fontsize=8, color="0.35")
        elif note and note not in captions:
            captions.append(note)
        if len(panels) == 1:
            axes.set_title(title, loc="left", fontsize=12)
        else:
            axes.set_title(env or "environment not recorded", loc="left", fontsize=10)
    if len(panels) > 1:
        figure.suptitle(title, fontsize=12)
    if captions:
        figure.supxlabel("\n".join(captions), x=1.0, ha="right", fontsize=8, color="0.35")
    return save_figure(figure, output)


def _about(curves: list[_Curve]) -> str:
    """What all of these runs have in common: "ppo on gymnax/CartPole-v1", or a part of it."""
    algorithms, envs = {curve.algorithm for curve in curves}, {curve.env for curve in curves}
    algorithm = algorithms.pop() if len(algorithms) == 1 else None
    env = envs.pop() if len(envs) == 1 else None
    return f"{algorithm} on {env}" if algorithm and env else algorithm or env or ""


def _places(curves: list[_Curve], algorithms: list[str | None]) -> list[int]:
    """The place of each run's colour: that of its algorithm, if every run has another one."""
    own = [curve.algorithm for curve in curves]
    if None in own or len(set(own)) < len(own):
        return list(range(len(curves)))
    return [algorithms.index(algorithm) for algorithm in own]


def _draw_panel(
    axes: "Axes", curves: list[_Curve], places: list[int], *, metric: str, x: str, alone: bool
) -> str:
    """Plots the runs in one environment; returns a caption for their seeds.

    `places` are those of their colours. `alone`: there is no other run in the picture.
    """
    divisor, x_label = _x_scale(curves, x)
    notes = [
        _draw_curve(axes, curve, place, divisor, alone=alone)
        for curve, place in zip(curves, places, strict=True)
    ]
    _decorate(axes, x, x_label, _LABELS.get(metric, metric))
    if not alone:
        return "band: ± standard error over seeds" if any(notes) else ""
    return notes[0]


def _add_names(axes: "Axes", curves: list[_Curve], width: float) -> None:
    """Adds a legend: inside of the panel, or below it if there are many names."""
    place: dict[str, Any] = {"loc": "best", "fontsize": 9}
    if len(curves) > _MOST_INSIDE:
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "fontsize": 8}
        place |= {"ncols": _legend_columns(curves, width)}
    axes.legend(framealpha=0.85, edgecolor="0.85", **place)


def _legend_columns(curves: list[_Curve], width: float) -> int:
    """How many names fit side by side below a panel of that width in inches."""
    return max(1, int(width / (0.07 * max(len(curve.name) for curve in curves) + 0.5)))


def _legend_rows(curves: list[_Curve], width: float) -> int:
    """The rows of a legend below the panel; 0: it is inside."""
    return 0 if len(curves) <= _MOST_INSIDE else -(-len(curves) // _legend_columns(curves, width))


def _draw_curve(axes: "Axes", curve: _Curve, index: int, divisor: float, *, alone: bool) -> str:
    """Plots one run; returns a caption for its seeds."""
    color = _COLORS[index % len(_COLORS)]
    dashes = _DASHES[index // len(_COLORS) % len(_DASHES)]
    x, seeds = curve.x / divisor, len(curve.seeds)
    drawn = np.isfinite(curve.mean)
    lone = "o" if drawn.sum() == 1 else None
    axes.plot(
        x[drawn],
        curve.mean[drawn],
        dashes,
        color=color,
        lw=2,
        label=curve.name,
        marker=lone,
        zorder=3,
    )
    if seeds < 2:
        return ""
    if alone and seeds <= _MOST_SEED_LINES:
        for values in curve.seeds:
            shown = np.isfinite(values)
            axes.plot(x[shown], values[shown], color=color, lw=0.8, alpha=0.4, zorder=2)
        return f"mean of {seeds} seeds; thin: each seed"
    error = curve.seeds.std(axis=0, ddof=1) / np.sqrt(seeds)
    axes.fill_between(
        x, curve.mean - error, curve.mean + error, color=color, alpha=0.2, lw=0, zorder=2
    )
    return f"mean of {seeds} seeds; band: ± standard error"


def _decorate(axes: "Axes", x: str, x_label: str, y_label: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10], integer=x == "env_steps"))
    if x == "env_steps":
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: human_count(value)))
    low, high = axes.get_ylim()
    if max(abs(low), abs(high)) >= 10_000:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: human_count(value)))
    axes.grid(color="0.9", lw=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.02)
    left, right = axes.dataLim.intervalx
    if left == right:  # a single point would otherwise get an axis with tiny fractions
        axes.set_xlim(left - 1, right + 1)
    axes.spines[["top", "right"]].set_visible(False)


def _x_scale(curves: list[_Curve], x: str) -> tuple[float, str]:
    if x == "env_steps":
        return 1.0, "environment steps"
    longest = max(float(curve.x.max()) for curve in curves)
    if longest > 7200:
        return 3600.0, "wall time (h)"
    return (60.0, "wall time (min)") if longest > 300 else (1.0, "wall time (s)")
