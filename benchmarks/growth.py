"""How rlkit's speed changes with environments, network width, replay memory and seeds.

    python benchmarks/growth.py [SWEEP ...] [--rounds 5]

Each sweep starts from a task of `throughput.py` and changes one number. Every point is an outer
iteration as the Trainer compiles it, which runs for about two seconds; the points of a sweep
alternate. Bytes are what the compiled program needs at once according to XLA: arguments, results
and temporaries, for all seed groups, without splitting and joining them. Prints a Markdown table
per sweep and writes the raw record to benchmarks/results/. For the cost of a full replay memory see
`replay.py`.
"""

import argparse
import dataclasses
import statistics
import sys
import time
from typing import Any

import jax

import rlkit
from common import versions
from records import add_output, add_rounds, in_turns, markdown, now, with_spread, write
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.compile.parallel_seeds import ParallelSeeds, num_groups
from rlkit.training.programs.jittable_program import DeviceProgram
from rlkit_parts import parts
from tasks import TASKS, OffPolicyTask, PPOTask, Task

SECONDS = 2  # approximate duration of one execution
PPO, SAC = TASKS["cartpole-4x128"], TASKS["sac-pendulum"]


def _ppo(**changes: Any) -> PPOTask:
    assert isinstance(PPO, PPOTask)
    return dataclasses.replace(PPO, **changes)


def _sac(**changes: Any) -> OffPolicyTask:
    assert isinstance(SAC, OffPolicyTask)
    return dataclasses.replace(SAC, **changes)


SWEEPS: dict[str, tuple[str, dict[int, Task]]] = {
    "envs": (
        "environments of PPO on CartPole, 128 steps",
        {n: _ppo(num_envs=n) for n in (4, 16, 64, 256, 1024)},
    ),
    "width": (
        "units in each of PPO's two layers, 4 x 128",
        {n: _ppo(hidden=(n, n)) for n in (32, 64, 128, 256, 512)},
    ),
    "seeds": (
        "parallel seeds of PPO on CartPole, 4 x 128",
        {n: _ppo(num_seeds=n) for n in (1, 4, 16, 64)},
    ),
    "sac-width": (
        "units in each of SAC's two layers, batches of 256",
        {n: _sac(hidden=(n, n)) for n in (64, 128, 256, 512)},
    ),
    "replay": (
        "capacity of SAC's replay memory, mostly unused",
        {n: _sac(capacity=n) for n in (10_000, 100_000, 1_000_000)},
    ),
}


@dataclasses.dataclass(kw_only=True)
class Point:
    """A compiled outer iteration of a task, and the seconds of each execution."""

    task: Task
    seconds: list[float] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        env, agent, algorithm = parts(self.task)
        module = rlkit.RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=1e9)
        num_seeds = self.task.num_seeds
        compiler = Compiler(num_seeds, num_groups(num_seeds))

        def program(updates: int) -> DeviceProgram:
            return DeviceProgram(module, compiler=compiler, num_iterations=updates)

        self._program, self.updates = program(2), 2
        self._ts = self._program.init(compiler.keys(0))
        self._execute()
        self.updates = max(2, round(SECONDS * self.updates / self._execute()))
        self._program = program(self.updates)
        self._execute()
        outer = self._program.outer
        memory = (
            outer.function if isinstance(outer, ParallelSeeds) else outer
        ).executable.memory_analysis()
        kept = (
            memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
        )
        self.bytes = compiler.groups * (kept + memory.temp_size_in_bytes)

    def _execute(self) -> float:
        start = time.perf_counter()
        self._ts, metrics = self._program.outer(self._ts)
        jax.block_until_ready((self._ts, metrics))
        return time.perf_counter() - start

    def run(self) -> None:
        self.seconds.append(self._execute())

    @property
    def speeds(self) -> list[float]:
        """PPO: environment steps per second over all seeds; SAC: gradient steps per second."""
        of_one = self.task.num_envs * self.task.num_steps if isinstance(self.task, PPOTask) else 1
        return [self.updates * of_one * self.task.num_seeds / x for x in self.seconds]


def sweep(name: str, rounds: int) -> dict[int, Point]:
    points = {}
    for value, task in SWEEPS[name][1].items():
        print(f"{name}: compiling {value}", file=sys.stderr)
        points[value] = Point(task=task)
    for _, point in in_turns(list(points.values()), rounds):
        point.run()
    return points


def table(name: str, points: dict[int, Point]) -> str:
    first = statistics.median(next(iter(points.values())).speeds)
    unit = "env steps/s" if isinstance(next(iter(points.values())).task, PPOTask) else "updates/s"
    rows = [
        [
            f"{value:,}",
            with_spread(point.speeds),
            f"{statistics.median(point.speeds) / first:.2f}",
            f"{point.bytes / 2**20:,.1f}",
        ]
        for value, point in points.items()
    ]
    return (
        f"### {name}:"
        f" {SWEEPS[name][0]}\n\n{markdown(['', f'{unit} (min–max)', '× the first', 'MiB'], rows)}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sweeps",
        nargs="*",
        metavar="SWEEP",
        help=f"{', '.join(SWEEPS)}; default: all",
    )
    add_rounds(parser)
    add_output(parser)
    args = parser.parse_args()
    if unknown := set(args.sweeps) - SWEEPS.keys():
        parser.error(
            f"unknown sweep {', '.join(sorted(unknown))}; choose one of {', '.join(SWEEPS)}"
        )
    when, sweeps = now(), {}
    for name in args.sweeps or SWEEPS:
        points = sweep(name, args.rounds)
        print(table(name, points), flush=True)
        sweeps[name] = {
            value: {"speeds": point.speeds, "bytes": point.bytes} for value, point in points.items()
        }
    write(
        "growth",
        when,
        args.output,
        rounds=args.rounds,
        versions=versions("rlkit", "jax", "jaxlib"),
        sweeps=sweeps,
    )


if __name__ == "__main__":
    main()
