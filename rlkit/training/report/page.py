"""The page: its template, its parts in their places, and what may run in it."""

from collections.abc import Sequence
from importlib import resources
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from rlkit import __version__
from rlkit.training.report.charts import AXES, Chart, charts_of
from rlkit.training.report.comparison import compared, rows_of, settings_of, versions_of
from rlkit.training.report.entries import Entry, Look
from rlkit.training.report.films import films
from rlkit.training.report.html import append, code, data, document, element, source_hash
from rlkit.training.report.notes import log, warnings
from rlkit.training.report.results import results_table
from rlkit.training.report.tables import folded

_SCRIPTS = ("scales.js", "chart.js", "page.js")
_BANDS = {
    "standard_error": "± standard error",
    "interval": "95 % bootstrap interval",
    "min_max": "least to greatest",
    "none": "none",
}


def page(entries: Sequence[Entry], look: Look, metrics: Sequence[str], title: str) -> bytes:
    """The whole file."""
    root = ElementTree.fromstring(_asset("page.html"))
    envs = list(dict.fromkeys(entry.env for entry in entries))
    charts = {env: charts_of(entries, env, look, metrics) for env in envs}
    parts = {
        "about": [_about(entries)],
        "results": [results_table(entries, look)],
        "warnings": warnings(entries),
        "curves": _curves(charts),
        "films": films(entries),
        "settings": compared(entries, rows_of(entries, settings_of), "settings"),
        "versions": compared(entries, rows_of(entries, versions_of), "versions"),
        "log": log(entries),
    }
    for name, found in parts.items():
        if found:
            append(_by_id(root, name), *found)
        else:
            _leave_out(root, name)
    for tag in ("title", "h1"):
        next(root.iter(tag)).text = title
    lines = [chart.lines for found in charts.values() for chart in found]
    known = {
        "entries": [entry.name for entry in entries],
        "axes": AXES,
        "bands": _BANDS[look.band],
        "charts": lines,
    }
    _add_code(root, data(known, "data"))
    return document(root)


def _about(entries: Sequence[Entry]) -> str:
    runs = sum(len(entry.runs) for entry in entries)
    seeds = sum(entry.num_seeds for entry in entries)
    many = f"{runs} runs" if runs > 1 else "1 run"
    of = f"{seeds} seeds" if seeds > 1 else "1 seed"
    return f"{many}, {of}; written by rlkit {__version__}."


def _curves(charts: dict[str | None, list[Chart]]) -> list[Element]:
    """The figures, in groups if there are several environments; empty plots for the script."""
    parts, number = [], 0
    for env, found in charts.items():
        chosen, others = [], []
        for chart in found:
            (chosen if chart.is_chosen else others).append(_figure(chart, number))
            number += 1
        if len(charts) > 1:
            parts.append(element("h3", env or "environment not recorded"))
        if not found:
            parts.append(element("p", "Nothing was logged yet."))
        if chosen:
            parts.append(element("div", *chosen, class_="charts"))
        if others:
            more = element("div", *others, class_="charts")
            parts.append(folded(f"{len(others)} more metrics", more))
    return parts


def _figure(chart: Chart, number: int) -> Element:
    name = [] if chart.title == chart.metric else [" ", element("code", chart.metric)]
    plot = element(
        "div",
        class_="plot",
        data_chart=str(number),
        tabindex="0",
        role="group",
        aria_roledescription="chart",
        aria_label=chart.alt,
    )
    return element("figure", element("figcaption", chart.title, *name), plot)


def _add_code(root: Element, values: Element) -> None:
    """Adds style, scripts and their data; nothing else may run, and nothing may be fetched."""
    style, script = _asset("page.css"), "\n".join(map(_asset, _SCRIPTS))
    script = f'"use strict";\n{script}'
    allowed = {
        "default-src": "'none'",
        "style-src": source_hash(style),
        "script-src": source_hash(script),
        "img-src": "data:",
        "media-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    policy = "; ".join(f"{name} {sources}" for name, sources in allowed.items())
    _by_id(root, "policy").set("content", policy)
    append(root[0], code("style", style))
    append(root[1], values, code("script", script))


def _leave_out(root: Element, name: str) -> None:
    """Removes a section, and the link to it."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.get("id") == name or child.get("href") == f"#{name}":
                parent.remove(child)


def _by_id(root: Element, name: str) -> Element:
    return next(found for found in root.iter() if found.get("id") == name)


def _asset(name: str) -> str:
    folder = resources.files("rlkit.training.report")
    return folder.joinpath("assets", name).read_text(encoding="utf-8")
