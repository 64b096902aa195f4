"""Figures as files: png, pdf or svg, by their ending."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

from rlkit.errors import require
from rlkit.training.directories import write_output

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FORMATS = (".png", ".pdf", ".svg")


def new_figure(size: tuple[float, float]) -> "Figure":
    """An empty figure of that size in inches, which no window will show."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def require_format(output: Path) -> None:
    """Raises `ConfigError` unless the ending says how to draw."""
    kind = f"a {output.suffix} file" if output.suffix else f"{output}, which has no ending"
    endings = f"{', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}"
    known = output.suffix.lower() in _FORMATS
    require(known, f"cannot draw {kind}", f"choose a name that ends in {endings}")


def save_figure(figure: "Figure", output: Path) -> Path:
    """Writes the figure and returns its path. Raises `ConfigError` if it cannot be written.

    A PDF holds its letters as TrueType: publishers turn matplotlib's usual Type 3 away.
    """
    from matplotlib import rc_context

    drawn = io.BytesIO()
    with rc_context({"pdf.fonttype": 42}):
        figure.savefig(drawn, format=output.suffix[1:].lower(), dpi=150)
    return write_output(output, drawn.getvalue())
