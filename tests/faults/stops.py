"""SIGTERM, SIGINT and SIGHUP in each phase of a command: it saves and ends by 128 + the signal's
number, and the resumed run ends as the one that was never stopped.

    python tests/faults/stops.py --all

While a command starts there is nothing to save, so the signal itself ends it.
"""

import itertools
import random
import signal
import sys
from pathlib import Path
from typing import Any

from attacked_runs import HARD_LIMIT, RLKIT, continue_or_train, differences, run, session, train
from record import Record, Row, attack
from signal_at import PHASES

SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP")
OUTER = 8


def main(dice: random.Random, directory: Path, is_sample: bool) -> dict[str, Any]:
    """Sends every signal in every phase; a sample: one of them in each phase."""
    whole, failures = directory / "whole", []
    run(train("ppo", whole, OUTER), directory)
    cases = list(itertools.product(SIGNALS, PHASES))
    if is_sample:
        cases = [(dice.choice(SIGNALS), phase) for phase in PHASES]
    for name, phase in cases:
        stopped = directory / f"{name}-{phase}"
        problems = _stop(name, phase, stopped)
        run(continue_or_train("ppo", stopped, OUTER), directory)
        problems += [f"{what} differs" for what in differences(stopped, whole)]
        failures += [f"{name} while it {phase}: {problem}" for problem in problems]
    counts = {"stops": len(cases), "signals": list(SIGNALS), "phases": list(PHASES)}
    return counts | {"failures": failures}


def _stop(name: str, phase: str, run_dir: Path) -> list[str]:
    """What a command that gets a signal does otherwise than it should."""
    command = train("ppo", run_dir, OUTER)[len(RLKIT) :]
    driver = [sys.executable, Path(__file__).with_name("signal_at.py"), name, phase]
    log = run_dir.with_name("stderr")
    with session([*driver, *command], cwd=run_dir.parent, log=log) as running:
        ended = running.wait(HARD_LIMIT)
    number = signal.Signals[name]
    codes = {"starts": [-number], "ends": [0, 128 + number]}.get(phase, [128 + number])
    problems = [f"left behind {ended.orphans}"] * bool(ended.orphans)
    if ended.code not in codes:
        problems.append(f"exit code {ended.code}: {ended.err[-500:]}")
    if "Traceback" in ended.err:
        problems.append(f"a traceback: {ended.err[-500:]}")
    return problems


def rows(record: Record) -> list[Row]:
    """The rows of the table: what is attacked, how often, and what came of it."""
    phases = ", ".join(record["phases"])
    what = f"{', '.join(record['signals'])} while a command {phases}"
    result = f"{len(record['failures'])} that ended otherwise than saved, or differ when resumed"
    return [(what, f"{record['stops']} stops", result)]


if __name__ == "__main__":
    attack("stops", main)
