"""Checks that rlkit has not become slower than a plain PPO (`drivers/reference_ppo.py`).

    python benchmarks/regression.py [--rounds 5] [--record VERSION]

Needs no peers. Both train alternately on the tasks below; the ratio of their speeds is compared
with the one recorded for the last release in benchmarks/releases.json. Ratios transfer between
machines better than seconds, but not perfectly: a record includes its machine. The exit status is 1
if a ratio is more than a tenth below the last one. `--record 0.2.0` adds this run to the file.
"""

import argparse
import json
import statistics
import sys
from typing import Any

from common import versions
from records import HERE, add_rounds, machine, markdown, now, revision, with_spread
from throughput import contenders, measure, speeds

RELEASES = HERE / "releases.json"
COMPARED = ("cartpole-4x128", "cartpole-512x64", "breakout-64x128")
TOLERANCE = 0.9


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_rounds(parser)
    parser.add_argument("--record", metavar="VERSION", help="add this run to releases.json")
    args = parser.parse_args()
    releases: list[dict[str, Any]] = json.loads(RELEASES.read_text()) if RELEASES.exists() else []
    if any(release["version"] == args.record for release in releases):
        parser.error(
            f"{args.record} is already recorded; choose a new version (records are never replaced)"
        )
    runners = [contender for contender in contenders() if contender.name in ("rlkit", "reference")]
    rows, ratios, slower = [], {}, False
    last = releases[-1] if releases else None
    for task in COMPARED:
        own, reference = measure(task, runners, args.rounds, [])
        if own["error"] or reference["error"]:
            raise SystemExit(f"{task}: {own['error'] or reference['error']}")
        measured = [speeds(record, "env_steps") for record in (own, reference)]
        ratios[task] = round(statistics.median(measured[0]) / statistics.median(measured[1]), 3)
        before = last["ratios"].get(task) if last else None
        slower |= before is not None and ratios[task] < TOLERANCE * before
        rows.append(
            [
                task,
                *map(with_spread, measured),
                f"{ratios[task]:.2f}",
                f"{before:.2f}" if before else "",
            ]
        )
    heads = [
        "",
        "rlkit, env steps/s (min–max)",
        "reference",
        "ratio",
        last["version"] if last else "no release yet",
    ]
    print(markdown(heads, rows))
    if last and last["machine"]["cpu"] != machine()["cpu"]:
        print(
            f"{last['version']} was recorded on another machine: {last['machine']['cpu']}",
            file=sys.stderr,
        )
    if args.record:
        release = {
            "version": args.record,
            "when": now(),
            "revision": revision(),
            "machine": machine(),
            "ratios": ratios,
        }
        release["versions"] = versions("jax", "jaxlib", "flax", "optax", "gymnax")
        RELEASES.write_text(json.dumps([*releases, release], indent=1) + "\n")
        print(f"recorded: {RELEASES.name}")
    if slower:
        print(f"slower than {TOLERANCE:.0%} of {last['version']}", file=sys.stderr)
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())
