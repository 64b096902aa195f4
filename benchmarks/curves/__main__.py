"""Learning curves of rlkit beside other libraries: same hyperparameters, several seeds of each.

    RLKIT_PEERS=<directory> python benchmarks/curves                 # what is missing; about a day
    RLKIT_PEERS=<directory> python benchmarks/curves dqn-cartpole sac-hopper
    python benchmarks/curves --report                                # table and picture only
    python benchmarks/curves dqn-cartpole --only rlkit --again       # after a change of rlkit
    python benchmarks/curves dqn-cartpole --only rlkit --change '{"weight_init": "orthogonal"}'

A cell is an algorithm on a task beside a reference. Two contenders train at a time, on a core each.
Every seed is recorded when it is done, with its commit, in results/curves/<cell>.jsonl, so the
command may be stopped at any time and goes on where it stopped. README.md explains how to set up
the references.
"""

import argparse
import concurrent.futures
import json
import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]

import curve_records  # noqa: E402
import report  # noqa: E402
from cells import CELLS, OURS  # noqa: E402

from seed_drivers import Driver  # noqa: E402

SHARED = {"purejaxql": "purejaxrl"}
"""References that live in another one's virtual environment."""


def main() -> int:
    """Trains what is missing, and writes table and picture."""
    arguments = _arguments()
    failed = [
        failure
        for name in arguments.cells or CELLS
        if not arguments.report
        for failure in _train(name, arguments)
    ]
    if not arguments.change:
        report.write()
    for failure in failed:
        print(failure, file=sys.stderr)
    return bool(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Learning curves of rlkit beside other libraries, with the same settings."
    )
    parser.add_argument("cells", nargs="*", metavar="CELL", help=f"default all: {', '.join(CELLS)}")
    parser.add_argument("--only", metavar="CONTENDER", help="rlkit, or the name of a reference")
    parser.add_argument("--again", action="store_true", help="train again what is recorded")
    parser.add_argument("--report", action="store_true", help="train nothing")
    parser.add_argument(
        "--change",
        type=json.loads,
        default={},
        help="settings of rlkit to try, as JSON; its curves are printed and not recorded",
    )
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.cells if name not in CELLS]:
        parser.error(f"there is no cell {unknown[0]!r}; choose from {', '.join(CELLS)}")
    if arguments.change and arguments.only != OURS:
        parser.error("--change is about rlkit alone; add --only rlkit")
    return arguments


def _train(name: str, arguments: argparse.Namespace) -> list[str]:
    """Trains the contenders of a cell on their missing seeds; returns what failed."""
    cell = CELLS[name]
    wanted = {
        contender: list(range(cell.seeds))
        if arguments.again or arguments.change
        else curve_records.missing(name, contender)
        for contender in cell.contenders
        if arguments.only in (None, contender)
    }
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        running = [
            pool.submit(_run, name, contender, seeds, arguments.change)
            for contender, seeds in wanted.items()
            if seeds
        ]
        return [failure for run in running if (failure := run.result())]


def _run(name: str, contender: str, seeds: list[int], tried: dict[str, object]) -> str:
    """Trains a contender on one core, and records each seed unless something is only `tried`.

    Returns what went wrong, or "".
    """
    changes = CELLS[name].changes(contender)
    library = CELLS[name].reference if changes is None else OURS
    changes = (changes or {}) | tried
    python = sys.executable
    if library != OURS:
        peers = os.environ.get("RLKIT_PEERS", "/nonexistent")
        python = f"{peers}/venv-{SHARED.get(library, library)}/bin/python"
        if not Path(python).exists():
            return f"{name}: {library} is not installed; RLKIT_PEERS must name its directory"
    given = [name, *map(str, seeds)]
    given += ["--change", json.dumps(changes)] if changes else []
    driver = Driver(f"curve_{library}", "curves", given, python)
    for row in driver.rows("CURVE"):
        print(report.told(name, contender, row), flush=True)
        if not tried:
            curve_records.add(name, contender, row)
    return f"{name}: {contender} ended with code {driver.code}" if driver.code else ""


if __name__ == "__main__":
    sys.exit(main())
