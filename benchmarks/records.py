"""Shared by all benchmarks: command-line options, turns, tables and JSON records."""

import argparse
import collections
import contextlib
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil

HERE = Path(__file__).resolve().parent
_NOT_CODE = (":(top,exclude)benchmarks/results", ":(top,exclude)docs")

Item = TypeVar("Item")


def at_least_one(text: str) -> int:
    """Parses a number of rounds for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} rounds measure nothing; use 5")
    return int(text)


def add_rounds(
    parser: argparse.ArgumentParser, counted: str = "timed executions per contender"
) -> None:
    """Adds the option `--rounds`."""
    parser.add_argument("--rounds", type=at_least_one, default=5, help=counted)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Adds the option `--output`."""
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(os.path.relpath(HERE / "results")),
        help="directory for the JSON record",
    )


def in_turns(items: Sequence[Item], rounds: int) -> Iterator[tuple[int, Item]]:
    """(number of the round, item), with another item first in each round."""
    turns = collections.deque(items)
    for number in range(1, rounds + 1):
        yield from ((number, item) for item in turns)
        turns.rotate(-1)


def now() -> str:
    """The start time of a benchmark, for its record's name."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


def write(name: str, when: str, output: Path, **fields: Any) -> None:
    """Writes a record with the time, the commit and the machine, and prints its path."""
    output.mkdir(parents=True, exist_ok=True)
    path = output / f"{name}-{when}.json"
    record = {"when": when, "revision": revision(), "machine": machine(), **fields}
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"raw record: {path}")


def machine() -> dict[str, Any]:
    """What a reader needs to interpret the numbers; nothing that identifies the machine."""
    model = platform.processor()
    with contextlib.suppress(OSError, StopIteration), open("/proc/cpuinfo") as info:
        model = next(
            line.partition(":")[2].strip() for line in info if line.startswith("model name")
        )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
    }


def revision() -> str:
    """The measured commit, with a plus if its code had changes (not records and docs)."""
    git = ["git", "-C", str(HERE)]
    commit = subprocess.run(
        [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    dirty = subprocess.run(
        [*git, "status", "--porcelain", "--", ":/", *_NOT_CODE],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return (commit or "none") + "+" * bool(dirty)


def short(commits: Sequence[str]) -> str:
    """Commits for a table, each once, with the pluses of `revision`."""
    return ", ".join(sorted({x[:9] + "+" * x.endswith("+") for x in commits}))


def with_spread(values: Sequence[float], digits: int = 0) -> str:
    """The median with minimum and maximum."""
    low, middle, high = (
        f"{x:,.{digits}f}" for x in (min(values), statistics.median(values), max(values))
    )
    return f"{middle} ({low}–{high})"


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose first column is text and the others numbers."""
    lines = [
        f"|{' |'.join(f' {head}'.rstrip() for head in heads)} |",
        "|---|" + "---:|" * (len(heads) - 1),
    ]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
