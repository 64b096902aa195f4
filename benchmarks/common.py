"""Shared by all drivers: compile first, warm up, then one timed execution per request.

A driver is a process that compiles, prints a `READY` line, executes the program once for each line
`run` on its standard input (answering `WALL seconds`) and under JAX's profiler for each line
`profile` (answering `PROFILE` with what `kernels_of` says), and at the end of the input prints
`RESULT` with everything as JSON. A long-lived process lets `throughput.py` alternate between
contenders without recompiling. By hand:

    printf 'run\nrun\n' | PYTHONPATH=benchmarks python benchmarks/drivers/rlkit_fit.py
    cartpole-4x128
"""

import argparse
import collections
import contextlib
import dataclasses
import importlib
import importlib.metadata
import json
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
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
    # Set by whoever started this process, as `time.time()`
    started = os.environ.get("BENCHMARK_STARTED")
    import_seconds = time.time() - float(started) if started else None
    prepared = prepare(task, args.seed)
    begun = prepared.begin(args.seed)
    start = time.perf_counter()
    output = prepared.train(begun)
    warmup_seconds = time.perf_counter() - start
    _say("READY", {})

    walls = []
    for asked in map(str.strip, iter(sys.stdin.readline, "")):
        if asked not in ("run", "profile"):
            continue
        output = begun = None  # frees the buffers of the last run
        begun = prepared.begin(args.seed + 1 + len(walls))
        if asked == "profile":
            with kernels_of() as seen:
                output = prepared.train(begun)
            _say("PROFILE", seen)
        else:
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
        "peak_device_mb": peak_device_mb(),
        "device": device_kind(),
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


def peak_device_mb() -> float | None:
    """The most memory of the first device that arrays and programs have held, in MiB; None if the
    device does not tell.
    """
    if "jax" not in sys.modules:
        return None
    told = sys.modules["jax"].local_devices()[0].memory_stats()
    return None if told is None else told["peak_bytes_in_use"] / 2**20


def device_kind() -> str | None:
    """What JAX calls the first device; None for who has not imported JAX."""
    return sys.modules["jax"].devices()[0].device_kind if "jax" in sys.modules else None


@contextlib.contextmanager
def kernels_of() -> Iterator[dict[str, Any]]:
    """Records what the first device does in the block, and fills the dict that it gives.

    Nothing if there is none, or nothing was seen. `kernels` and `copies` are counts;
    `busy_seconds` is the time in which at least one of them ran,
    of `span_seconds` between the first and the last; `longest` lists (name, count, seconds).
    """
    import jax

    seen: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            yield seen
        (file,) = Path(folder).rglob("*.xplane.pb")
        data = jax.profiler.ProfileData.from_file(str(file))
        planes = {plane.name: plane for plane in data.planes}
        device = next((name for name in sorted(planes) if name.startswith("/device:GPU")), None)
        if device is None:
            return
        events = [
            (event.start_ns, event.end_ns, event.name)
            for line in planes[device].lines
            if line.name.startswith("Stream")
            for event in line.events
        ]
    if not events:
        return
    events.sort()
    busy, until = 0.0, 0.0
    totals: dict[str, list[float]] = collections.defaultdict(lambda: [0, 0.0])
    for start, end, name in events:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
        totals[name][0] += 1
        totals[name][1] += (end - start) / 1e9
    copies = sum(int(n) for name, (n, _) in totals.items() if name.startswith(("Memcpy", "Memset")))
    longest = sorted(totals.items(), key=lambda item: -item[1][1])[:12]
    seen |= {
        "kernels": len(events) - copies,
        "copies": copies,
        "busy_seconds": busy / 1e9,
        "span_seconds": (until - events[0][0]) / 1e9,
        "longest": [[name[:80], int(count), seconds] for name, (count, seconds) in longest],
    }


def _say(kind: str, value: Any) -> None:
    print(kind, json.dumps(value), flush=True)
