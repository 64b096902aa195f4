"""Tables of a report as elements: a caption, a row of names, rows with a name of their own."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from rlkit.training.report.html import Child, append, element

Cell = Child | None
MISSING = "–"


def table(
    caption: Sequence[Child], columns: Sequence[Child], rows: Sequence[Sequence[Cell]], kind: str
) -> Element:
    """A table whose first column names the rows; it scrolls sideways where it is too wide."""
    head = element("tr", *(element("th", name, scope="col") for name in columns))
    body = element("tbody", *(_row(row) for row in rows))
    found = element(
        "table", element("caption", *caption), element("thead", head), body, class_=kind
    )
    # A part that scrolls must be within reach of the keyboard, and then needs a name.
    name = "".join(found[0].itertext())
    return element("div", found, class_="scroll", tabindex="0", role="region", aria_label=name)


def _row(cells: Sequence[Cell]) -> Element:
    name, *others = cells
    row = append(element("tr"), element("th", MISSING if name is None else name, scope="row"))
    return append(row, *(element("td", MISSING if cell is None else cell) for cell in others))


def folded(summary: str, *children: Child) -> Element:
    """What is shown once its summary is clicked."""
    return element("details", element("summary", summary), *children)
