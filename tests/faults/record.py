"""What an attack found, as JSON: counts, versions, the machine in general words, date and seed."""

import argparse
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from shell_signals import hear_signals  # noqa: E402

RESULTS = ROOT / "tests" / "faults" / "results"
# Of this process, before it uses JAX, and of the commands that it starts.
ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "NPROC": "1", "PYTHONPATH": str(ROOT)}
Record = dict[str, Any]
Row = tuple[str, str, str]


def attack(name: str, run: Callable[[random.Random, Path, bool], dict[str, Any]]) -> None:
    """The main function of a part: runs it, prints a line, and writes `<output>/<name>.json`.

    `run(dice, directory, is_sample)` returns the counts, in a directory that is removed afterwards;
    `failures` among them lists what went wrong, and the process then ends with code 1.
    """
    parser = argparse.ArgumentParser(description=f"The part '{name}' of the attack.")
    parser.add_argument("--all", action="store_true", help="the figures, not a sample")
    parser.add_argument("--seed", type=int, default=0, help="of the random choices")
    parser.add_argument("--output", type=Path, default=Path("runs/faults"), help="of the record")
    given = parser.parse_args()
    os.environ |= ENVIRONMENT
    hear_signals()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rlkit-faults-") as directory:
        counts = run(random.Random(given.seed), Path(directory), not given.all)
    record = {
        "part": name,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "seed": given.seed,
        "is_sample": not given.all,
        "seconds": round(time.monotonic() - begun),
        "machine": machine(),
        "versions": versions(),
        **counts,
    }
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    told = ", ".join(f"{key} {value}" for key, value in counts.items() if isinstance(value, int))
    print(f"{name}: {told} ({record['seconds']} s)", flush=True)
    for failure in counts["failures"]:
        print(f"  FAILED {failure}", flush=True)
    raise SystemExit(bool(counts["failures"]))


def machine() -> str:
    """In general words."""
    memory = round(psutil.virtual_memory().total / 2**30)
    return f"{os.cpu_count()} cores, {memory} GB, {platform.system()} {platform.machine()}, CPU"


def versions() -> dict[str, str]:
    """Of Python and of the packages that numbers and files depend on."""
    from rlkit.training.fingerprint import versions

    return versions()


def read(directory: Path, name: str) -> Record | None:
    """The record of a part; None if it was not run."""
    path = directory / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None
