"""docs/learning.md, parts of which are made from what is recorded."""

from records import HERE

PAGE = HERE.parent / "docs" / "learning.md"
IMAGES = HERE.parent / "docs" / "images"
END = "<!-- end of what is made -->"


def begin(command: str) -> str:
    """The line before what a command makes."""
    return f"<!-- made by {command} -->"


def shown(command: str) -> str:
    """What the page shows now of what a command makes."""
    return PAGE.read_text().partition(begin(command))[2].partition(END)[0].strip()


def show(command: str, table: str) -> None:
    """Puts a table in the place of the one that a command made before."""
    before, line, rest = PAGE.read_text().partition(begin(command))
    assert line, f"{PAGE} has no {begin(command)}"
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{line}\n{table}\n{END}{after}")


def lines(heads: tuple[str, ...], texts: int, rows: list[tuple[str, ...]]) -> str:
    """A Markdown table, whose first columns are texts and whose others are numbers."""
    ruler = ("---",) * texts + ("---:",) * (len(heads) - texts)
    return "\n".join(f"| {' | '.join(line)} |" for line in [heads, ruler, *rows])
