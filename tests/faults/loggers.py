"""Loggers that fail: training goes on and ends with the same parameters and the same rows.

    python tests/faults/loggers.py --all

The disk is another matter, for the JSONL file is the record of the run: a full one ends the run
with an error, and the run resumes as if nothing had been.
"""

import random
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from attacked_runs import HARD_LIMIT, continue_or_train, differences, run, saved, session, train
from record import Record, Row, attack

OUTER = 30
FULL = 24  # KiB that a file may have where the disk is full
Fault = Callable[[Path, psutil.Process], object]  # does it to a run directory and its process
# By name: arguments and environment variables of the run, and what is done to it halfway.
NOTHING: Fault = lambda run_dir, process: None  # noqa: E731
NO_NETWORK_AT_ALL, FULL_DISK = "W&B without a network", "a full disk"
NO_KEY = {"WANDB_API_KEY": None, "HOME": "/nonexistent", "NETRC": "/nonexistent"}
NO_NETWORK = {"WANDB_API_KEY": "x" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9"}


def _kill_service(run_dir: Path, process: psutil.Process) -> None:
    services = [child for child in process.children(recursive=True) if "wandb" in child.name()]
    assert services, "W&B has no process of its own"
    for service in services:
        service.send_signal(signal.SIGKILL)


def _remove(name: str) -> Fault:
    def remove(run_dir: Path, process: psutil.Process) -> None:
        path = run_dir / name
        assert path.exists(), f"{name} is not there"
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def _block_picture(run_dir: Path, process: psutil.Process) -> None:
    (run_dir / "learning_curve.png").mkdir()


FAULTS: dict[str, tuple[Sequence[object], dict[str, object], Fault]] = {
    "W&B without a key": (["--wandb", "online"], NO_KEY, NOTHING),
    NO_NETWORK_AT_ALL: (["--wandb", "online"], NO_NETWORK, NOTHING),
    "W&B's process killed": (["--wandb", "offline"], {}, _kill_service),
    "a learning curve that cannot be drawn": (["--wandb", "offline"], {}, _block_picture),
    "metrics.jsonl removed": ([], {}, _remove("metrics.jsonl")),
    "metrics.csv removed": (["--csv"], {}, _remove("metrics.csv")),
    "TensorBoard's files removed": (["--tensorboard"], {}, _remove("tensorboard")),
}


def main(dice: random.Random, directory: Path, is_sample: bool) -> dict[str, Any]:
    """Every fault once; a sample: three of them. W&B waits for a network for a minute and more."""
    quick = [name for name in [*FAULTS, FULL_DISK] if name != NO_NETWORK_AT_ALL]
    names = dice.sample(quick, 3) if is_sample else [*quick, NO_NETWORK_AT_ALL]
    whole, failures, seconds = directory / "whole", [], {}
    run(train("ppo", whole, OUTER), directory)
    for number, name in enumerate(names):
        begun, attacked = time.monotonic(), directory / f"run-{number}"
        problems = _fill_disk(attacked) if name == FULL_DISK else _attack(name, attacked)
        seconds[name] = round(time.monotonic() - begun, 1)
        problems += [f"{what} differs" for what in differences(attacked, whole)]
        failures += [f"{name}: {problem}" for problem in problems]
    counts = {"runs": len(seconds), "faults": names, "seconds_of_each": seconds}
    return counts | {"failures": failures}


def _attack(name: str, run_dir: Path) -> list[str]:
    arguments, variables, fault = FAULTS[name]
    command, log = [*train("ppo", run_dir, OUTER), *arguments], run_dir.with_name("stderr")
    variables = variables | {"WANDB_SILENT": "true"}
    with session(command, cwd=run_dir.parent, log=log, **variables) as running:
        deadline = time.monotonic() + HARD_LIMIT
        while max(saved(run_dir), default=0) < 3 and running.process.poll() is None:
            assert time.monotonic() < deadline, log.read_text()[-1000:]
            time.sleep(0.01)
        if running.process.poll() is None:
            fault(run_dir, psutil.Process(running.process.pid))
        ended = running.wait(HARD_LIMIT, patience=10.0)
    problems = [f"exit code {ended.code}: {ended.err[-500:]}"] * (ended.code != 0)
    return problems + [f"left behind {ended.orphans}"] * bool(ended.orphans)


def _fill_disk(run_dir: Path) -> list[str]:
    """Trains where no file may become large, then resumes where it may."""
    limited = ["bash", "-c", f'ulimit -f {FULL}; exec "$@"', "bash"]
    cache = {"JAX_ENABLE_COMPILATION_CACHE": "false"}  # it is what would not fit first
    log = run_dir.with_name("stderr")
    with session(
        [*limited, *train("ppo", run_dir, OUTER)], cwd=run_dir.parent, log=log, **cache
    ) as it:
        ended = it.wait(HARD_LIMIT)
    said = [line for line in ended.err.splitlines() if line.startswith("rlkit: error: ")]
    problems = [] if ended.code == 1 and len(said) == 1 else [f"{ended.code}: {ended.err[-500:]}"]
    run(continue_or_train("ppo", run_dir, OUTER), run_dir.parent)
    return problems


def rows(record: Record) -> list[Row]:
    """The rows of the table: what is attacked, how often, and what came of it."""
    what = f"loggers: {', '.join(record['faults'])}"
    result = f"{len(record['failures'])} that ended otherwise, or with other parameters or rows"
    return [(what, f"{record['runs']} runs", result)]


if __name__ == "__main__":
    attack("loggers", main)
