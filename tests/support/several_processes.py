"""Several processes on this machine that train one run together."""

import json
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from quick_compiling import quick_environment
from sessions import RLKIT, Ended, Session, session

from rlkit.training.files.checkpointer import steps_in
from rlkit.validation import PlainData

HARD_LIMIT = 150.0  # seconds after which a test gives up; commands take some ten


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return tried.getsockname()[1]


@contextmanager
def together(
    commands: Sequence[Sequence[object]], *, cwd: Path, devices: int = 1, **variables: object
) -> Iterator[list[Session]]:
    """Starts commands, one for each process, which differ in what tells them who they are.

    Each has so many CPU devices, and compiles quickly. Standard errors are in `cwd`; leaving the
    block kills what is left.
    """
    known = quick_environment() | {
        "JAX_PLATFORMS": "cpu",
        "NPROC": "1",
        "JAX_NUM_CPU_DEVICES": devices,
    }
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                session(command, cwd=cwd, log=cwd / f"stderr-{index}", **(known | variables))
            )
            for index, command in enumerate(commands)
        ]


def commands_of(arguments: Sequence[object], count: int, *more: object) -> list[list[object]]:
    """The command lines of `rlkit` in so many processes."""
    where = ["--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", count]
    return [[*RLKIT, *arguments, *where, "--process-id", index, *more] for index in range(count)]


def run(
    arguments: Sequence[object], count: int, *, cwd: Path, code: int | None = 0, devices: int = 1
) -> list[Ended]:
    """Runs `rlkit` in so many processes, which must end with that code (None: any)."""
    with together(commands_of(arguments, count), cwd=cwd, devices=devices) as sessions:
        ended = [each.wait(HARD_LIMIT) for each in sessions]
    for index, each in enumerate(ended):
        assert code is None or each.code == code, (
            f"process {index}: {each.code}: {each.err[-2000:]}"
        )
        assert not each.orphans, f"left behind: {each.orphans}"
    return ended


def workers_of(wanted: PlainData, count: int) -> list[list[object]]:
    """The command lines of `process_worker` in so many processes."""
    worker, port = Path(__file__).with_name("process_worker.py"), free_port()
    return [
        [sys.executable, worker, json.dumps(wanted), port, count, index] for index in range(count)
    ]


def work(wanted: PlainData, count: int, *, cwd: Path, devices: int = 1) -> list[PlainData]:
    """What each of so many processes found that trained what is wanted; all must end well."""
    with together(workers_of(wanted, count), cwd=cwd, devices=devices) as sessions:
        ended = [each.wait(HARD_LIMIT) for each in sessions]
    for index, each in enumerate(ended):
        assert each.code == 0, f"process {index}: {each.code}: {each.err[-3000:]}"
    return [found(each) for each in ended]


def found(ended: Ended) -> PlainData:
    """What a worker said that it found."""
    lines = [line for line in ended.err.splitlines() if line.startswith("FOUND ")]
    return json.loads(lines[-1].removeprefix("FOUND "))


def arrays(run_dir: Path) -> dict[str, int]:
    """The checksums of all arrays in the newest checkpoint of a run, by item and path."""
    newest = max(steps_in(run_dir / "checkpoints"))
    signature = json.loads(
        (run_dir / "checkpoints" / str(newest) / "signature" / "metadata").read_text()
    )["body"]
    return {
        f"{name}{entry['path']}": entry["crc32"]
        for name, entries in signature.items()
        for entry in entries
    }
