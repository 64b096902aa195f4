"""The cost of the replay memory (writing and sampling) compared with a SAC update.

    python benchmarks/replay.py [--capacities 10000 1000000] [--rounds 5]

Transitions and networks are those of SAC on HalfCheetah, and the memories are full. Prints a
Markdown table and writes the raw record to benchmarks/results/. Every program donates its state,
runs `--iterations` of a scan, and is warmed up once; the programs alternate, and medians over the
rounds are shown.

"write and sample" does both in each iteration, as training does. "sample" alone reads a memory that
is never written, so the compiler may move work out of the loop. "update" is one update of all
networks and targets from a given batch.
"""

import argparse
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

import rlkit
from common import versions
from records import add_output, add_rounds, now, write
from rlkit.algorithms.replay_buffer import ReplayBuffer
from rlkit.types import Transition

OBSERVATIONS = spaces.Box(-np.inf, np.inf, (17,), np.float32)
ACTIONS = spaces.Box(-1.0, 1.0, (6,), np.float32)
FILL_ROWS = 1000
BATCH_SIZE = 256
HIDDEN = (256, 256)


@dataclasses.dataclass(kw_only=True)
class Loop:
    """A compiled loop over a donated state, and the seconds of each execution."""

    program: Callable[[Any], Any]
    state: Any
    iterations: int
    seconds: list[float] = dataclasses.field(default_factory=list)

    def run(self, *, timed: bool = True) -> None:
        jax.block_until_ready(self.state)
        start = time.perf_counter()
        self.state = jax.block_until_ready(self.program(self.state))
        if timed:
            self.seconds.append(time.perf_counter() - start)

    @property
    def microseconds(self) -> float:
        """Median per iteration."""
        return statistics.median(self.seconds) / self.iterations * 1e6


def loop(step: Callable[[Any, jax.Array], tuple[Any, Any]], state: Any, iterations: int) -> Loop:
    """Compiles a loop over `step(state, key)`.

    All results other than the state are summed, so that nothing is optimized away.
    """

    def scan(carry: Any) -> Any:
        state, key, total = carry
        key, loop_key = jax.random.split(key)

        def one(carry: Any, key: jax.Array) -> tuple[Any, None]:
            state, total = carry
            state, outputs = step(state, key)
            return (
                state,
                total + sum(jnp.sum(x, dtype=jnp.float32) for x in jax.tree.leaves(outputs)),
            ), None

        (state, total), _ = jax.lax.scan(
            one, (state, total), jax.random.split(loop_key, iterations)
        )
        return state, key, total

    return Loop(
        program=jax.jit(scan, donate_argnums=0),
        state=(state, jax.random.key(0), jnp.float32(0)),
        iterations=iterations,
    )


def transitions(key: jax.Array, shape: tuple[int, ...]) -> Transition:
    """Random transitions [*shape, ...]; one in a thousand ends its episode."""
    keys = jax.random.split(key, 4)
    return Transition(
        obs=jax.random.normal(keys[0], (*shape, *OBSERVATIONS.shape)),
        action=jax.random.uniform(keys[1], (*shape, *ACTIONS.shape), minval=-1.0, maxval=1.0),
        reward=jax.random.normal(keys[2], shape),
        terminated=jnp.zeros(shape, bool),
        truncated=jax.random.bernoulli(keys[2], 1e-3, shape),
        next_obs=jax.random.normal(keys[3], (*shape, *OBSERVATIONS.shape)),
        extras={},
    )


def algorithm(capacity: int) -> Any:
    return rlkit.sac(rlkit.SACConfig(capacity=capacity, batch_size=BATCH_SIZE))


def full_memory(buffer: ReplayBuffer) -> Any:
    example = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype),
        jax.eval_shape(transitions, jax.random.key(0), ()),
    )
    memory = buffer.init(example, 1)
    add = jax.jit(
        lambda memory, key: buffer.add(memory, transitions(key, (FILL_ROWS, 1))), donate_argnums=0
    )
    for key in jax.random.split(jax.random.key(1), -(-buffer.capacity // FILL_ROWS)):
        memory = add(memory, key)
    return memory


def memory_loops(capacity: int, iterations: int) -> dict[str, Loop]:
    """One loop for each use of the memory."""
    buffer = algorithm(capacity).replay_buffer

    def write(memory: Any, key: jax.Array) -> tuple[Any, Any]:
        return buffer.add(memory, new), ()

    def sample(memory: Any, key: jax.Array) -> tuple[Any, Any]:
        return memory, buffer.sample(memory, key, jnp.float32(0.0))

    def write_and_sample(memory: Any, key: jax.Array) -> tuple[Any, Any]:
        memory = buffer.add(memory, new)
        return memory, buffer.sample(memory, key, jnp.float32(0.0))

    new = transitions(jax.random.key(2), (1, 1))
    steps = {"write": write, "sample": sample, "write and sample": write_and_sample}
    return {name: loop(step, full_memory(buffer), iterations) for name, step in steps.items()}


def update_loop(iterations: int) -> Loop:
    """One gradient step of critics, actor and temperature, with the target update."""
    agent = rlkit.soft_actor_critic(
        OBSERVATIONS, ACTIONS, rlkit.SoftActorCriticConfig(hidden_sizes=HIDDEN)
    )
    sac = algorithm(10 * FILL_ROWS)
    env = rlkit.make_env("gymnasium/HalfCheetah-v5", 1)
    keys = rlkit.algorithms.initial_state.InitKeys.split(jax.random.key(3))
    learner = sac.start(
        agent, env, keys, jnp.zeros((1, *OBSERVATIONS.shape)), (), total_steps=1e6
    ).learner
    env.close()
    batch = sac.replay_buffer.sample(
        full_memory(sac.replay_buffer), jax.random.key(4), jnp.float32(0.0)
    )
    return loop(
        lambda learner, key: sac.updater.step(agent, learner, batch, key)[:2], learner, iterations
    )


def table(update: Loop, memories: dict[int, dict[str, Loop]]) -> str:
    """µs per iteration, and the share of writing and sampling in an update."""
    names = list(next(iter(memories.values())))
    lines = [
        f"One SAC update: {update.microseconds:,.0f} µs.",
        "",
        f"| capacity | {' | '.join(f'{name}, µs' for name in names)} | share of an update |",
        "|---:|" + "---:|" * (len(names) + 1),
    ]
    for capacity, loops in memories.items():
        times = " | ".join(f"{loops[name].microseconds:,.1f}" for name in names)
        share = loops["write and sample"].microseconds / update.microseconds
        lines.append(f"| {capacity:,} | {times} | {share:.1%} |")
    first, last = min(memories), max(memories)
    ratios = " | ".join(
        f"{memories[last][name].microseconds / memories[first][name].microseconds:.2f}"
        for name in names
    )
    return "\n".join([*lines, f"| {last:,} ÷ {first:,} | {ratios} | |"])


def main() -> int:
    parser = argparse.ArgumentParser(
        description="What the replay memory costs compared with a SAC update."
    )
    parser.add_argument(
        "--capacities", type=int, nargs="+", default=[10_000, 1_000_000], help="transitions"
    )
    add_rounds(parser, "timed executions per loop")
    parser.add_argument(
        "--iterations", type=int, default=2000, help="iterations of a loop over the memory"
    )
    parser.add_argument(
        "--updates", type=int, default=500, help="iterations of the loop over updates"
    )
    add_output(parser)
    args = parser.parse_args()
    if too_small := [capacity for capacity in args.capacities if capacity < FILL_ROWS]:
        parser.error(f"--capacities {too_small[0]} is too small; use at least {FILL_ROWS}")

    when = now()
    update = update_loop(args.updates)
    memories = {capacity: memory_loops(capacity, args.iterations) for capacity in args.capacities}
    loops = [update, *(item for loops in memories.values() for item in loops.values())]
    for item in loops:
        item.run(timed=False)
    for index in range(args.rounds):
        print(f"round {index + 1}", file=sys.stderr)
        first = index % len(loops)
        for item in loops[first:] + loops[:first]:
            item.run()

    print(table(update, memories))
    settings = {
        "batch_size": BATCH_SIZE,
        "hidden": HIDDEN,
        "observation": OBSERVATIONS.shape,
        "action": ACTIONS.shape,
    }
    write(
        "replay",
        when,
        args.output,
        versions=versions("rlkit", "jax", "jaxlib", "numpy"),
        settings=settings,
        iterations=args.iterations,
        updates=args.updates,
        update_seconds=update.seconds,
        memory_seconds={
            capacity: {name: item.seconds for name, item in loops.items()}
            for capacity, loops in memories.items()
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
