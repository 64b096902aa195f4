"""The cost of the replay memory (writing and sampling) compared with a SAC update.

    python benchmarks/replay.py [--capacities 10000 1000000] [--rounds 5]

Transitions and networks are those of SAC on HalfCheetah, and the memories are full. Prints a
Markdown table and writes the raw record to benchmarks/results/. Every program is a loop that runs
for about half a second and donates its state; the programs alternate, and medians over the rounds
are shown. All have the XLA options of the loop over updates, since training compiles the memory and
the updates as one program.

"write and sample" does both in each iteration, as training does. "sample" alone reads a memory that
is never written, so the compiler may move work out of the loop. "update" is one update of all
networks and targets from a given batch.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

import rlkit
from common import versions
from limits import Loop
from records import add_output, add_rounds, in_turns, markdown, now, write
from rlkit.algorithms.replay_buffer import ReplayBuffer
from rlkit.types import Transition

OBSERVATIONS = spaces.Box(-np.inf, np.inf, (17,), np.float32)
ACTIONS = spaces.Box(-1.0, 1.0, (6,), np.float32)
FILL_ROWS = 1000
BATCH_SIZE = 256
HIDDEN = (256, 256)


def loop(
    step: Callable[[Any, jax.Array], tuple[Any, Any]],
    state: Any,
    options: dict[str, str | bool] | None = None,
) -> Loop:
    """A loop over `step(state, key)`.

    All results other than the state are summed, so that nothing is optimized away: XLA would not
    even gather those parts of a batch that nobody uses.
    """

    def one(carry: Any, i: jax.Array) -> Any:
        state, key, total = carry
        state, outputs = step(state, jax.random.fold_in(key, i))
        sums = (jnp.sum(x, dtype=jnp.float32) for x in jax.tree.leaves(outputs))
        return state, key, total + sum(sums)

    return Loop(step=one, state=(state, jax.random.key(0), jnp.float32(0)), options=options)


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


def memory_loops(capacity: int, options: dict[str, str | bool] | None) -> dict[str, Loop]:
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
    return {name: loop(step, full_memory(buffer), options) for name, step in steps.items()}


def update_loop() -> Loop:
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
    return loop(lambda learner, key: sac.updater.step(agent, learner, batch, key)[:2], learner)


def table(update: Loop, memories: dict[int, dict[str, Loop]]) -> str:
    """µs per iteration, and the share of writing and sampling in an update."""
    names = list(next(iter(memories.values())))
    rows = []
    for capacity, loops in memories.items():
        times = (f"{loops[name].microseconds:,.1f}" for name in names)
        share = loops["write and sample"].microseconds / update.microseconds
        rows.append([f"{capacity:,}", *times, f"{share:.1%}"])
    first, last = min(memories), max(memories)
    ratios = (
        f"{memories[last][name].microseconds / memories[first][name].microseconds:.2f}"
        for name in names
    )
    rows.append([f"{last:,} ÷ {first:,}", *ratios, ""])
    heads = ["capacity", *(f"{name}, µs" for name in names), "share of an update"]
    return f"One SAC update: {update.microseconds:,.0f} µs.\n\n{markdown(heads, rows)}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description="What the replay memory costs compared with a SAC update."
    )
    parser.add_argument(
        "--capacities", type=int, nargs="+", default=[10_000, 1_000_000], help="transitions"
    )
    add_rounds(parser, "timed executions per loop")
    add_output(parser)
    args = parser.parse_args()
    if too_small := [capacity for capacity in args.capacities if capacity < FILL_ROWS]:
        parser.error(f"--capacities {too_small[0]} is too small; use at least {FILL_ROWS}")

    rlkit.xla_cpu.enable()
    when = now()
    update = update_loop()
    memories = {capacity: memory_loops(capacity, update.options) for capacity in args.capacities}
    loops = [update, *(item for loops in memories.values() for item in loops.values())]
    for _, item in in_turns(loops, args.rounds):
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
        rounds=args.rounds,
        options=update.options,
        update_seconds=update.seconds,
        memory_seconds={
            capacity: {name: item.seconds for name, item in loops.items()}
            for capacity, loops in memories.items()
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
