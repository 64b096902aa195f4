"""How long a run takes to start, with an empty and with a full compilation cache.

    RLKIT_PEERS=<directory> python benchmarks/startup.py [TASK] [--rounds 5]

Every measurement is a new process that imports, traces, compiles and trains for ten updates.
Contenders alternate; in each round a contender runs twice with its own cache directory, which is
empty the first time ("cold") and holds its programs the second time ("warm"). The whole training
run is one program, except for `rlkit-trainer`, which counts the time until a `Trainer` has been
created, has compiled its functions one by one and has trained for the first of the ten updates.
Prints a Markdown table and writes the raw record to benchmarks/results/.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from records import add_output, add_rounds, in_turns, markdown, now, with_spread, write
from tasks import TASKS
from throughput import OURS, Contender, Driver, contenders

NUM_UPDATES = 10


def start(contender: Contender, task: str, cache: str) -> dict[str, float]:
    """Seconds of one new process: imports, trace + compile, and ten updates."""
    driver = Driver(contender, task, ["--num-updates", str(NUM_UPDATES)], cache)
    driver.ready()
    result = driver.finish()
    if result is None:
        raise SystemExit(f"{contender.name}: {driver.error}")
    return {
        "imports": result["import_seconds"],
        "compile": (result["trace_seconds"] or 0.0) + result["compile_seconds"],
        "trace": result["trace_seconds"] or 0.0,
        "run": result["warmup_seconds"],
    }


def table(task: str, times: dict[str, list[dict[str, dict[str, float]]]]) -> str:
    """Seconds: median with minimum and maximum."""

    def median(name: str, cache: str) -> float:
        return statistics.median(round_[cache]["compile"] for round_ in times[name])

    peers = [name for name in times if name not in OURS]
    rows = []
    for name, rounds in times.items():
        cells = [
            with_spread([round_[cache][part] for round_ in rounds], 1)
            for cache, part in COLUMNS.values()
        ]
        if all(
            round_["cold"]["trace"] == 0 for round_ in rounds
        ):  # it traces its functions one by one
            cells[-1] = ""
        best = {
            cache: min((median(peer, cache) for peer in peers), default=None)
            for cache in ("cold", "warm")
        }
        ratios = [
            f"{median(name, cache) / best[cache]:.2f}" if best[cache] else ""
            for cache in ("cold", "warm")
        ]
        rows.append([name, *cells, *ratios])
    return (
        f"### {task},"
        f" seconds\n\n{markdown(['', *COLUMNS, 'cold ÷ best peer', 'warm ÷ best peer'], rows)}"
    )


COLUMNS = {
    "imports": ("warm", "imports"),
    "trace + compile, cold": ("cold", "compile"),
    "trace + compile, warm": ("warm", "compile"),
    "of it tracing": ("warm", "trace"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    able = [name for name, task in TASKS.items() if task.kind[1:] == ("gymnax",)]
    parser.add_argument(
        "task",
        nargs="?",
        choices=able,
        default="cartpole-4x128",
        metavar="TASK",
        help=", ".join(able),
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="contenders to run")
    parser.add_argument(
        "--before", type=Path, help="another checkout of rlkit to compare with: rlkit-before"
    )
    add_rounds(parser)
    add_output(parser)
    args = parser.parse_args()
    kind, when = TASKS[args.task].kind, now()
    runners = [
        item
        for item in contenders(args.before)
        if kind in item.drivers and (not args.only or item.name in args.only)
    ]
    if not runners:
        parser.error("nothing to run; check --only")
    times: dict[str, list[Any]] = {contender.name: [] for contender in runners}
    for number, contender in in_turns(runners, args.rounds):
        with tempfile.TemporaryDirectory() as cache:
            times[contender.name].append(
                {name: start(contender, args.task, cache) for name in ("cold", "warm")}
            )
        print(f"round {number}, {contender.name}: {times[contender.name][-1]}", file=sys.stderr)
    print(table(args.task, times))
    write("startup", when, args.output, task=args.task, num_updates=NUM_UPDATES, seconds=times)


if __name__ == "__main__":
    main()
