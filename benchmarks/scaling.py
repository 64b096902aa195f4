"""What several devices cost: PPO on 1, 2, 4 and 8, with equally many environments on each.

    python benchmarks/scaling.py [TASK ...] [--devices 1 2 4 8] [--rounds 5]

Without accelerators the devices are parts of one CPU (JAX_NUM_CPU_DEVICES), which share its cores:
then no speed grows, and the table shows the overhead alone, beside one device with all of the
environments. "Collectives" is the share of the time that the reductions over devices take, from the
same program without them. Each point is an outer iteration as the Trainer compiles it; points
alternate. Prints a Markdown table per task and writes the raw record to benchmarks/results/.
"""

import argparse
import contextlib
import dataclasses
import os
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

COUNTS = (1, 2, 4, 8)
if "JAX_NUM_CPU_DEVICES" not in os.environ:
    os.environ["JAX_NUM_CPU_DEVICES"] = str(max(COUNTS))

import jax  # noqa: E402

import rlkit  # noqa: E402
from common import versions  # noqa: E402
from records import add_output, add_rounds, in_turns, markdown, now, with_spread, write  # noqa: E402
from rlkit.training.compile.aot_compile import Compiler  # noqa: E402
from rlkit.training.compile.devices import devices_of_run  # noqa: E402
from rlkit.training.programs.jittable_program import DeviceProgram  # noqa: E402
from rlkit_parts import parts  # noqa: E402
from tasks import TASKS, PPOTask  # noqa: E402

SECONDS = 2  # approximate duration of one execution
# Rows of both tables: 64 environments on each device; small and large networks.
NAMES = {"cartpole-4x128": 64, "breakout-64x128": 64}


@dataclasses.dataclass(kw_only=True)
class Point:
    """A compiled outer iteration on so many devices, and the seconds of each execution."""

    task: PPOTask
    devices: int
    reduces: bool = True
    seconds: list[float] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        env, agent, algorithm = parts(self.task)
        module = rlkit.RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=1e9)
        compiler = Compiler(1, devices=devices_of_run(self.devices, "data", num_seeds=1))

        def program(iterations: int) -> DeviceProgram:
            return DeviceProgram(module, compiler=compiler, num_iterations=iterations)

        with contextlib.nullcontext() if self.reduces else _without_reductions():
            self._program, self.iterations = program(2), 2
            self._ts = self._program.init(compiler.keys(0))
            self._execute()
            self.iterations = max(2, round(SECONDS * self.iterations / self._execute()))
            self._program = program(self.iterations)
            self._execute()
        gradients = jax.tree.leaves(self._ts.learner.params)
        config: Any = algorithm.spec[1]
        updates = config.num_epochs * config.num_minibatches
        self.bytes_per_iteration = updates * sum(x.size * x.dtype.itemsize for x in gradients)

    def _execute(self) -> float:
        start = time.perf_counter()
        self._ts, results = self._program.outer(self._ts)
        jax.block_until_ready((self._ts, results))
        return time.perf_counter() - start

    def run(self) -> None:
        """Times one execution."""
        self.seconds.append(self._execute())

    @property
    def speeds(self) -> list[float]:
        """Environment steps per second, over all devices."""
        steps = self.iterations * self.task.num_envs * self.task.num_steps
        return [steps / x for x in self.seconds]


@contextlib.contextmanager
def _without_reductions() -> Iterator[None]:
    """Each device keeps what it has; such a program is only good for timing."""

    def kept(x: Any, axis_name: str, **_: Any) -> Any:
        return x

    with contextlib.ExitStack() as stack:
        for name in ("pmean", "psum", "pmax"):
            stack.enter_context(mock.patch.object(jax.lax, name, kept))
        yield


def measure(name: str, counts: list[int], rounds: int) -> dict[str, Any]:
    """The points of a task, by what they are."""
    task = TASKS[name]
    assert isinstance(task, PPOTask)
    each, points = NAMES[name], {}
    for count in counts:
        print(f"{name}: compiling {count}", file=sys.stderr)
        of_count = dataclasses.replace(task, num_envs=each * count)
        points[f"{count}"] = Point(task=of_count, devices=count)
        if count > 1:
            points[f"{count} apart"] = Point(task=of_count, devices=count, reduces=False)
            points[f"{count} joined"] = Point(task=of_count, devices=1)
    for _, point in in_turns(list(points.values()), rounds):
        point.run()
    return points


def table(name: str, points: dict[str, Any]) -> str:
    """A row for each number of devices."""
    rows = []
    for label, point in points.items():
        if not label.isdigit():
            continue
        speed, share, beside = statistics.median(point.speeds), "", ""
        if point.devices > 1:
            apart = statistics.median(points[f"{label} apart"].speeds)
            share = f"{max(0.0, 1 - speed / apart):.0%}"
            beside = f"{speed / statistics.median(points[f'{label} joined'].speeds):.2f}"
        rows.append(
            [
                label,
                f"{point.task.num_envs:,}",
                with_spread(point.speeds),
                beside,
                share,
                f"{point.bytes_per_iteration / 2**20:.1f}",
            ]
        )
    heads = [
        "devices",
        "environments",
        "steps/s (min–max)",
        "× one device",
        "collectives",
        "MiB reduced per iteration",
    ]
    return f"### {name}\n\n{markdown(heads, rows)}\n"


def main() -> None:
    """Measures, prints and records."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "tasks", nargs="*", metavar="TASK", help=f"{', '.join(NAMES)}; default: all"
    )
    parser.add_argument("--devices", nargs="+", type=int, default=list(COUNTS))
    add_rounds(parser)
    add_output(parser)
    args = parser.parse_args()
    if unknown := set(args.tasks) - NAMES.keys():
        parser.error(f"unknown task {', '.join(sorted(unknown))}; choose one of {', '.join(NAMES)}")
    when, found = now(), {}
    for name in args.tasks or NAMES:
        points = measure(name, args.devices, args.rounds)
        print(table(name, points), flush=True)
        found[name] = {label: point.speeds for label, point in points.items()}
    write(
        "scaling",
        when,
        args.output,
        rounds=args.rounds,
        platform=jax.devices()[0].platform,
        versions=versions("rlkit", "jax", "jaxlib"),
        speeds=found,
    )


if __name__ == "__main__":
    main()
