"""Shared by all drivers: compile first, warm up, then one timed execution per request.

A driver is a process that compiles, prints a `READY` line, executes the program once for each line
`run` on its standard input (answering `WALL seconds`), and at the end of the input prints `RESULT`
with everything as JSON. A long-lived process lets `throughput.py` alternate between contenders
without recompiling. By hand:

    printf 'run\nrun\n' | PYTHONPATH=benchmarks python benchmarks/drivers/rlkit_fit.py
    cartpole-4x128
"""

import argparse
import dataclasses
import importlib
import importlib.metadata
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from tasks import TASKS, Task


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """A contender that is ready to train, and the seconds that its preparation took."""

    train: Callable[[Any], Any]
    """A whole training run from the result of `begin`; returns its output when it is done."""
    trace_seconds: float | None
    """None if tracing is not a separate step."""
    compile_seconds: float
    begin: Callable[[int], Any] = lambda seed: seed
    """Untimed preparation from a seed; most contenders need none."""


Prepare = Callable[[Any, int], Prepared]
"""From a task, of the class that the driver supports, and a seed."""


def jitted(
    build: Callable[[Any], Callable[[Any], Any]],
    options: Callable[[Any], dict[str, str]] | None = None,
) -> Prepare:
    """For contenders on the device: `build(task)` returns the run as a jittable function of a key.

    The keys are typed; several seeds are a `vmap` over their keys. `options` returns XLA options
    for the function's jaxpr.
    """

    def prepare(task: Task, seed: int) -> Prepared:
        import jax

        def key_of(seed):
            key = jax.random.key(seed)
            return key if task.num_seeds == 1 else jax.random.split(key, task.num_seeds)

        started = time.perf_counter()
        train = build(task)
        function = jax.jit(train if task.num_seeds == 1 else jax.vmap(train)).trace(key_of(seed))
        lowered = function.lower()
        traced = time.perf_counter()
        program = lowered.compile(compiler_options=options(function.jaxpr) if options else None)
        return Prepared(
            train=lambda seed: jax.block_until_ready(program(key_of(seed))),
            trace_seconds=traced - started,
            compile_seconds=time.perf_counter() - traced,
        )

    return prepare


def plain(build: Callable[[Any], tuple[Callable[[int], Any], Callable[[int], Any]]]) -> Prepare:
    """For contenders on the host: `build(task)` returns two plain functions of a seed.

    The first runs a single update, which compiles everything; the second is the whole training run.
    """

    def prepare(task: Task, seed: int) -> Prepared:
        started = time.perf_counter()
        train_briefly, train = build(task)
        train_briefly(seed)
        return Prepared(
            train=train, trace_seconds=None, compile_seconds=time.perf_counter() - started
        )

    return prepare


def prefilled(
    build: Callable[[Any], tuple[Callable[[int], Any], Callable[[Any], Any], Callable[[Any], Any]]],
) -> Prepare:
    """For off-policy contenders on the host: `build(task)` returns three blocking functions.

    `prefill(seed)` creates a learner and takes the steps before learning, which are not timed.
    `train_briefly(state)` takes as few updates from its result as compile everything.
    `train(state)` takes all updates.
    """

    def prepare(task: Task, seed: int) -> Prepared:
        started = time.perf_counter()
        prefill, train_briefly, train = build(task)
        train_briefly(prefill(seed))
        return Prepared(
            begin=prefill,
            train=train,
            trace_seconds=None,
            compile_seconds=time.perf_counter() - started,
        )

    return prepare


def serve(
    prepare: Prepare,
    mean_return: Callable[[Any, Any], float | None],
    *,
    packages: Sequence[str],
    imports: Sequence[str] = (),
    gradient_steps: Callable[[Any], int] | None = None,
) -> None:
    """Runs a driver.

    `prepare` is `jitted(build)`, `plain(build)` or `prefilled(build)`. `mean_return(task, output)`
    reads the final return of the last run, outside the timing. The versions of `packages` are
    reported. `imports` are modules that the contender imports only on first use; they are imported
    before the clock starts. `gradient_steps(output)` is the contender's own count; the result is
    void if it differs from the task's.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("--num-updates", type=int, help="instead of the task's own setting")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    task = TASKS[args.task]
    if args.num_updates:
        task = dataclasses.replace(task, num_updates=args.num_updates)

    for module in imports:
        importlib.import_module(module)
    started = os.environ.get(
        "BENCHMARK_STARTED"
    )  # set by whoever started this process, as `time.time()`
    import_seconds = time.time() - float(started) if started else None
    prepared = prepare(task, args.seed)
    begun = prepared.begin(args.seed)
    start = time.perf_counter()
    output = prepared.train(begun)
    warmup_seconds = time.perf_counter() - start
    _say("READY", {})

    walls = []
    for _ in filter(lambda line: line.strip() == "run", iter(sys.stdin.readline, "")):
        output = begun = None  # frees the buffers of the last run
        begun = prepared.begin(args.seed + 1 + len(walls))
        start = time.perf_counter()
        output = prepared.train(begun)
        walls.append(time.perf_counter() - start)
        _say("WALL", walls[-1])

    if gradient_steps is not None and (counted := gradient_steps(output)) != task.gradient_steps:
        raise SystemExit(f"{counted} gradient steps were taken instead of {task.gradient_steps}")
    counts = {"env_steps": task.env_steps * task.num_seeds, "gradient_steps": task.gradient_steps}
    result = {
        "task": dataclasses.asdict(task) | counts,
        "import_seconds": import_seconds,
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
    return {"python": platform.python_version()} | {name: _version(name) for name in packages}


def _version(name: str) -> str:
    if name == "rlkit":  # of the checkout that is measured, installed or not
        return importlib.import_module(name).__version__
    return importlib.metadata.version(name)


def peak_rss_mb() -> float:
    """The most memory that this process has held so far, in MiB, including compilation."""
    try:  # getrusage also counts the parent's memory at the fork
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
            2**20 if sys.platform == "darwin" else 1024
        )


def _say(kind: str, value: Any) -> None:
    print(kind, json.dumps(value), flush=True)
