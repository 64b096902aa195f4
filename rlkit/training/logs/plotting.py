"""Plots of finished or running training runs, from their directories."""

import dataclasses
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rlkit.errors import require
from rlkit.training.logs.curve_arguments import (
    check_curves,
    require_apart,
    require_one_of,
    usual_band,
)
from rlkit.training.logs.curves import (
    Band,
    Center,
    Curve,
    Group,
    Mark,
    XAxis,
    curve_of,
    grouped,
    trial_names,
)
from rlkit.training.logs.figures import new_figure, require_format, save_figure
from rlkit.training.logs.human_units import human_count
from rlkit.training.logs.loaded_run import load_run
from rlkit.training.logs.loaded_runs import LoadedRuns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

Size = Literal["screen", "column", "page"]
# Okabe and Ito's colorblind-safe palette, without its yellow, which is too pale on white.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", ":", "-.")
_LABELS = {
    "eval/avg_return": "average return per evaluation episode",
    "eval/avg_length": "average episode length (steps)",
}
_SHORT = {"eval/avg_return": "average return", "eval/avg_length": "episode length"}
_CENTERS = {"mean": "mean", "interquartile_mean": "interquartile mean", "median": "median"}
_BANDS = {
    "standard_error": "± standard error",
    "interval": "95 % bootstrap interval",
    "min_max": "least to greatest",
}
_MOST_SEED_LINES = 10
_MOST_INSIDE = 5  # runs named inside of their panel; more are named below it
_LEGEND_ROW = 0.19  # inches
_LEGEND_LINE = 4.8  # a line and the gaps beside it, in letter sizes
_LEGEND_SHARE = 0.95  # of the width of a panel
_UNDER_AXIS = 10.0  # points for ticks and gaps between a panel and a legend below it


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Inches and points of a picture."""

    width: float
    """Of the whole picture, whatever panels it has; 0: of each panel."""
    panel: tuple[float, float]
    """Of the only panel."""
    panels: tuple[float, float]
    """Of each of several."""
    title: float
    text: float
    small: float
    columns: int = 3
    """Of panels, at most."""


_LAYOUTS: dict[Size, _Layout] = {
    "screen": _Layout(0, (6.8, 4.2), (4.6, 3.6), 12, 10, 8),
    "column": _Layout(3.3, (3.3, 2.3), (3.3, 2.1), 8, 7, 6, columns=1),
    "page": _Layout(6.8, (6.8, 3.2), (3.4, 2.4), 9, 8, 7),
}


def plot_runs(
    run_dirs: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    metric: str = "eval/avg_return",
    x: XAxis = "env_steps",
    group: Group = "run",
    center: Center = "mean",
    band: Band | Literal["auto"] = "auto",
    smooth: int = 1,
    sampled: bool = False,
    labels: Sequence[str] = (),
    size: Size = "screen",
    title: str | None = None,
) -> Path:
    """Plots `metric` of runs over steps or time; returns the path of the picture.

    Each environment has a panel of its own. The ending of `output` chooses the format: png, pdf or
    svg. Dotted lines show where a phase of a curriculum began, or a finished run was extended.

    Args:
        x: env_steps, updates (gradient steps), wall_seconds, or training_seconds, which leaves out
            the time for compiling and for what comes before the first outer iteration; all of one
            seed.
        group: which runs become one curve. run: none; settings: those with the same settings but
            for the seed; algorithm: those of an algorithm on an environment.
        center: what stands for several seeds.
        band: what surrounds it: standard_error of the mean; interval: of 95 %, by a bootstrap over
            seeds; min_max: from the least to the greatest seed; none. auto: thin lines for the
            seeds (10 at most) of a curve that is alone, otherwise the standard error of a mean and
            the interval of anything else.
        smooth: each value is the mean of so many logged ones, the last of which is at its place.
        sampled: draws returns with sampled actions too, dotted, if `metric` is an evaluation's.
        labels: names for the curves, in order; (): those of their directories or algorithms, with
            the settings that differ if they are trials of one sweep.
        size: screen, column (3.3 inches wide, as in papers of two columns) or page (6.8 inches).
        title: None says what was trained, as far as all runs agree.

    Raises `RunDirectoryError` for a directory without a run, `ConfigError` if there is nothing to
    plot, for unknown arguments, or if the file cannot be written.
    """
    if isinstance(run_dirs, str | os.PathLike):
        run_dirs = [run_dirs]
    require(len(run_dirs) > 0, "no run to plot", "pass at least one run directory")
    require_one_of("x axis", x, XAxis)
    require_one_of("size", size, Size)
    check_curves(group=group, center=center, band=band, smooth=smooth)
    output = Path(output).expanduser()
    require_format(output)
    runs = LoadedRuns(load_run(directory) for directory in run_dirs)
    if group != "run":
        require_apart(runs)

    names = trial_names(runs) or runs.names

    def curves_of(metric: str) -> list[Curve]:
        found = [
            curve_of(run, name, metric, x).smoothed(smooth)
            for run, name in zip(runs, names, strict=True)
        ]
        return grouped(found, [run.config for run in runs], group)

    also = _sampled(metric) if sampled else None
    curves, others = curves_of(metric), curves_of(also) if also else []
    if labels:
        require(
            len(labels) == len(curves),
            f"the number of labels is {len(labels)}, that of curves {len(curves)}",
            f"pass a label for each of {', '.join(curve.name for curve in curves)}",
        )
        curves = [dataclasses.replace(c, name=n) for c, n in zip(curves, labels, strict=True)]
    picture = _Picture(x=x, metric=metric, center=center, band=band, layout=_LAYOUTS[size])
    return picture.draw(curves, others, output, title)


def _sampled(metric: str) -> str:
    is_return = metric in ("eval/avg_return", "eval/avg_length")
    fix = "leave out sampled, or plot eval/avg_return"
    require(is_return, f"there is no sampled form of {metric!r}", fix)
    return metric.replace("eval/", "eval/sampled_")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Picture:
    """How curves are drawn."""

    x: XAxis
    metric: str
    center: Center
    band: Band | Literal["auto"]
    layout: _Layout

    def draw(
        self, curves: list[Curve], sampled: list[Curve], output: Path, title: str | None
    ) -> Path:
        """Draws the curves, and those of `sampled` (all or none) beside them."""
        from matplotlib import rc_context

        with rc_context({"text.parse_math": False}):  # a dollar in a name is a dollar
            return save_figure(self._figure(curves, sampled, title), output)

    def _figure(self, curves: list[Curve], sampled: list[Curve], title: str | None) -> "Figure":
        panels: dict[str | None, list[int]] = defaultdict(list)
        for index, curve in enumerate(curves):
            panels[curve.env].append(index)
        alone, layout = len(curves) == 1, self.layout
        columns = min(len(panels), layout.columns)
        rows = -(-len(panels) // columns)
        width, height = layout.panel if len(panels) == 1 else layout.panels
        width = layout.width / columns if layout.width else width
        names = [[curves[i] for i in shown] for shown in panels.values()]
        below = max(self._legend_rows(shown, width) for shown in names)
        figure = new_figure((width * columns, (height + _LEGEND_ROW * below) * rows))
        title = _about(curves) if title is None else title
        captions: list[str] = []
        known = list(dict.fromkeys(curve.algorithm for curve in curves))
        for index, (env, members) in enumerate(panels.items()):
            axes = figure.add_subplot(rows, columns, index + 1)
            shown = [curves[i] for i in members]
            beside = [sampled[i] for i in members] if sampled else []
            lines, note = self._draw_panel(axes, shown, beside, _places(shown, known), alone=alone)
            if not alone or sampled:
                self._add_names(axes, lines, shown, bool(sampled), width, alone=alone)
            if alone and not layout.width:  # there is room for both
                axes.set_title(note, loc="right", fontsize=layout.small, color="0.35")
            elif note and note not in captions:
                captions.append(note)
            if len(panels) == 1:
                axes.set_title(title, loc="left", fontsize=layout.title)
            else:
                name = env or "environment not recorded"
                axes.set_title(name, loc="left", fontsize=layout.text)
        if len(panels) > 1:
            figure.suptitle(title, fontsize=layout.title)
        if captions:
            text = "\n".join(captions)
            figure.supxlabel(text, x=1.0, ha="right", fontsize=layout.small, color="0.35")
        return figure

    def _draw_panel(
        self,
        axes: "Axes",
        curves: list[Curve],
        sampled: list[Curve],
        places: list[int],
        *,
        alone: bool,
    ) -> tuple[list["Line2D"], str]:
        """Plots the runs in one environment; returns their lines and a caption for their seeds.

        `places` are those of their colours. `alone`: there is no other run in the picture.
        """
        divisor, x_label = _x_scale(curves, self.x)
        drawn = [
            self._draw_curve(axes, curve, place, divisor, alone=alone and not sampled)
            for curve, place in zip(curves, places, strict=True)
        ]
        for curve, place in zip(sampled, places, strict=False):
            values, color = curve.center(self.center), _COLORS[place % len(_COLORS)]
            shown = np.isfinite(values)
            axes.plot(curve.x[shown] / divisor, values[shown], ":", color=color, lw=1.4, zorder=3)
        for mark, owners in _marks(curves).items():
            shared = len(owners) == len(curves)  # by all: nobody asks whose it is
            color = "0.5" if shared else _COLORS[places[owners[0]] % len(_COLORS)]
            self._draw_mark(axes, mark.x / divisor, mark.name, color)
        names = _SHORT if self.layout.width else _LABELS
        _decorate(axes, self.x, x_label, names.get(self.metric, self.metric), self.layout)
        return [line for line, _ in drawn], next((note for _, note in drawn if note), "")

    def _draw_mark(self, axes: "Axes", x: float, name: str, color: str) -> None:
        """A dotted line with the name along it, at its foot: curves that rise leave room there."""
        axes.axvline(x, color=color, lw=0.9, ls=":", zorder=1)
        axes.annotate(
            name,
            (x, 0.0),
            xycoords=("data", "axes fraction"),
            xytext=(2, 4),
            textcoords="offset points",
            rotation=90,
            va="bottom",
            ha="left",
            fontsize=0.75 * self.layout.text,
            color=color,
            zorder=2,
        )

    def _draw_curve(
        self, axes: "Axes", curve: Curve, place: int, divisor: float, *, alone: bool
    ) -> tuple["Line2D", str]:
        """Plots one run; returns its line and a caption for its seeds."""
        color = _COLORS[place % len(_COLORS)]
        dashes = _DASHES[place // len(_COLORS) % len(_DASHES)]
        x, middle, seeds = curve.x / divisor, curve.center(self.center), len(curve.seeds)
        drawn = np.isfinite(middle)
        lone = "o" if drawn.sum() == 1 else None
        style: dict[str, Any] = {"color": color, "lw": 2.0 if self.layout.text >= 10 else 1.4}
        (line,) = axes.plot(x[drawn], middle[drawn], dashes, **style, marker=lone, zorder=3)
        if seeds < 2:
            return line, ""
        of = f"{_CENTERS[self.center]} of {seeds} seeds" if alone else _CENTERS[self.center]
        if self.band == "auto" and alone and seeds <= _MOST_SEED_LINES:
            for values in curve.seeds:
                shown = np.isfinite(values)
                axes.plot(x[shown], values[shown], color=color, lw=0.8, alpha=0.4, zorder=2)
            return line, f"{of}; thin: each seed"
        kind = usual_band(self.center) if self.band == "auto" else self.band
        edges = curve.band(kind, self.center)
        if edges is None:
            return line, of
        axes.fill_between(x, *edges, color=color, alpha=0.2, lw=0, zorder=2)
        return line, f"{of}; band: {_BANDS[kind]}" + " over seeds" * (not alone)

    def _add_names(
        self,
        axes: "Axes",
        lines: list["Line2D"],
        curves: list[Curve],
        sampled: bool,
        width: float,
        *,
        alone: bool,
    ) -> None:
        """Adds a legend: inside of the panel, or below it if there are many names."""
        place: dict[str, Any] = {"loc": "best", "fontsize": self.layout.text - 1}
        if self._legend_rows(curves, width):
            place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0)}
            place["bbox_transform"] = _lower(axes, _UNDER_AXIS + 2.4 * self.layout.text)
            place |= {"fontsize": self.layout.small, "ncols": self._legend_columns(curves, width)}
        # Named one by one: matplotlib passes over a line whose own label begins with "_".
        names = ["most likely actions"] if sampled and alone else [_label(each) for each in curves]
        if sampled:
            from matplotlib.lines import Line2D

            lines = [*lines, Line2D([], [], color="0.3", ls=":", lw=1.4)]
            names.append("sampled actions")
        axes.legend(lines, names, framealpha=0.85, edgecolor="0.85", **place)

    def _legend_columns(self, curves: list[Curve], width: float) -> int:
        """How many names fit side by side below a panel of that width in inches."""
        from matplotlib.textpath import TextPath

        size = self.layout.small
        widest = max(
            TextPath((0, 0), _label(each), size=size).get_extents().width for each in curves
        )
        fit = int(_LEGEND_SHARE * width * 72 / (widest + _LEGEND_LINE * size))
        rows = -(-len(curves) // max(1, fit))
        return -(-len(curves) // rows)  # rows of about the same length

    def _legend_rows(self, curves: list[Curve], width: float) -> int:
        """The rows of a legend below the panel; 0: it is inside."""
        if len(curves) <= _MOST_INSIDE:
            return 0
        return -(-len(curves) // self._legend_columns(curves, width))


def _about(curves: list[Curve]) -> str:
    """What all of these runs have in common: "ppo on gymnax/CartPole-v1", or a part of it."""
    algorithms, envs = {curve.algorithm for curve in curves}, {curve.env for curve in curves}
    algorithm = algorithms.pop() if len(algorithms) == 1 else None
    env = envs.pop() if len(envs) == 1 else None
    return f"{algorithm} on {env}" if algorithm and env else algorithm or env or ""


def _places(curves: list[Curve], algorithms: list[str | None]) -> list[int]:
    """The place of each run's colour: that of its algorithm, if every run has another one."""
    own = [curve.algorithm for curve in curves]
    if None in own or len(set(own)) < len(own):
        return list(range(len(curves)))
    return [algorithms.index(algorithm) for algorithm in own]


def _marks(curves: list[Curve]) -> dict[Mark, list[int]]:
    """The places that curves mark, from left to right, with the indices of these curves."""
    owners: dict[Mark, list[int]] = defaultdict(list)
    for index, curve in enumerate(curves):
        for mark in curve.marks:
            owners[mark].append(index)
    return dict(sorted(owners.items()))


def _label(curve: Curve) -> str:
    """The name of a curve in a legend."""
    seeds = len(curve.seeds)
    return curve.name if seeds < 2 else f"{curve.name} (n = {seeds})"


def _lower(axes: "Axes", points: float) -> Any:
    """The coordinates of a panel, so many points lower."""
    from matplotlib.transforms import ScaledTranslation

    return axes.transAxes + ScaledTranslation(0.0, -points / 72, axes.figure.dpi_scale_trans)


def _decorate(axes: "Axes", x: XAxis, x_label: str, y_label: str, layout: _Layout) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel(x_label, fontsize=layout.text)
    axes.set_ylabel(y_label, fontsize=layout.text)
    axes.tick_params(labelsize=layout.text)
    counts = x in ("env_steps", "updates")
    bins = 7 if layout.text >= 10 else 5
    axes.xaxis.set_major_locator(MaxNLocator(bins, steps=[1, 2, 2.5, 5, 10], integer=counts))
    if counts:
        axes.xaxis.set_major_formatter(_counts())
    low, high = axes.get_ylim()
    if max(abs(low), abs(high)) >= 10_000:
        axes.yaxis.set_major_formatter(_counts())
    axes.grid(color="0.9", lw=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.02)
    left, right = axes.dataLim.intervalx
    if left == right:  # a single point would otherwise get an axis with tiny fractions
        axes.set_xlim(left - 1, right + 1)
    axes.spines[["top", "right"]].set_visible(False)


def _counts() -> Any:
    """A formatter of counts, with as many digits as their ticks have, at least three."""
    from matplotlib.ticker import FuncFormatter

    class Counts(FuncFormatter):
        def format_ticks(self, values: list[float]) -> list[str]:
            digits = 3  # nine: what is beyond is rounding
            while digits < 9 and any(float(f"{x:.{digits}g}") != float(f"{x:.9g}") for x in values):
                digits += 1
            return [human_count(x, digits) for x in values]

    return Counts(lambda value, _: human_count(value))


def _x_scale(curves: list[Curve], x: XAxis) -> tuple[float, str]:
    if x == "env_steps":
        return 1.0, "environment steps"
    if x == "updates":
        return 1.0, "gradient steps"
    what = "wall time" if x == "wall_seconds" else "training time without compiling"
    longest = max(float(curve.x.max()) for curve in curves)
    if longest > 7200:
        return 3600.0, f"{what} (h)"
    return (60.0, f"{what} (min)") if longest > 300 else (1.0, f"{what} (s)")
