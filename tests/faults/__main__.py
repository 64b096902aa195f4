"""The whole attack, part by part, each in a process of its own.

python tests/faults                     a sample of each part, two at a time, and its table
python tests/faults --all               the figures, and the table of docs/reliability.md
python tests/faults kills damage        these parts alone
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from record import RESULTS
from table import PAGE, PARTS, page, table

SAMPLES = Path("runs/faults")
LIMIT = 7200.0  # seconds for a part
ALONE = ("guards",)  # what measures time, after all others


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
    begun, wanted = time.monotonic(), list(dict.fromkeys(given.parts or PARTS))
    if not given.all:  # what an earlier sample found is none of this one's
        for part in wanted:
            (output / f"{part}.json").unlink(missing_ok=True)
    together = [part for part in wanted if part not in ALONE and not given.all]
    failed = _failed(together, options, at_once=2)
    failed += _failed((part for part in wanted if part not in together), options, at_once=1)
    if given.all:
        PAGE.write_text(page())
    print(table(output))
    told = f"failed: {', '.join(failed)}" if failed else "nothing failed"
    print(f"{told} ({time.monotonic() - begun:.0f} s)")
    return bool(failed)


def _failed(parts: Iterable[str], options: list[str], *, at_once: int) -> list[str]:
    """Runs parts, so many at once; returns those that failed.

    What each says is printed as it comes or, of several at once, when it has ended. They start in
    the order given; after Ctrl-C no further one starts.
    """

    def run(part: str) -> bool:
        print(f"{part} begins", flush=True)
        command = [sys.executable, str(Path(__file__).with_name(f"{part}.py")), *options]
        if at_once == 1:
            return subprocess.run(command, timeout=LIMIT).returncode == 0
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT
        )
        print(done.stdout, end="", flush=True)  # in one piece
        return done.returncode == 0

    parts = list(parts)
    with ThreadPoolExecutor(at_once) as pool:
        return [
            part for part, passes in zip(parts, pool.map(run, parts), strict=True) if not passes
        ]


if __name__ == "__main__":
    sys.exit(main())
