"""One of two processes is killed or suspended at a random time: the other ends in time, and the
pair, started again, goes on from the last checkpoint and ends as one that was never attacked.

    python tests/faults/processes.py --all

Half of the victims are process 0, which writes; every fifth one is suspended (SIGSTOP), which
leaves its connections open.
"""

import random
import signal
import time
from pathlib import Path
from typing import Any

from attacked_runs import continue_or_train, logged, saved  # first: it sets the path
from record import Record, Row, attack
from several_processes import HARD_LIMIT, arrays, commands_of, run, together

from rlkit.training.processes.watch import LOST

TIMEOUT = 5.0  # seconds of silence after which a process is lost
LIMIT = TIMEOUT + LOST + 2.0  # the stated time, and what two busy cores may add
OUTER, SAMPLE, FIGURE = 200, 3, 20


def main(dice: random.Random, directory: Path, is_sample: bool) -> dict[str, Any]:
    """Attacks runs until there are enough attacks, and compares each run with a whole one."""
    wanted = SAMPLE if is_sample else FIGURE
    whole = directory / "whole"
    run(_command(whole), 2, cwd=directory)
    counts = {"attacks": 0, "suspended": 0, "runs": 0, "arrays_compared": 0}
    slowest, failures, attacked = 0.0, [], directory / "run-0"
    while counts["attacks"] < wanted:
        number = signal.SIGSTOP if counts["attacks"] % 5 == 4 else signal.SIGKILL
        victim = counts["attacks"] // 2 % 2
        seconds, problem = _attack(attacked, victim, number, dice)
        if seconds is None:  # the run was at its end
            failures += _differences(attacked, whole)
            counts["runs"] += 1
            attacked = directory / f"run-{counts['runs']}"
            continue
        counts["attacks"] += 1
        counts["suspended"] += number == signal.SIGSTOP
        slowest, failures = max(slowest, seconds), failures + problem
        print(f"  process {victim}: {seconds:.1f} s, {saved(attacked)[-1:]} saved", flush=True)
    run(_command(attacked), 2, cwd=directory)
    failures += _differences(attacked, whole)
    counts |= {"runs": counts["runs"] + 1, "arrays_compared": len(arrays(whole))}
    return counts | {"slowest_seconds": round(slowest, 1), "timeout": TIMEOUT, "failures": failures}


def _command(run_dir: Path) -> list[object]:
    """What follows `rlkit` to train or continue a run."""
    return [*continue_or_train("ppo", run_dir, OUTER)[3:], "--process-timeout", TIMEOUT]


def _attack(
    run_dir: Path, victim: int, number: signal.Signals, dice: random.Random
) -> tuple[float | None, list[str]]:
    """How long the survivor took to end (None: both had finished), and what was wrong with it."""
    with together(commands_of(_command(run_dir), 2), cwd=run_dir.parent) as sessions:
        before = saved(run_dir)
        _await_join(run_dir, sessions)
        if dice.random() < 0.2:
            time.sleep(dice.uniform(0.0, 6.0))  # while they start and compile
        else:
            _await_progress(run_dir, before, sessions)
            time.sleep(dice.uniform(0.0, 1.5))  # while they train, save and evaluate
        if any(each.process.poll() is not None for each in sessions):
            ended = [each.wait(HARD_LIMIT) for each in sessions]
            return None, [f"exit code {each.code}" for each in ended if each.code != 0]
        sessions[victim].process.send_signal(number)
        sent = time.time()
        ended = sessions[1 - victim].wait(HARD_LIMIT)
    told = ended.err[-600:]
    is_told = f"process {victim}" in ended.err and ended.code == 1
    wrong = [] if is_told or ended.code == 0 else [f"exit code {ended.code}: {told}"]
    seconds = ended.at - sent
    return seconds, wrong + [f"{seconds:.1f} s: {told}"] * (seconds > LIMIT)


def _await_join(run_dir: Path, sessions: Any) -> None:
    """Waits until the processes have found each other: process 0 then locks the run."""
    lock, begun = run_dir / ".lock", time.time()
    deadline = time.monotonic() + HARD_LIMIT
    while not (lock.exists() and lock.stat().st_mtime >= begun - 1.0):
        assert all(s.process.poll() is None for s in sessions), [
            s.log.read_text() for s in sessions
        ]
        assert time.monotonic() < deadline, "no run began"
        time.sleep(0.01)


def _await_progress(run_dir: Path, before: list[int], sessions: Any) -> None:
    """Waits for a checkpoint that was not there."""
    deadline = time.monotonic() + HARD_LIMIT
    while saved(run_dir) == before and all(s.process.poll() is None for s in sessions):
        assert time.monotonic() < deadline, "no checkpoint came"
        time.sleep(0.005)


def _differences(one: Path, other: Path) -> list[str]:
    """What differs between two finished runs."""
    ours, theirs = arrays(one), arrays(other)
    unlike = [path for path in ours | theirs if ours.get(path) != theirs.get(path)]
    return unlike + ["rows"] * (logged(one) != logged(other))


def rows(record: Record) -> list[Row]:
    """The rows of the table: what is attacked, how often, and what came of it."""
    return [
        (
            "one of two processes killed or suspended at any instant",
            f"{record['attacks']} attacks, {record['suspended']} suspended",
            f"the other ended {record['slowest_seconds']} s later at most (process timeout"
            f" {record['timeout']:g} s); {len(record['failures'])} differences in"
            f" {record['arrays_compared']} arrays and all rows when the runs had ended",
        )
    ]


if __name__ == "__main__":
    attack("processes", main)
