"""Ctrl-C in a script or notebook, at random times, and `trainer.run()` again: no row is lost.

python tests/faults/interrupted.py --all
"""

import random
from pathlib import Path
from typing import Any

from attacked_runs import logged  # first: it sets the path
from record import Record, Row, attack

from tests.support.tiny_runs import settings_of
from tests.training.test_interrupted_calls import ctrl_c_after

OUTER, SAMPLE, FIGURE = 40, 5, 20


def main(dice: random.Random, directory: Path, is_sample: bool) -> dict[str, Any]:
    """Interrupts runs until there are enough interruptions, and compares each with a whole one."""
    wanted, calls, rows, lost, failures = SAMPLE if is_sample else FIGURE, 0, 0, 0, []
    _train(directory / "whole", 0, dice)
    whole = logged(directory / "whole")
    while calls < wanted:
        run_dir = directory / f"run-{calls}"
        calls += _train(run_dir, wanted - calls, dice)
        found = logged(run_dir)
        rows += len(whole)
        lost += len(set(whole) - set(found))
        failures += [f"{run_dir.name}: other rows than a whole run"] * (found != whole)
    return {"interrupted_calls": calls, "rows": rows, "rows_lost": lost, "failures": failures}


def _train(run_dir: Path, limit: int, dice: random.Random) -> int:
    """Trains to the end; returns how often it was interrupted, at most `limit` times."""
    from rlkit.training.from_config import build

    settings = settings_of(run_dir, num_checkpoints=OUTER, checkpoint_every=5)
    interruptions, key = 0, 0
    with build(settings) as trainer:
        while trainer.outer_iteration < OUTER:
            seconds = dice.uniform(0.02, 0.4) if interruptions < limit else 600.0
            try:
                with ctrl_c_after(seconds):
                    trainer.run(key)
            except KeyboardInterrupt:
                interruptions += 1
            key = None if trainer.state is not None else 0
    return interruptions


def rows(record: Record) -> list[Row]:
    """The rows of the table: what is attacked, how often, and what came of it."""
    calls, lost = f"{record['interrupted_calls']} calls", f"{record['rows_lost']} of"
    what = "Ctrl-C in a script, and `trainer.run()` again"
    return [(what, calls, f"{lost} {record['rows']} rows lost")]


if __name__ == "__main__":
    attack("interrupted", main)
