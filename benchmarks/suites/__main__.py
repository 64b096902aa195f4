"""Which environments of the suites of others work: each is made, stepped and checked.

    python benchmarks/suites                        # what is missing; an hour or two
    python benchmarks/suites craftax jumanji        # these suites
    python benchmarks/suites pgx --again            # also what is recorded
    python benchmarks/suites --report               # the table only
    python benchmarks/suites --picture              # the picture only, a minute or two

`make suites` runs it in an environment that has the suites. A row is recorded for each id, with the
versions of the suite and of JAX, in results/suites/<suite>.jsonl; rows of other versions are made
again. The table of docs/suites.md is made from them.
"""

import argparse
import importlib.metadata
import sys
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "learning"), str(HERE.parents[2])]

import suite_picture  # noqa: E402
import suite_report  # noqa: E402

import rows  # noqa: E402
from rlkit.envs.suites.table import ADAPTED  # noqa: E402
from seed_drivers import Driver  # noqa: E402


def main() -> int:
    """Tries what is missing, and writes the table. Returns 1 if an environment does not work."""
    arguments = _arguments()
    if arguments.picture:
        suite_picture.draw()
        return 0
    failed = []
    for suite in arguments.suites or ADAPTED:
        if not arguments.report:
            failed += _try(suite, arguments.again)
        failed += [
            f"{row['id']}: {row['error']}"
            for row in suite_report.read_newest(suite)
            if row["error"]
        ]
    suite_report.write()
    for failure in failed:
        print(failure, file=sys.stderr)
    return bool(failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Which environments of other suites work.")
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", help=f"default all: {', '.join(ADAPTED)}"
    )
    parser.add_argument("--again", action="store_true", help="try again what is recorded")
    parser.add_argument("--report", action="store_true", help="try nothing")
    parser.add_argument("--picture", action="store_true", help="draw ten environments instead")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.suites if name not in ADAPTED]:
        parser.error(f"there is no suite {unknown[0]!r}; choose from {', '.join(ADAPTED)}")
    return arguments


def _try(suite: str, again: bool) -> list[str]:
    """Tries the environments of a suite that have no row. Returns what went wrong."""
    try:
        versions = suite_report.versions(suite)
    except importlib.metadata.PackageNotFoundError as error:
        return [f"{suite} is not installed ({error.name}); {ADAPTED[suite].install}"]
    known = set() if again else {row["id"] for row in suite_report.read(suite, versions)}
    missing = [name for name in ADAPTED[suite].ids if f"{suite}/{name}" not in known]
    if not missing:
        return []
    driver = Driver("suite_envs", "suites", [suite, *missing])
    for row in driver.rows("ROW"):
        print(f"{row['id']}: {row['error'] or 'works'} ({row['seconds']:.0f} s)", flush=True)
        rows.add(suite_report.path_of(suite), versions, row, key=("id",))
    return [f"{suite} ended with code {driver.code}"] if driver.code else []


if __name__ == "__main__":
    sys.exit(main())
