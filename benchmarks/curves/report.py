"""The table of docs/learning.md, between its two markers, and the picture beside it."""

from collections.abc import Sequence
from typing import Any

import curve_records
import numpy as np
from cells import CELLS, OURS, PARTS, Cell
from curve_records import Row

import page
from intervals import Difference, area, curve, difference
from records import short

COMMAND = "make curves"
PICTURE = page.IMAGES / "curves.png"
HEADS = (
    *("algorithm", "task", "steps", "reference", "seeds", "rlkit, by tenth"),
    *("reference, by tenth", "difference of areas (95 %)", "tenths behind", "rlkit's commit"),
)
SHOWN = (1, 3, 5, 7, 10)  # tenths


def told(name: str, contender: str, row: dict[str, Any]) -> str:
    """One line about a seed that was trained."""
    values = curve(row["return_sums"], row["episodes"])
    return (
        f"{name} {contender} seed {row['seed']}: {_joined(values)} area {_joined([area(values)])}"
        f" ({row['seconds']:.0f} s)"
    )


def write() -> None:
    """Writes table and picture, from what is recorded."""
    page.show(COMMAND, table())
    draw()


def table() -> str:
    """A sentence about all cells, and a row for each and each of our contenders in it."""
    lines, found = [], []
    for name, cell in CELLS.items():
        rows = _by_contender(name)
        theirs = rows.pop(cell.reference, [])
        lines += [
            _line(cell, contender, ours, theirs) for contender, ours in rows.items() if theirs
        ]
        found += [compared(rows[OURS], theirs)] if theirs and OURS in rows else []
    return f"{_in_all(found)}\n\n{page.lines(HEADS, 2, lines)}"


def _in_all(found: Sequence[Difference]) -> str:
    ahead = sum(each.is_ahead for each in found)
    behind = sum(each.is_behind for each in found)
    return (
        f"In the {len(found)} rows without a remark, the area of rlkit is larger in {ahead} and"
        f" smaller in {behind}, with an\ninterval that excludes zero; {len(found) - ahead - behind}"
        " show no difference, which is not to say that there is none."
    )


def _by_contender(name: str) -> dict[str, list[Row]]:
    """The rows of those that have any, rlkit first."""
    rows = curve_records.read(name)
    found = {
        contender: [row for row in rows if row.contender == contender]
        for contender in CELLS[name].contenders
    }
    return {contender: rows for contender, rows in found.items() if rows}


def _line(cell: Cell, contender: str, ours: list[Row], theirs: list[Row]) -> tuple[str, ...]:
    found = compared(ours, theirs)
    version = theirs[0].fields["versions"].get(_PACKAGE.get(cell.reference, ""), "")
    algorithm = _algorithm(cell)
    return (
        algorithm if contender == OURS else f"{algorithm}, {contender.partition(', ')[2]}",
        f"{cell.task.suite}/{cell.task.env}",
        f"{cell.task.total_steps:,}",
        f"{_NAME[cell.reference]} {version}".strip(),
        f"{len(ours)}, {len(theirs)}",
        _shown(ours),
        _shown(theirs),
        f"**{found}**" if found.is_behind else str(found),
        ", ".join(map(str, tenths_behind(ours, theirs))) or "none",
        short([row.fields["revision"] for row in ours]),
    )


def _algorithm(cell: Cell) -> str:
    return _ALGORITHM.get(cell.task.kind[0], cell.task.kind[0].upper())


def tenths_behind(ours: list[Row], theirs: list[Row]) -> list[int]:
    """The tenths, from 1, in which the interval of the mean returns excludes zero against rlkit.

    Those in which a seed ended no episode are left out.
    """
    one, other = (np.array([row.curve for row in rows]) for rows in (ours, theirs))
    return [
        part + 1
        for part in range(PARTS)
        if np.isfinite([*one[:, part], *other[:, part]]).all()
        and difference(one[:, part].tolist(), other[:, part].tolist()).is_behind
    ]


_ALGORITHM = {"recurrent_ppo": "PPO with a GRU"}
_NAME = {
    "purejaxrl": "PureJaxRL",
    "purejaxql": "purejaxql",
    "rejax": "rejax",
    "sb3": "Stable-Baselines3",
    "sbx": "SBX",
}
_PACKAGE = {"rejax": "rejax", "sb3": "stable-baselines3", "sbx": "sbx-rl"}


def compared(ours: list[Row], theirs: list[Row]) -> Difference:
    """The difference between the areas under the curves of the seeds."""
    return difference([area(row.curve) for row in ours], [area(row.curve) for row in theirs])


def _shown(rows: list[Row]) -> str:
    mean = np.nanmean([row.curve for row in rows], axis=0)
    return _joined([mean[tenth - 1] for tenth in SHOWN])


def _joined(values: Sequence[float]) -> str:
    """Returns as text; small ones have digits."""
    digits = 0 if np.nanmax(np.abs(values)) >= 10 else 2
    return " ".join(f"{x:.{digits}f}" for x in values)


def draw() -> None:
    """A panel for each cell: the mean over seeds, and all seeds behind it."""
    rows_of = {name: _by_contender(name) for name in CELLS}
    found = [
        (CELLS[name], rows[OURS], rows[CELLS[name].reference])
        for name, rows in rows_of.items()
        if {OURS, CELLS[name].reference} <= rows.keys()
    ]
    label = "mean return of training episodes, by tenth of the run"
    for panel, cell in page.panels(found, PICTURE, columns=4, size=(3.2, 2.4), y_label=label):
        _draw_cell(panel, *cell)


def _draw_cell(panel: Any, cell: Cell, ours: list[Row], theirs: list[Row]) -> None:
    task = cell.task
    prefill = task.total_steps - task.env_steps
    steps = prefill + (np.arange(PARTS) + 0.5) * task.env_steps / PARTS
    for rows, color, label in (
        (theirs, "tab:orange", _NAME[cell.reference]),
        (ours, "tab:blue", "rlkit"),
    ):
        for row in rows:
            panel.plot(steps, row.curve, color=color, alpha=0.2, linewidth=0.8)
        mean = np.nanmean([row.curve for row in rows], axis=0)
        panel.plot(steps, mean, color=color, linewidth=1.8, label=f"{label}, n = {len(rows)}")
    panel.set_title(f"{_algorithm(cell)}, {task.suite}/{task.env}", fontsize=8)
    panel.legend(fontsize=6, frameon=False)
