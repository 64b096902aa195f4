"""What was recorded of the suites, and the table of docs/suites.md that is made from it."""

import importlib.metadata
import json
import statistics
from pathlib import Path
from typing import Any

import preset_records
from goals import GOALS

import page
import rows
from records import HERE, short
from rlkit.envs.suites.table import ADAPTED

COMMAND = "make suites"
PAGE = page.PAGE.with_name("suites.md")
HEADS = ("suite", "version", "JAX", "environments", "work", "learns", "left out, and why")


def path_of(suite: str) -> Path:
    """Where the rows of a suite are."""
    return HERE / "results" / "suites" / f"{suite}.jsonl"


def versions(suite: str) -> dict[str, str]:
    """Of the suite's own package and of JAX, as they are installed."""
    names = (ADAPTED[suite].distribution, "jax")
    return {name: importlib.metadata.version(name) for name in names}


def read(suite: str, of: dict[str, str]) -> list[dict[str, Any]]:
    """The rows of a suite that were made with these versions."""
    return rows.read(path_of(suite), of)


def read_newest(suite: str) -> list[dict[str, Any]]:
    """The rows of a suite, made with whatever versions."""
    path = path_of(suite)
    return list(map(json.loads, path.read_text().splitlines())) if path.exists() else []


def write() -> None:
    """Writes the table."""
    page.show(COMMAND, table(), PAGE)


def table() -> str:
    """A row for each suite."""
    return page.lines(HEADS, len(HEADS), [_line(suite) for suite in ADAPTED])


def _line(suite: str) -> tuple[str, ...]:
    found = read_newest(suite)
    count = f"{len(ADAPTED[suite].ids)}"
    left_out = _left_out(ADAPTED[suite].left_out)
    if not found:
        return f"`{suite}/`", "", "", count, "not tried yet", _learns(suite), left_out
    version = found[0]["settings"]
    work = [row for row in found if not row["error"]]
    commits = short([row["revision"] for row in found])
    failing = "".join(f"<br>`{row['id']}`: {row['error']}" for row in found if row["error"])
    return (
        f"`{suite}/`",
        version[ADAPTED[suite].distribution],
        version["jax"],
        count,
        f"{len(work)} of {len(found)} that were tried (commit {commits})" + failing,
        _learns(suite),
        left_out,
    )


def _learns(suite: str) -> str:
    """What presets of the suite reached, as `make learning` recorded it."""
    lines = []
    for name, goal in GOALS.items():
        algorithm, _, env_id = name.partition("/")
        if env_id.startswith(f"{suite}/") and (found := preset_records.read(name)):
            mean = statistics.fmean(row[goal.measure] for row in found)
            steps = found[0]["env_steps"]
            lines.append(
                f"{algorithm} `{env_id}`: {mean:.2f} by {steps:,} steps, {len(found)} seeds"
            )
    return "<br>".join(lines) or "not measured"


def _left_out(reasons: dict[str, str]) -> str:
    """Each reason once, after the environments that it holds for."""
    names: dict[str, list[str]] = {}
    for name, why in reasons.items():
        names.setdefault(why, []).append(f"`{name}`")
    return "<br>".join(f"{', '.join(those)}: {why}" for why, those in names.items())
