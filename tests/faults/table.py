"""The table of docs/reliability.md, between its two markers, from the records of the attack.

python tests/faults/table.py            writes it
python tests/faults/table.py --check    tells by its exit code whether it is there
"""

import json
import sys
from pathlib import Path

import damage
import environments
import guards
import interrupted
import kills
import loggers
import processes
import stops
import under_pytest
from attacked_runs import ROOT
from record import RESULTS, Row, read

PAGE = ROOT / "docs" / "reliability.md"
SOAK = ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- made by tests/faults -->", "<!-- end of what is made -->"
PARTS = {
    "kills": kills,
    "processes": processes,
    "damage": damage,
    "environments": environments,
    "stops": stops,
    "loggers": loggers,
    "interrupted": interrupted,
    "under_pytest": under_pytest,
    "guards": guards,
}


def table(directory: Path = RESULTS) -> str:
    """The table in Markdown; a part without a record is "not run"."""
    rows = [("attack", "how often", "result"), ("---", "---:", "---")]
    measured: dict[str, set[str]] = {}  # dates, by machine
    for name, part in PARTS.items():
        record = read(directory, name)
        if record is None:
            rows.append((name, "not run", ""))
            continue
        rows += part.rows(record)
        sample = ", a sample" if record["is_sample"] else ""
        measured.setdefault(f"{record['machine']}{sample}", set()).add(record["date"])
    lines = [f"| {' | '.join(row)} |" for row in (*rows, _soak())]
    when = [f"{', '.join(sorted(dates))} ({where})" for where, dates in sorted(measured.items())]
    return "\n".join([*lines, "", f"Measured on {', '.join(when)}."])


def _soak() -> Row:
    """The row of `make soak`, from its newest record."""
    records = sorted(SOAK.glob("soak*.json"))
    if not records:
        return "soak: memory", "not run", ""
    found = json.loads(records[-1].read_text())
    steps = found["settings"]["saves"] * found["settings"]["steps_per_save"]
    slope = f"{found['megabytes_beyond_orbax']:.2f} MB per 10⁶ steps beyond what Orbax alone leaves"
    return "soak: memory", f"{found['settings']['saves']:,} saves in {steps:,} steps", slope


def page() -> str:
    """The page with the table of the records in its place."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(page() != PAGE.read_text())
    PAGE.write_text(page())
