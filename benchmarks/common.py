"""What all drivers share: compile apart, warm up, then one timed execution per request.

A driver is a process that compiles, prints a `READY` line, executes the program once for each line `run` on its standard input
(answering `WALL seconds`), and at end of input prints `RESULT` with everything as JSON. Keeping the process lets
`throughput.py` alternate between contenders without compiling again. By hand:

    printf 'run\nrun\n' | PYTHONPATH=benchmarks python benchmarks/drivers/rlkit_ppo.py cartpole-4x128
"""

import argparse
import dataclasses
import importlib.metadata
import json
import platform
import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from tasks import TASKS, PPOTask


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """A contender that is ready to train, and the seconds that took."""

    train: Callable[[int], Any]
    """A whole training run from a seed; returns its output when it is done."""
    trace_seconds: float | None
    """None where tracing is no step of its own."""
    compile_seconds: float


Prepare = Callable[[PPOTask, int], Prepared]


def jitted(build: Callable[[PPOTask], Callable[[Any], Any]]) -> Prepare:
    """For a contender on the device: `build(task)` gives the whole training run as one jittable function of a typed key."""

    def prepare(task: PPOTask, seed: int) -> Prepared:
        import jax

        started = time.perf_counter()
        lowered = jax.jit(build(task)).lower(jax.random.key(seed))
        traced = time.perf_counter()
        program = lowered.compile()
        return Prepared(
            train=lambda seed: jax.block_until_ready(program(jax.random.key(seed))),
            trace_seconds=traced - started,
            compile_seconds=time.perf_counter() - traced,
        )

    return prepare


def plain(build: Callable[[PPOTask], tuple[Callable[[int], Any], Callable[[int], Any]]]) -> Prepare:
    """For a contender on the host: `build(task)` gives two plain functions of a seed that return when they are done, a run of
    one update, which compiles whatever there is to compile, and the whole training run.
    """

    def prepare(task: PPOTask, seed: int) -> Prepared:
        started = time.perf_counter()
        train_briefly, train = build(task)
        train_briefly(seed)
        return Prepared(train=train, trace_seconds=None, compile_seconds=time.perf_counter() - started)

    return prepare


def serve(
    prepare: Prepare,
    mean_return: Callable[[PPOTask, Any], float | None],
    *,
    packages: Sequence[str],
) -> None:
    """Runs a driver.

    `prepare` is `jitted(build)` or `plain(build)`; `mean_return(task, output)` reads what the last run ended with, outside the
    timing. The versions of `packages` are reported.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("--num-updates", type=int, help="instead of the task's own")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    task = TASKS[args.task]
    if args.num_updates:
        task = dataclasses.replace(task, num_updates=args.num_updates)

    prepared = prepare(task, args.seed)
    start = time.perf_counter()
    output = prepared.train(args.seed)
    warmup_seconds = time.perf_counter() - start
    _say("READY", {})

    walls = []
    for _ in filter(lambda line: line.strip() == "run", iter(sys.stdin.readline, "")):
        output = None  # frees the last run's buffers
        start = time.perf_counter()
        output = prepared.train(args.seed + 1 + len(walls))
        walls.append(time.perf_counter() - start)
        _say("WALL", walls[-1])

    result = {
        "task": dataclasses.asdict(task) | {"env_steps": task.env_steps, "gradient_steps": task.gradient_steps},
        "trace_seconds": prepared.trace_seconds,
        "compile_seconds": prepared.compile_seconds,
        "warmup_seconds": warmup_seconds,
        "wall_seconds": walls,
        "peak_rss_mb": peak_rss_mb(),
        "mean_return": mean_return(task, output),
        "versions": versions(*packages),
    }
    _say("RESULT", result)


def versions(*packages: str) -> dict[str, str]:
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in packages}


def peak_rss_mb() -> float:
    """Of this process since it started, compilation included."""
    try:  # getrusage also counts the parent's memory at the fork
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)


def _say(kind: str, value: Any) -> None:
    print(kind, json.dumps(value), flush=True)
