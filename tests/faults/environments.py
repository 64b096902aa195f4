"""Faults of environments on the host, in this process and in processes of their own: one error, in
time; no process is left, nothing hangs, and no stale or mixed batch is learned from.

    python tests/faults/environments.py --all

Each fault in runs of PPO and SAC, which take turns (`--overlap none`) or overlap. What was logged
up to the fault must equal, row by row, the log of a run in which nothing fails: a stale batch would
change its losses. A slow environment is no fault: its run must be that one to the end.
"""

import dataclasses
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attacked_runs import HARD_LIMIT, RLKIT, ROOT, logged, saved, session
from record import Record, Row, attack

STEP_TIMEOUT = 2.0
MARGIN = 15.0  # seconds that tearing down may take on top, on a crowded machine
STEPS, OUTER, SOUND = 512, 4, 2  # the fault comes in the third outer iteration
EVERYWHERE = (
    *("raise", "sys.exit", "hang", "slow", "nan observation", "nan reward", "infinite reward"),
    *("no reward", "shape", "text", "four values", "exit", "kill"),
)
FAULTS = {
    "sync": (*EVERYWHERE, "hang where no signal helps"),
    "async": (*EVERYWHERE, "unpicklable", "spin"),
}
# How a run ends if not with exit code 1 and an error; in this process nothing survives some faults.
CODES = {
    ("sync", "exit"): 3,
    ("sync", "kill"): -9,
    ("sync", "hang where no signal helps"): 70,
    ("sync", "slow"): 0,
    ("async", "slow"): 0,
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One fault in one kind of run."""

    fault: str
    vectorization: str
    algorithm: str
    overlap: str

    def __str__(self) -> str:
        kind = (self.algorithm, self.vectorization, f"overlap {self.overlap}")
        return f"{self.fault} ({', '.join(kind)})"

    @property
    def code(self) -> int:
        """The exit code that is right."""
        return CODES.get((self.vectorization, self.fault), 1)


def main(dice: random.Random, directory: Path, is_sample: bool) -> dict[str, Any]:
    """The counts of all cases."""
    cases = list(_cases())
    cases = dice.sample(cases, 6) if is_sample else cases
    counts, failures, seconds = {"faults": len(cases), "orphans": 0, "hangs": 0}, [], [0.0]
    wrong_rows = 0
    for number, case in enumerate(cases):
        run_dir, record = directory / f"run-{number}", directory / f"record-{number}"
        command = _command(case, run_dir, record)
        with _session(command, directory) as running:
            try:
                ended = running.wait(HARD_LIMIT)
            except TimeoutError as error:
                counts["hangs"] += 1
                failures.append(f"{case}: {error}")
                continue
        counts["orphans"] += len(ended.orphans)
        late = ended.at - float(record.read_text())
        if case.fault != "slow":
            seconds.append(late)
        problems = list(_problems(case, ended, late))
        if not _is_prefix(case, run_dir, directory):
            wrong_rows += 1
            problems.append("rows differ from those of a run without the fault")
        failures += [f"{case}: {problem}" for problem in problems]
    counts |= {"runs_with_stale_batches": wrong_rows}
    figures = {"slowest_seconds": round(max(seconds), 1), "step_timeout": STEP_TIMEOUT}
    return counts | figures | {"failures": failures}


def _cases() -> Iterator[Case]:
    for vectorization, faults in FAULTS.items():
        for fault in faults:
            for algorithm, overlap in (("ppo", "acting"), ("sac", "update")):
                yield Case(fault, vectorization, algorithm, "none")
                yield Case(fault, vectorization, algorithm, overlap)


def _command(case: Case, run_dir: Path, record: Path) -> list[object]:
    env = {"vectorization": case.vectorization, "step_timeout": STEP_TIMEOUT, "fault": case.fault}
    env |= {"record": str(record), "continuous": case.algorithm == "sac"}
    small = ["--num-envs", 4, "--hidden-sizes", 8, "--evaluation-episodes", 2, "--no-debug"]
    own = ["--num-steps", 16, "--num-minibatches", 2, "--num-epochs", 1]
    if case.algorithm == "sac":
        own = ["--prefill-steps", 64, "--batch-size", 16, "--capacity", 200]
    length = ["--total-steps", STEPS, "--num-checkpoints", OUTER, "--overlap", case.overlap]
    whole = [case.algorithm, "faulty_env:Walk", "--env-arguments", json.dumps(env)]
    return [*RLKIT, "train", *whole, *small, *own, *length, "--run-dir", run_dir]


def _session(command: list[object], directory: Path) -> Any:
    path = f"{ROOT}:{Path(__file__).parent}"
    return session(command, cwd=directory, log=directory / "stderr", PYTHONPATH=path)


def _problems(case: Case, ended: Any, late: float) -> Iterator[str]:
    """What a command did otherwise than it should; `late`: seconds from the fault to its end."""
    if ended.code != case.code:
        yield f"exit code {ended.code}, not {case.code}: {ended.err[-1000:]}"
    said = [line for line in ended.err.splitlines() if line.startswith("rlkit: ")]
    wanted = 1 if case.code in (1, 70) else 0
    if len(said) != wanted:
        yield f"said {said}"
    if ended.orphans:
        yield f"left behind {ended.orphans}"
    if case.fault != "slow" and late > STEP_TIMEOUT + MARGIN:
        yield f"took {late:.1f} s"


def _is_prefix(case: Case, run_dir: Path, directory: Path) -> bool:
    """Whether a run logged and saved what the same run without a fault did, as far as it came."""
    sound = directory / f"{case.algorithm}-{case.vectorization}-{case.overlap}"
    if not sound.exists():
        command = _command(dataclasses.replace(case, fault="none"), sound, directory / "unused")
        with _session(command, directory) as running:
            assert running.wait(HARD_LIMIT).code == 0
    ours, theirs = logged(run_dir), logged(sound)
    if case.fault == "slow":
        return ours == theirs and saved(run_dir) == saved(sound)
    dies = case.code in (3, -9)  # at once, so the last checkpoint may be unfinished
    return (
        ours == theirs[: len(ours)]
        and 0 < len(ours) < len(theirs)
        and (dies or SOUND in saved(run_dir))
    )


def rows(record: Record) -> list[Row]:
    """The rows of the table: what is attacked, how often, and what came of it."""
    return [
        (
            "faults of host environments × sync, async × PPO, SAC × overlap on, off",
            f"{record['faults']}",
            f"{record['hangs']} hangs, {record['orphans']} orphans,"
            f" {record['runs_with_stale_batches']} runs with a stale batch; the last command ended"
            f" {record['slowest_seconds']:g} s after the fault (step timeout"
            f" {record['step_timeout']:g} s)",
        )
    ]


if __name__ == "__main__":
    attack("environments", main)
