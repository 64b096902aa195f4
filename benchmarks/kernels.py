"""Where XLA splits the kernels of a compiled program over threads, on a CPU.

    python benchmarks/kernels.py [TASK ...] [--orders]

XLA runs a program, and the body of each loop in it, as a list of kernels. If more than eight
kernels of a list are ready at once, half of them go to another thread; waking it takes tens of
microseconds, which pays off only for large products (benchmarks/notes.md). XLA logs these lists
while compiling. This script compiles the outer iteration of each task as a Trainer does, simulates
the lists in the order in which one thread would run them, and prints for each list of more than
eight kernels how many are ready at most and where it would be split. `--orders` also prints the
order. XLA truncates its message for lists of more than about a hundred kernels; the number of known
kernels is printed then.

The script computes nothing beyond compiling, writes nothing, and depends on the wording of the
installed XLA's log.
"""

import argparse
import dataclasses
import os
import re
import subprocess
import sys
from typing import Any

import jax

from rlkit_parts import bare_trainer, outer_iterations_of, parts
from tasks import TASKS

THRESHOLD = 8  # lists with more ready kernels are split; lists up to this length have no queue
LOG = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "thunk_executor=6"}
CHILD = "RLKIT_BENCHMARK_KERNELS"  # in the environment of the compiling process
BEGIN = "the requested program follows"
LIST = re.compile(r"Constructed ThunkExecutor with (\d+) thunks:.* is_sequential=(\w+)")
KERNEL = re.compile(r"thunk #\d+: op_name=([^,]+), kind=([^,]+), dependencies=\[([^\]\n]*)\]")


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One entry of a list: a compiled kernel, a copy, a library call, or a loop."""

    name: str
    kind: str
    waits_for: tuple[str, ...]


def compile_outer_iteration(task_name: str) -> None:
    """Runs in its own process; XLA's lists follow the line `BEGIN` on its stderr."""
    task = TASKS[task_name]
    env, agent, algorithm = parts(task)
    trainer = bare_trainer(task, env, agent, algorithm, outer_iterations=outer_iterations_of(task))
    state = trainer.program.state_shape(trainer.compiler.keys(0))
    outer: Any = trainer.program.outer
    print(BEGIN, file=sys.stderr, flush=True)
    outer.compile(state)


def lists_of(log: str) -> list[tuple[int, list[Kernel]]]:
    """(length, logged kernels) of each list that XLA does not run in order."""
    lists, heads = [], list(LIST.finditer(log))
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        rows = KERNEL.findall(log[head.end() : following.start() if following else None])
        if head.group(2) == "false":
            kernels = [
                Kernel(name, kind, tuple(filter(None, waits.split(", "))))
                for name, kind, waits in rows
            ]
            lists.append((int(head.group(1)), kernels))
    return lists


def play(kernels: list[Kernel]) -> list[tuple[Kernel, int]]:
    """The order in which one thread runs them, and how many others are ready at each start."""
    index = {kernel.name: i for i, kernel in enumerate(kernels)}
    waits = [{index[name] for name in kernel.waits_for if name in index} for kernel in kernels]
    ready, order = [i for i, others in enumerate(waits) if not others], []
    while ready:
        done = ready.pop(0)
        order.append((kernels[done], len(ready)))
        for i, others in enumerate(waits):
            if done in others:
                others.remove(done)
                if not others:
                    ready.append(i)
    assert len(order) == len(kernels), "kernels wait for each other: XLA's log has changed"
    return order


def report(length: int, kernels: list[Kernel], orders: bool) -> str:
    """One line about a list, and optionally its order."""
    order = play(kernels)
    divided = [kernel.name for kernel, others in order if others > THRESHOLD]
    known, least = (
        ("", "at most")
        if len(kernels) == length
        else (f" ({len(kernels)} known)", "at least up to")
    )
    loops = sum(kernel.kind == "while" for kernel in kernels)
    most = max((others for _, others in order), default=0)
    text = f"- {length} kernels{known}, {loops} of them loops; {least} {most} ready"
    text += f"; split before {', '.join(divided[:4])}{' …' * (len(divided) > 4)}" if divided else ""
    rows = (
        [f"    {others:3d} ready  {kernel.kind:12s} {kernel.name}" for kernel, others in order]
        if orders
        else []
    )
    return "\n".join([text, *rows])


def main() -> None:
    names = sorted(
        name for name, task in TASKS.items() if task.suite == "gymnax" and task.num_seeds == 1
    )
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "tasks",
        nargs="*",
        metavar="TASK",
        help=f"{', '.join(names)}; default: cartpole-4x128",
    )
    parser.add_argument(
        "--orders", action="store_true", help="also print the order of the kernels in each list"
    )
    args = parser.parse_args()
    for name in args.tasks:
        if name not in names:
            parser.error(f"unknown task {name!r}; choose one of {', '.join(names)}")
    if CHILD in os.environ and args.tasks:
        compile_outer_iteration(args.tasks[0])
        return
    for name in args.tasks or ["cartpole-4x128"]:
        settings = LOG | {
            CHILD: "1",
            "JAX_PLATFORMS": "cpu",
            "JAX_ENABLE_COMPILATION_CACHE": "false",
        }
        child = subprocess.run(
            [sys.executable, __file__, name],
            env=os.environ | settings,
            capture_output=True,
            text=True,
        )
        if child.returncode:
            sys.exit(child.stderr[-2000:])
        lists = lists_of(child.stderr.partition(BEGIN)[2])
        if not lists:
            sys.exit(
                f"XLA of jax {jax.__version__} logged no list of kernels; this script needs jax"
                " 0.10"
            )
        print(f"### {name}\n\n" + "\n".join(report(*entry, args.orders) for entry in lists) + "\n")


if __name__ == "__main__":
    main()
