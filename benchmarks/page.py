"""Pages of which parts are made from what is recorded; docs/learning.md, if no other is named."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from records import HERE

Item = TypeVar("Item")

PAGE = HERE.parent / "docs" / "learning.md"
IMAGES = HERE.parent / "docs" / "images"
END = "<!-- end of what is made -->"


def begin(command: str) -> str:
    """The line before what a command makes."""
    return f"<!-- made by {command} -->"


def shown(command: str, page: Path = PAGE) -> str:
    """What the page shows now of what a command makes."""
    return page.read_text().partition(begin(command))[2].partition(END)[0].strip()


def show(command: str, table: str, page: Path = PAGE) -> None:
    """Puts a table in the place of the one that a command made before."""
    before, line, rest = page.read_text().partition(begin(command))
    assert line, f"{page} has no {begin(command)}"
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{line}\n{table}\n{END}{after}")


def lines(heads: tuple[str, ...], texts: int, rows: list[tuple[str, ...]]) -> str:
    """A Markdown table, whose first columns are texts and whose others are numbers."""
    ruler = ("---",) * texts + ("---:",) * (len(heads) - texts)
    return "\n".join(f"| {' | '.join(line)} |" for line in [heads, ruler, *rows])


def panels(
    items: Sequence[Item], path: Path, *, columns: int, size: tuple[float, float], y_label: str
) -> Iterator[tuple[Any, Item]]:
    """(axes, item) for each item, all over environment steps; then writes the picture to `path`."""
    from matplotlib.figure import Figure

    rows = -(-len(items) // columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, item in zip(axes, items, strict=False):
        yield panel, item
        panel.tick_params(labelsize=7)
        panel.ticklabel_format(axis="x", style="sci", scilimits=(3, 4))
        panel.xaxis.get_offset_text().set_fontsize(7)
    for panel in axes[len(items) :]:
        panel.set_axis_off()
    figure.supxlabel("environment steps", fontsize=9)
    figure.supylabel(y_label, fontsize=9)
    figure.savefig(path, dpi=110)
