"""What each trick of `rlkit/xla_cpu` gains on each task with the others on.

    python benchmarks/tricks.py [--tasks TASK ...] [--tricks TRICK ...] [--rounds 5]

Of each task one process has all tricks on, and one for each trick has all but that one; they train
in turns, another one first in each round. Prints a Markdown table of speed with the trick over
speed without it, the median over rounds (1.10: the trick makes the task a tenth faster), and writes
the raw record to benchmarks/results/. The last row is all tricks together. Needs no peers.
"""

import argparse
import dataclasses
import statistics
import sys
from typing import Any

from records import add_output, add_rounds, markdown, now, write
from rlkit.xla_cpu.switch import TRICKS, VARIABLE
from tasks import TASKS
from throughput import Contender, contenders, measure

DEFAULT_TASKS = (
    "cartpole-4x128",
    "cartpole-512x64",
    "breakout-64x128",
    "sac-pendulum",
    "dqn-cartpole",
    "gymnasium-cartpole-8x128",
    "sac-halfcheetah",
    "cartpole-4x128-16-seeds",
)
ELSEWHERE = ("garbage-collector",)  # of the command line alone: startup.py measures it
ALL = "all"


def concerns(trick: str, task: str) -> bool:
    """Whether a program of the task can be another one without the trick."""
    return trick != "parallel-seeds" or TASKS[task].num_seeds > 1


def runner(trick: str | None) -> Contender:
    """rlkit without one trick, without `ALL` of them, or (None) with all."""
    setting = {None: "on", ALL: "off"}.get(trick, f"no-{trick}")
    own = next(contender for contender in contenders() if contender.name == "rlkit")
    return dataclasses.replace(own, name=setting, env={VARIABLE: setting})


def gains(records: list[dict[str, Any]]) -> dict[str, list[float]]:
    """By setting: seconds without the tricks over seconds with all, of each round."""
    walls = {
        record["contender"]: [repeat["wall_seconds"] for repeat in record["repeats"]]
        for record in records
        if not record["error"]
    }
    tuned = walls.pop("on", [])
    return {
        name: [one / other for one, other in zip(found, tuned, strict=True)]
        for name, found in walls.items()
        if len(found) == len(tuned) > 0
    }


def table(found: dict[str, dict[str, list[float]]], tricks: list[str]) -> str:
    """A row for each trick, a column for each task."""

    def cell(trick: str, task: str) -> str:
        ratios = found[task].get("off" if trick == ALL else f"no-{trick}")
        return f"{statistics.median(ratios):.2f}" if ratios else ""

    rows = [[trick, *(cell(trick, task) for task in found)] for trick in tricks]
    return markdown(["trick", *found], rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    measured = [trick for trick in TRICKS if trick not in ELSEWHERE]
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=DEFAULT_TASKS)
    parser.add_argument("--tricks", nargs="+", choices=[*measured, ALL], default=[*measured, ALL])
    add_rounds(parser)
    parser.add_argument("--num-updates", type=int, help="instead of the tasks' own")
    add_output(parser)
    args = parser.parse_args()
    arguments = ["--num-updates", str(args.num_updates)] if args.num_updates else []

    when, records = now(), {}
    for task in args.tasks:
        tricks = [trick for trick in args.tricks if concerns(trick, task)]
        runners = [runner(trick) for trick in (None, *tricks)]
        records[task] = measure(task, runners, args.rounds, arguments)
    print(table({task: gains(found) for task, found in records.items()}, args.tricks))
    write("tricks", when, args.output, rounds=args.rounds, warmups=1, tasks=records)
    failed = [item for items in records.values() for item in items if item["error"]]
    for item in failed:
        print(f"{item['contender']} failed: {item['error']}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
