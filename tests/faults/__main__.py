"""The whole attack, part by part, each in a process of its own.

python tests/faults                     a sample of each part, its table on the screen
python tests/faults --all               the figures, and the table of docs/reliability.md
python tests/faults kills damage        these parts alone
"""

import argparse
import subprocess
import sys
from pathlib import Path

from record import RESULTS
from table import PAGE, PARTS, page, table

SAMPLES = Path("runs/faults")
LIMIT = 7200.0  # seconds for a part


def main() -> int:
    """Runs the parts, prints the table, and returns 1 if one of them failed."""
    parser = argparse.ArgumentParser(description="Attacks rlkit, and reports what came of it.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--all", action="store_true", help="the figures, not a sample")
    parser.add_argument("--seed", type=int, default=0, help="of the random choices")
    given = parser.parse_args()
    unknown = [part for part in given.parts if part not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; choose from {', '.join(PARTS)}")
    output = RESULTS if given.all else SAMPLES
    options = ["--seed", str(given.seed), "--output", str(output), *["--all"] * given.all]
    failed = [part for part in given.parts or PARTS if not _passes(part, options)]
    if given.all:
        PAGE.write_text(page())
    print(table(output))
    print(f"failed: {', '.join(failed)}" if failed else "nothing failed")
    return bool(failed)


def _passes(part: str, options: list[str]) -> bool:
    command = [sys.executable, str(Path(__file__).with_name(f"{part}.py")), *options]
    return subprocess.run(command, timeout=LIMIT).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
