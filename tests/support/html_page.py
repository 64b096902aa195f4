"""A page as a parser reads it: its elements, with their text and attributes."""

import dataclasses
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "img", "br", "hr", "link", "input"}


@dataclasses.dataclass
class Found:
    """An element."""

    tag: str
    attributes: dict[str, str]
    inside: list[str]
    """The tags around it, outermost first."""
    text: str = ""

    def __getitem__(self, name: str) -> str:
        return self.attributes[name]


class Page(HTMLParser):
    """Fails at an element that is closed out of order."""

    def __init__(self, path: Path):
        super().__init__()
        self.found: list[Found] = []
        self._open: list[Found] = []
        self.feed(path.read_text(encoding="utf-8"))
        assert not self._open, self._open

    def all(self, tag: str) -> list[Found]:
        """The elements of a kind, in order."""
        return [each for each in self.found if each.tag == tag]

    def texts(self, tag: str) -> list[str]:
        """Their texts, without blank space around."""
        return [each.text.strip() for each in self.all(tag)]

    def rows(self, kind: str) -> list[list[str]]:
        """The texts of the cells of all tables of a class."""
        rows: list[list[str]] = []
        table = ""
        for each in self.found:
            table = each.attributes.get("class", "") if each.tag == "table" else table
            if table == kind and each.tag == "tr":
                rows.append([])
            elif table == kind and each.tag in ("th", "td"):
                rows[-1].append(each.text)
        return rows

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        inside = [each.tag for each in self._open]
        new = Found(tag, {name: value or "" for name, value in attrs}, inside)
        self.found.append(new)
        if tag not in VOID:
            self._open.append(new)

    def handle_endtag(self, tag):
        last = self._open.pop()
        assert last.tag == tag, f"</{tag}> closes <{last.tag}>"

    def handle_data(self, data):
        for each in self._open:
            each.text += data
