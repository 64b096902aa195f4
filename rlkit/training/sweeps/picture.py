"""The picture of a sweep: a heat-map of two settings, or the return over each of them."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlkit.training.logs.figures import new_figure, require_format, save_figure
from rlkit.training.sweeps.results import TrialResult, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE = "#0072B2", "#D55E00"
MOST_COLUMNS = 3
WIDE = 10.0  # the ratio of positive numbers from which on an axis is logarithmic
STEP = 0.06  # between trials with the same name or word, so that none hides another
MOST_WRITTEN = 80  # cells of a heat-map that show their numbers


def plot_sweep(results: Sequence[TrialResult], output: Path, *, title: str) -> Path:
    """Draws what trials reached; returns the path of the picture.

    Two settings of which every combination was tried once are a heat-map. Otherwise each setting
    has a panel with a point for each trial, and the interval over its seeds. Trials without a score
    are left out. Raises `ConfigError` if the file cannot be written.
    """
    require_format(output)
    known = [result for result in results if math.isfinite(result.score)]
    names = [
        name
        for name in dict.fromkeys(name for result in known for name in result.settings)
        if len({repr(result.settings.get(name)) for result in known}) > 1
    ] or list(known[0].settings)[:1]
    if len(names) == 2 and _is_table(known, names):
        figure = _heat_map(known, names, title)
    else:
        figure = _panels(known, names, title)
    return save_figure(figure, output)


def _levels(results: Sequence[TrialResult], name: str) -> list[Any]:
    """The different values of a setting, numbers in order and the rest as they came."""
    values = {repr(result.settings[name]): result.settings[name] for result in results}
    levels = list(values.values())
    return sorted(levels) if all(_is_number(level) for level in levels) else levels


def _is_table(results: Sequence[TrialResult], names: Sequence[str]) -> bool:
    cells = [tuple(repr(result.settings[name]) for name in names) for result in results]
    size = math.prod(len(_levels(results, name)) for name in names)
    return len(set(cells)) == len(cells) == size


def _heat_map(results: Sequence[TrialResult], names: Sequence[str], title: str) -> Any:
    rows, columns = (_levels(results, name) for name in names)
    scores = np.full((len(rows), len(columns)), np.nan)
    for result in results:
        place = [
            [repr(level) for level in levels].index(repr(result.settings[name]))
            for levels, name in zip((rows, columns), names, strict=True)
        ]
        scores[place[0], place[1]] = result.score
    width, height = max(4.2, 0.85 * len(columns) + 2.4), max(2.8, 0.5 * len(rows) + 1.6)
    figure = new_figure((min(width, 14.0), min(height, 12.0)))
    axes = figure.add_subplot()
    image = axes.imshow(scores, aspect="auto", cmap="cividis", origin="lower")
    axes.set_xticks(range(len(columns)), [shown(level) for level in columns])
    axes.set_yticks(range(len(rows)), [shown(level) for level in rows])
    axes.set_xlabel(_words(names[1]))
    axes.set_ylabel(_words(names[0]))
    if scores.size <= MOST_WRITTEN:
        middle = (np.nanmin(scores) + np.nanmax(scores)) / 2
        for (row, column), score in np.ndenumerate(scores):
            color = "black" if score > middle else "white"
            axes.text(column, row, f"{score:.4g}", ha="center", va="center", color=color)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title(title, loc="left", fontsize=12)
    bar = figure.colorbar(image, label=_score_name(results))
    bar.outline.set_visible(False)
    return figure


def _panels(results: Sequence[TrialResult], names: Sequence[str], title: str) -> Any:
    columns = min(len(names), MOST_COLUMNS)
    rows = -(-len(names) // columns)
    figure = new_figure((max(3.3 * columns, 4.6), 3.1 * rows + 0.4))
    for place, name in enumerate(names):
        axes = figure.add_subplot(rows, columns, place + 1)
        _draw(axes, results, name)
        if place % columns == 0:
            axes.set_ylabel(_score_name(results))
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    several = any(result.interval for result in results)
    text = "a point: a trial; orange: the best" + "; bars: 95 % over seeds" * several
    figure.supxlabel(text, x=1.0, ha="right", fontsize=9, color="0.35")
    return figure


def _draw(axes: "Axes", results: Sequence[TrialResult], name: str) -> None:
    having = [result for result in results if name in result.settings]
    levels = _levels(having, name)
    numeric = all(_is_number(level) for level in levels)
    keys = [repr(level) for level in levels]
    x = [
        float(result.settings[name])
        if numeric
        else keys.index(repr(result.settings[name])) + STEP * (place % 9 - 4)
        for place, result in enumerate(having)
    ]
    for place, (at, result) in enumerate(zip(x, having, strict=True)):
        color = ORANGE if place == 0 else BLUE
        if result.interval is not None:
            axes.vlines(at, *result.interval, color=color, lw=1.2, alpha=0.6)
        style = {"s": 30, "color": color, "zorder": 4 if place == 0 else 3}
        axes.scatter([at], [result.score], **style)
    if not numeric:
        axes.set_xticks(range(len(levels)), [shown(level) for level in levels])
        axes.set_xlim(-0.5, len(levels) - 0.5)
    elif min(levels) > 0 and max(levels) / min(levels) >= WIDE:
        axes.set_xscale("log")
    else:
        axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel(_words(name))
    axes.grid(color="0.9", lw=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _score_name(results: Sequence[TrialResult]) -> str:
    seeds = max(len(result.scores) for result in results)
    return "evaluation return" if seeds == 1 else f"evaluation return, mean of {seeds} seeds"


def _words(name: str) -> str:
    return name.replace("_", " ")
