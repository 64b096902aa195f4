"""Checks that a task's speed does not depend on the number of training steps per loop.

    python benchmarks/lengths.py TASK [--num-updates 6000] [--lengths 100 200 600 1200 2000]
    [--rounds 5]

Runs the same updates of rlkit on a task of `throughput.py`, split into outer iterations of
different lengths, each its own program. They alternate after one warm-up; medians are printed as a
Markdown table and nothing is written. XLA lays out the memory of each program separately, which
decides which kernels wait for each other. An update is what the task's `num_updates` counts: a
gradient step off policy, a whole rollout for PPO, which needs fewer: --num-updates 400 --lengths 10
40 100.
"""

import argparse
import dataclasses
import time
from functools import partial

import jax

import rlkit
from records import add_rounds, in_turns, markdown, with_spread
from rlkit_parts import parts
from tasks import TASKS


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "task", choices=sorted(name for name, task in TASKS.items() if task.num_seeds == 1)
    )
    parser.add_argument("--num-updates", type=int, default=6000)
    parser.add_argument("--lengths", type=int, nargs="+", default=[100, 200, 600, 1200, 2000])
    add_rounds(parser, "timed executions per length")
    args = parser.parse_args()
    rlkit.xla_cpu.enable()
    for length in args.lengths:
        if length < 1 or args.num_updates % length:
            parser.error(
                f"{args.num_updates} updates cannot be split into loops of {length}; choose a"
                " divisor"
            )
    task = dataclasses.replace(TASKS[args.task], num_updates=args.num_updates)
    env, agent, algorithm = parts(task)
    if not env.is_jittable:
        parser.error(f"{args.task} runs on the host, which has no loop; choose a gymnax task")
    module = rlkit.RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=task.env_steps)

    programs, key = {}, jax.random.key(0)
    for length in args.lengths:
        outer = args.num_updates // length
        function = partial(
            rlkit.fit, module, num_outer_iterations=outer, iterations_per_outer=length
        )
        traced = jax.jit(function).trace(key)
        programs[length] = traced.lower().compile(
            compiler_options=rlkit.compiler_options(traced.jaxpr)
        )
        jax.block_until_ready(programs[length](key))
    seconds: dict[int, list[float]] = {length: [] for length in args.lengths}
    for _, length in in_turns(list(programs), args.rounds):
        start = time.perf_counter()
        jax.block_until_ready(programs[length](key))
        seconds[length].append(time.perf_counter() - start)

    rows = [
        [str(length), with_spread([args.num_updates / x for x in times])]
        for length, times in seconds.items()
    ]
    print(markdown(["training steps per loop", f"{args.task}, updates/s (min–max)"], rows))


if __name__ == "__main__":
    main()
