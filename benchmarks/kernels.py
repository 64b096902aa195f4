"""Where XLA divides the kernels of a compiled program between threads, on a CPU.

    python benchmarks/kernels.py [TASK ...] [--orders]

XLA runs a program, and the body of each loop in it, as a list of kernels. Where more than eight of
a list are ready at once, it hands half of them to another thread; waking that costs tens of
microseconds, which pays for large products and for nothing else (docs/speed.md). XLA logs its lists
when it compiles. This compiles the outer iteration of each task as a Trainer does, plays the lists
through in the order in which one thread would run them, and prints for each list of more than eight
kernels how many are ready at most, and before which it would be divided. With `--orders` it prints
the order too. XLA cuts its message about a list of more than about a hundred kernels off; how many
are known is said.

It computes nothing but what compiling takes, writes nothing, and depends on how the installed XLA
words its log.
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

THRESHOLD = 8  # more than so many ready kernels are divided; lists of up to so many have no queue
LOG = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "thunk_executor=6"}
CHILD = "RLKIT_BENCHMARK_KERNELS"  # in the environment of the process that compiles
BEGIN = "what follows is the program that was asked for"
LIST = re.compile(r"Constructed ThunkExecutor with (\d+) thunks:.* is_sequential=(\w+)")
KERNEL = re.compile(r"thunk #\d+: op_name=([^,]+), kind=([^,]+), dependencies=\[([^\]\n]*)\]")


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One entry of a list: a compiled kernel, a copy, a call of a library, or a loop."""

    name: str
    kind: str
    waits_for: tuple[str, ...]


def compile_outer_iteration(task_name: str) -> None:
    """In a process of its own, whose error stream has XLA's lists after the line `BEGIN`."""
    task = TASKS[task_name]
    env, agent, algorithm = parts(task)
    trainer = bare_trainer(task, env, agent, algorithm, outer_iterations=outer_iterations_of(task))
    state = trainer.program.state_shape(trainer.compiler.keys(0))
    outer: Any = trainer.program.outer
    print(BEGIN, file=sys.stderr, flush=True)
    outer.compile(state)


def lists_of(log: str) -> list[tuple[int, list[Kernel]]]:
    """(its length, the kernels that the log tells of) for every list that XLA does not run in order
    anyway.
    """
    found, heads = [], list(LIST.finditer(log))
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        rows = KERNEL.findall(log[head.end() : following.start() if following else None])
        if head.group(2) == "false":
            kernels = [
                Kernel(name, kind, tuple(filter(None, waits.split(", "))))
                for name, kind, waits in rows
            ]
            found.append((int(head.group(1)), kernels))
    return found


def play(kernels: list[Kernel]) -> list[tuple[Kernel, int]]:
    """The order in which one thread runs them, each with how many others are ready when
    it begins.
    """
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
    assert len(order) == len(kernels), "kernels that wait for each other: XLA's log has changed"
    return order


def report(length: int, kernels: list[Kernel], orders: bool) -> str:
    """A line about a list, and its order."""
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
    text += (
        f"; divided before {', '.join(divided[:4])}{' …' * (len(divided) > 4)}" if divided else ""
    )
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
        help=f"{', '.join(names)}; cartpole-4x128 if none is named",
    )
    parser.add_argument(
        "--orders", action="store_true", help="print the order of the kernels of each list"
    )
    args = parser.parse_args()
    for name in args.tasks:
        if name not in names:
            parser.error(f"unknown task {name!r}; choose from {', '.join(names)}")
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
                f"XLA of jax {jax.__version__} logged no list of kernels; this script is made for"
                " jax 0.10"
            )
        print(f"### {name}\n\n" + "\n".join(report(*found, args.orders) for found in lists) + "\n")


if __name__ == "__main__":
    main()
