"""What the presets reach: the table of docs/learning.md, and the picture beside it."""

import statistics
import textwrap
from typing import Any

import numpy as np
import preset_records
from goals import GOALS, Goal

import page
from intervals import interval
from records import short
from rlkit.training.logs.statistics import interquartile_mean

COMMAND = "make learning"
LEAST = 5  # seeds for an interval
PICTURE = page.IMAGES / "presets.png"
HEADS = (
    *("algorithm", "environment", "published", "measure", "steps", "bar"),
    *("interquartile mean (95 %)", "mean (each seed)", "commit"),
)


def told(name: str, row: dict[str, Any]) -> str:
    """One line about a seed that was trained."""
    return (
        f"{name} seed {row['seed']}: evaluation {_text(row['evaluation'])}, training"
        f" {_text(row['training'])} after {row['env_steps']:,} steps ({row['seconds']:.0f} s)"
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
    return f"{name}: the mean {_text(mean)} is below {goal.bar:g}" * (mean < goal.bar)


def table() -> str:
    """How many were run, and a row for each preset."""
    rows = {name: preset_records.read(name) for name in GOALS}
    lines = page.lines(HEADS, 4, [_line(name, rows[name]) for name in GOALS])
    return f"{textwrap.fill(_done(rows), 100)}\n\n{lines}"


def _done(rows: dict[str, list[dict[str, Any]]]) -> str:
    """How many presets were run with all their seeds, and what is left of the others."""
    left = []
    for name, goal in GOALS.items():
        count, typed = len(rows[name]), name.replace("/", " ", 1)
        if count < goal.seeds:
            left.append(f"{typed} ({count} of {goal.seeds} seeds)" if count else typed)
    done = f"{len(GOALS) - len(left)} of {len(GOALS)} presets were run with all their seeds"
    return f"{done}; not yet: {', '.join(left)}." if left else f"All {len(GOALS)} were run."


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
    each = ", ".join(map(_text, values))
    mean = _text(statistics.fmean(values))
    return (
        *first,
        f"{rows[0]['env_steps']:,}",
        bar,
        f"{_text(float(interquartile_mean(np.array(values))))} ({_spread(values)})",
        f"{f'**{mean}**' if below(name) else mean} ({each})",
        short([row["revision"] for row in rows]),
    )


def _spread(values: list[float]) -> str:
    """The interval; of fewer than five seeds, for which a bootstrap is much too narrow, all."""
    if len(values) == 1:
        return "one seed"
    few = len(values) < LEAST
    low, high = (min(values), max(values)) if few else interval(values)
    return f"{'range ' * few}{_text(low)} to {_text(high)}"


def _text(value: float) -> str:
    """A number with at least three digits that matter."""
    size = round(abs(value), 3)
    return f"{value:.{1 if size >= 10 else 2 if size >= 1 else 3}f}"


def draw() -> None:
    """A panel for each preset: the mean evaluation over seeds, and all seeds behind it."""
    found = [(name, rows) for name in GOALS if (rows := preset_records.read(name))]
    label = "mean return of deterministic evaluation: thin lines are seeds, dotted ones bars"
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
