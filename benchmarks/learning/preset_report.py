"""What the presets reach: the table of docs/learning.md, and the picture beside it."""

import statistics
from typing import Any

import numpy as np
import preset_records
from goals import GOALS, Goal

import page
from intervals import interval
from records import short
from rlkit.training.logs.statistics import interquartile_mean

COMMAND = "make learning"
PICTURE = page.IMAGES / "presets.png"
HEADS = (
    *("algorithm", "environment", "published", "measure", "steps", "bar"),
    *("interquartile mean (95 %)", "mean (each seed)", "commit"),
)


def told(name: str, row: dict[str, Any]) -> str:
    """One line about a seed that was trained."""
    return (
        f"{name} seed {row['seed']}: evaluation {row['evaluation']:.1f}, training"
        f" {row['training']:.1f} after {row['env_steps']:,} steps ({row['seconds']:.0f} s)"
    )


def write() -> None:
    """Writes table and picture, from what is recorded."""
    page.show(COMMAND, table())
    draw()


def below(name: str) -> str:
    """Says that a preset missed its bar, or ""."""
    goal, rows = GOALS[name], preset_records.read(name)
    if goal.bar is None or not rows:
        return ""
    mean = statistics.fmean(_reached(goal, rows))
    return f"{name}: the mean {mean:.1f} is below {goal.bar:g}" * (mean < goal.bar)


def table() -> str:
    """A row for each preset."""
    return page.lines(HEADS, 4, [_line(name, preset_records.read(name)) for name in GOALS])


def _reached(goal: Goal, rows: list[dict[str, Any]]) -> list[float]:
    return [row[goal.measure] for row in rows]


def _line(name: str, rows: list[dict[str, Any]]) -> tuple[str, ...]:
    goal = GOALS[name]
    algorithm, _, env_id = name.partition("/")
    bar = "" if goal.bar is None else f"{goal.bar:g}"
    first = (algorithm, env_id, goal.published, goal.measure)
    if not rows:
        return *first, "", bar, "not run yet", "", ""
    values = _reached(goal, rows)
    low, high = interval(values)
    each = ", ".join(f"{value:.1f}" for value in values)
    mean = f"{statistics.fmean(values):.1f}"
    return (
        *first,
        f"{rows[0]['env_steps']:,}",
        bar,
        f"{interquartile_mean(np.array(values)):.1f} ({low:.1f} to {high:.1f})",
        f"{f'**{mean}**' if below(name) else mean} ({each})",
        short([row["revision"] for row in rows]),
    )


def draw() -> None:
    """A panel for each preset: the mean evaluation over seeds, and all seeds behind it."""
    found = [(name, rows) for name in GOALS if (rows := preset_records.read(name))]
    label = "mean return of deterministic evaluation episodes"
    for panel, preset in page.panels(found, PICTURE, columns=5, size=(2.7, 2.1), y_label=label):
        _draw(panel, *preset)


def _draw(panel: Any, name: str, rows: list[dict[str, Any]]) -> None:
    algorithm, _, env_id = name.partition("/")
    steps = rows[0]["steps"]
    returns = np.array([row["returns"] for row in rows])  # [S, K]
    panel.plot(steps, returns.T, color="tab:blue", alpha=0.25, linewidth=0.8)
    panel.plot(steps, returns.mean(axis=0), color="tab:blue", linewidth=1.8)
    if GOALS[name].bar is not None and GOALS[name].measure == "evaluation":
        panel.axhline(GOALS[name].bar, color="gray", linewidth=0.8, linestyle=":")
    panel.set_title(f"{algorithm}, {env_id}", fontsize=7)
