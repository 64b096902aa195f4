"""What runs said: warnings, errors, and their whole log."""

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from rlkit.training.logs.loaded_run import LoadedRun
from rlkit.training.logs.records import Record, headline
from rlkit.training.report.entries import Entry
from rlkit.training.report.html import Child, element
from rlkit.training.report.tables import folded, table

MOST_WARNINGS, MOST_LINES = 20, 200  # of a run
_STATES = {
    "killed": "the run ended without a word: it was killed, or its machine stopped",
    "failed": "the run failed",
    "stopped": "the run was stopped early",
}


def warnings(entries: Sequence[Entry]) -> list[Element]:
    """A list of what is not as it should be, run by run; or a sentence that all is well."""
    found = [
        element("li", element("strong", name), ": ", *told)
        for name, run in _runs(entries)
        for told in _warnings(run)
    ]
    if not found:
        return [element("p", "None: no run gave a warning, and none failed.")]
    return [element("ul", *found, class_="warnings")]


def _warnings(run: LoadedRun) -> Iterator[Sequence[Child]]:
    state = _STATES.get(run.status)
    if state is not None:
        yield [f"{state}: {run.status_reason}" if run.status_reason else state]
    told = [record for record in run.records if record.kind in ("warning", "error")]
    for record in told[-MOST_WARNINGS:]:  # the last say how it ended
        yield [*_shortened(record), element("span", f" (at {record.env_steps:,} steps)")]
    if len(told) > MOST_WARNINGS:
        more = len(told) - MOST_WARNINGS
        yield [f"and {more} earlier {'ones' if more > 1 else 'one'}, see metrics.jsonl"]


def _shortened(record: Record) -> list[Child]:
    """The text of a record; of a traceback, the line of the error, and the whole on request."""
    text = (record.text or "").strip()
    if "\n" not in text:
        return [text]
    return [headline(text), folded("everything it said", element("pre", text))]


def log(entries: Sequence[Entry]) -> list[Element]:
    """The texts of each run, folded."""
    return [
        folded(
            f"Log of {name} (rows: {len(said)})",
            _log_table(name, said),
        )
        for name, run in _runs(entries)
        if (said := [record for record in run.records if record.text is not None])
    ]


def _log_table(name: str, said: Sequence[Record]) -> Element:
    left_out = len(said) - MOST_LINES
    caption = f"What {name} said" + (f", without the first {left_out:,}" if left_out > 0 else "")
    rows = [
        [f"{record.env_steps:,}", record.kind, element("span", record.text or "", class_="said")]
        for record in said[-MOST_LINES:]
    ]
    return table([caption], ["Environment steps", "Kind", "Text"], rows, "log")


def _runs(entries: Sequence[Entry]) -> Iterator[tuple[str, LoadedRun]]:
    for entry in entries:
        yield from zip(entry.run_names, entry.runs, strict=True)
