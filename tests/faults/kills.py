"""SIGKILL at any instant: a run that is killed and resumed, again and again, ends as the one that
was never stopped.

    python tests/faults/kills.py --all

Half of the kills come at a random time, which may be while the command starts; the other half while
a checkpoint is being written, which its temporary directory tells. A kill counts as inside a save
if it left that directory behind. At the end of each run, every leaf of its state and every row of
its log are compared with those of an uninterrupted run.
"""

import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attacked_runs import (
    ALGORITHMS,
    HARD_LIMIT,
    OUTER,
    continue_or_train,
    differences,
    leaves,
    run,
    saved,
    session,
    train,
)
from record import Record, Row, attack

KILLS_PER_RUN = 7  # at most, so that each algorithm has several runs
SAMPLE, FIGURE = 2, 28  # kills for each algorithm
SAMPLE_OUTER = 30  # outer iterations, of which two kills see half


def main(dice: random.Random, directory: Path, is_sample: bool) -> dict[str, Any]:
    """The counts of all algorithms."""
    counts = {"kills": 0, "inside_a_save": 0, "runs": 0, "leaves_compared": 0}
    outer = SAMPLE_OUTER if is_sample else OUTER
    failures = []
    for algorithm in ALGORITHMS:
        whole = directory / f"{algorithm}-whole"
        run(train(algorithm, whole, outer), directory)
        left = SAMPLE if is_sample else FIGURE
        while left > 0:
            attacked = directory / f"{algorithm}-{left}"
            found = list(_kills(algorithm, attacked, outer, min(KILLS_PER_RUN, left), dice))
            run(continue_or_train(algorithm, attacked, outer), directory)
            failures += [f"{algorithm}: {name} differs" for name in differences(attacked, whole)]
            left -= len(found)
            counts["kills"] += len(found)
            counts["inside_a_save"] += sum(found)
            counts["runs"] += 1
            counts["leaves_compared"] += len(leaves(whole))
        so_far = f"{counts['kills']} kills so far, {counts['inside_a_save']} inside a save"
        print(f"  {algorithm}: {so_far}", flush=True)
    return counts | {"algorithms": list(ALGORITHMS), "failures": failures}


def _kills(
    algorithm: str, run_dir: Path, outer: int, wanted: int, dice: random.Random
) -> Iterator[bool]:
    """Kills a run `wanted` times, or until it is finished; yields whether each came inside a save.

    A run is trained from its beginning or, if it has one, continued.
    """
    for number in range(wanted):
        command = continue_or_train(algorithm, run_dir, outer)
        log = run_dir.with_name("stderr")
        with session(command, cwd=run_dir.parent, log=log) as running:
            process = running.process
            if number % 2 == 0:
                _sleep_while_saving(process, run_dir, dice)
            else:
                _sleep(process, run_dir, dice)
            process.send_signal(signal.SIGKILL)
            process.wait(HARD_LIMIT)
        if process.returncode == 0:
            return
        assert process.returncode == -signal.SIGKILL, log.read_text()[-2000:]
        yield bool(_unfinished(run_dir, since=running.started))


def _sleep(process: subprocess.Popen[bytes], run_dir: Path, dice: random.Random) -> None:
    """Until a random time: a fifth of them while the command starts."""
    if dice.random() < 0.2:
        time.sleep(dice.uniform(0.0, 3.0))
        return
    _await_progress(process, run_dir)
    time.sleep(dice.uniform(0.0, 0.5))


def _sleep_while_saving(
    process: subprocess.Popen[bytes], run_dir: Path, dice: random.Random
) -> None:
    """Until a random time within the write of a checkpoint, which takes some 20 ms."""
    _await_progress(process, run_dir)
    time.sleep(dice.uniform(0.0, 0.3))
    since = time.time()
    while not _unfinished(run_dir, since) and process.poll() is None:
        time.sleep(0.0005)
    time.sleep(dice.uniform(0.0, 0.01))


def _await_progress(process: subprocess.Popen[bytes], run_dir: Path) -> None:
    """Waits for a checkpoint that was not there."""
    before, deadline = saved(run_dir), time.monotonic() + HARD_LIMIT
    while saved(run_dir) == before and process.poll() is None:
        assert time.monotonic() < deadline, "no checkpoint came"
        time.sleep(0.002)


def _unfinished(run_dir: Path, since: float) -> list[str]:
    """Temporary directories of checkpoints whose writing began after `since`."""
    found = (run_dir / "checkpoints").glob("*.orbax-checkpoint-tmp*")
    return [path.name for path in found if _changed(path) >= since]


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # it was finished meanwhile
        return 0.0


def rows(record: Record) -> list[Row]:
    """The rows of the table: what is attacked, how often, and what came of it."""
    return [
        (
            f"SIGKILL at any instant: {', '.join(record['algorithms'])}",
            f"{record['kills']} kills, {record['inside_a_save']} inside a save",
            f"{len(record['failures'])} differences in {record['leaves_compared']} leaves and all"
            f" rows of {record['runs']} runs",
        )
    ]


if __name__ == "__main__":
    attack("kills", main)
