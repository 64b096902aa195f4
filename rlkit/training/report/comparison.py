"""Settings, versions and machines of entries side by side, with what differs first."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from xml.etree.ElementTree import Element

from rlkit.training.logs.loaded_run import LoadedRun
from rlkit.training.logs.redaction import redact
from rlkit.training.report.entries import Entry
from rlkit.training.report.html import Child, element
from rlkit.training.report.tables import MISSING, folded, table
from rlkit.training.run_config import flat_settings
from rlkit.validation import PlainData

_TRIVIAL = {"trainer.run_dir"}  # differs always, and says nothing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A setting: its text in each entry, None where no run of the entry has it."""

    name: str
    values: tuple[str | None, ...]
    differs: bool
    """Between any two runs, also of one entry."""


def settings_of(run: LoadedRun) -> PlainData:
    """The settings of a run by their full names, without secrets."""
    return flat_settings(redact(run.config))


def versions_of(run: LoadedRun) -> PlainData:
    """Versions, and the machine; {} before the run has ended."""
    versions = run.summary.get("versions")
    machine = run.summary.get("fingerprint")
    found = flat_settings(versions) if isinstance(versions, dict) else {}
    here = flat_settings(machine) if isinstance(machine, dict) else {}
    return found | {name: value for name, value in here.items() if name not in found}


def rows_of(entries: Sequence[Entry], facts_of: Callable[[LoadedRun], PlainData]) -> list[Row]:
    """A row for each fact that any run has."""
    facts = [[facts_of(run) for run in entry.runs] for entry in entries]
    names = dict.fromkeys(name for runs in facts for run in runs for name in run)
    rows = []
    for name in names:
        texts = [[_text(run[name]) if name in run else None for run in runs] for runs in facts]
        different = {text for runs in texts for text in runs}
        values = tuple(
            ", ".join(dict.fromkeys(text for text in runs if text is not None)) or None
            for runs in texts
        )
        differs = len(different) > 1 and name not in _TRIVIAL
        rows.append(Row(name=name, values=values, differs=differs))
    return rows


def compared(entries: Sequence[Entry], rows: Sequence[Row], what: str) -> list[Element]:
    """Tables: of what differs, and of everything; or a sentence that there is nothing."""
    if not rows:
        return [element("p", f"No {what} recorded: runs say this when they end.")]
    columns = ["Name", *(entry.name for entry in entries)]
    different = [row for row in rows if row.differs]
    marked = element("mark", "marked")
    caption = [f"All {what}", *([": what differs between runs is ", marked] if different else [])]
    everything = table(caption, columns, [_cells(row) for row in rows], "facts")
    whole = folded(f"All {what} ({len(rows)})", everything)
    if sum(len(entry.runs) for entry in entries) == 1:
        return [whole]
    if not different:
        return [element("p", f"All runs have the same {what}."), whole]
    caption = [f"What differs between the {what} of the runs ({len(different)} of {len(rows)})"]
    first = table(caption, columns, [_cells(row, marked=False) for row in different], "facts")
    return [first, whole]


def _cells(row: Row, *, marked: bool = True) -> list[Child | None]:
    name: Child = element("code", row.name)
    if row.differs and marked:
        name = element("mark", name, title="differs between runs")
    values = (MISSING if text is None else text for text in row.values)
    return [name, *(element("code", text) for text in values)]


def _text(value: object) -> str:
    """As in config.yaml."""
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
