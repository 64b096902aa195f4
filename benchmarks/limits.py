"""How close a task of `throughput.py` is to the speed that its parts would allow.

    python benchmarks/limits.py [TASK ...] [--rounds 5]

Measures in one process, in turn, for each task: the whole training step; the environments alone,
with precomputed actions; acting alone, on fixed observations; both together as in a rollout; the
update alone, on a fixed rollout; and the update's matrix products alone, each shape in its own
loop. The products' rate is compared with the best rate of this process for any shape in `SQUARES`.
Microseconds are per training step: a rollout and its update. On gymnax each part is a compiled
loop. On the host, the whole is the Trainer's outer iteration; environments, acting and rollouts are
called from Python, and update and products are compiled loops. Prints Markdown tables and writes
the raw record to benchmarks/results/.

The products are counted in the traced program, with two operations per multiplication. They are not
a strict bound (parts of a program may run in parallel), but a program that does nothing else would
take about as long.
"""

import argparse
import collections
import dataclasses
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params

import rlkit
from common import versions
from records import add_output, add_rounds, in_turns, markdown, now, write
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.programs.host_program import HostProgram
from rlkit.types import TrainState
from rlkit_parts import parts
from tasks import TASKS

SQUARES = (128, 256, 512, 1024)
SECONDS = 0.5  # approximate duration of one execution of a part
HOST_STEPS = 200  # steps of each environment per outer iteration on the host

Shape = tuple[tuple[int, ...], tuple[int, ...], Any]


@dataclasses.dataclass(kw_only=True)
class Timed:
    """The seconds of each execution, and the training steps in it."""

    seconds: list[float] = dataclasses.field(default_factory=list)

    def run(self) -> None:
        """Measures for about `SECONDS`."""
        raise NotImplementedError

    @property
    def microseconds(self) -> float:
        """Median per step."""
        return statistics.median(self.seconds) * 1e6


@dataclasses.dataclass(kw_only=True)
class Calls(Timed):
    """Calls `call()` from Python repeatedly; a call is `steps` training steps."""

    call: Callable[[], Any]
    steps: int = 1

    def __post_init__(self) -> None:
        self.call()
        start = time.perf_counter()
        self.call()
        self._times = max(1, round(SECONDS / (time.perf_counter() - start)))

    def run(self) -> None:
        start = time.perf_counter()
        for _ in range(self._times):
            self.call()
        self.seconds.append((time.perf_counter() - start) / self._times / self.steps)


@dataclasses.dataclass(kw_only=True)
class Loop(Timed):
    """Compiles a loop over `step(state, i)`; each execution continues from the last one."""

    step: Callable[[Any, jax.Array], Any]
    state: Any
    options: dict[str, str | bool] | None = None
    """XLA options; None: those that rlkit chooses for this loop."""

    def __post_init__(self) -> None:
        # Donated, because copying a large memory takes long.
        self.state = jax.tree.map(jnp.copy, self.state)
        self._compile(3)
        took = min(self._execute() for _ in range(3)) / 3
        self._compile(max(3, round(SECONDS / took)))

    def _compile(self, length: int) -> None:
        def run(state: Any) -> Any:
            return jax.lax.fori_loop(0, length, lambda i, state: self.step(state, i), state)

        traced = jax.jit(run, donate_argnums=0).trace(self.state)
        if self.options is None:
            self.options = rlkit.compiler_options(traced.jaxpr)
        self._length = length
        self._program = traced.lower().compile(compiler_options=self.options)
        self._execute()

    def _execute(self) -> float:
        start = time.perf_counter()
        self.state = jax.block_until_ready(self._program(self.state))
        return time.perf_counter() - start

    def run(self) -> None:
        self.seconds.append(self._execute() / self._length)


def keeping(outputs: Any, total: jax.Array) -> jax.Array:
    """`total` plus a part of everything in `outputs`, so that nothing is optimized away."""
    outputs = jax.lax.optimization_barrier(outputs)
    return total + sum(
        jnp.ravel(x)[0].astype(jnp.float32) for x in jax.tree.leaves(outputs) if not _is_key(x)
    )


def _is_key(x: jax.Array) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def products(jaxpr: Any, times: int = 1) -> Iterator[tuple[Shape, int]]:
    """(shapes and axes, count) of all matrix products; of conditionals, the cheapest branch.

    Raises `ValueError` if the count is unknown.
    """
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        if equation.primitive.name == "dot_general":
            left, right = (variable.aval.shape for variable in equation.invars[:2])
            yield (left, right, equation.params["dimension_numbers"]), times
        if equation.primitive.name == "conv_general_dilated":
            raise ValueError("convolutions are not counted; choose a task with an MLP")
        if equation.primitive.name == "cond":
            choices = [list(products(branch, times)) for branch in equation.params["branches"]]
            yield from min(
                choices,
                key=lambda counted: sum(operations(shape) * count for shape, count in counted),
            )
            continue
        inner_times = (
            times * equation.params["length"] if equation.primitive.name == "scan" else times
        )
        for inner in jaxprs_in_params(equation.params):
            counted = list(products(inner, inner_times))
            if counted and equation.primitive.name == "while":
                raise ValueError("products in a loop of unknown length")
            yield from counted


def operations(shape: Shape) -> int:
    """Multiplications and additions in a product."""
    left, right, ((_, summed), (_, mapped)) = shape
    return (
        2
        * math.prod(left)
        * math.prod(size for axis, size in enumerate(right) if axis not in (*summed, *mapped))
    )


def product_loop(shape: Shape) -> Loop:
    """Runs one product repeatedly."""
    left, right, axes = shape
    x, y = (jax.random.normal(jax.random.key(i), s) for i, s in enumerate((left, right)))

    def step(state: Any, i: jax.Array) -> Any:
        x, y, total = jax.lax.optimization_barrier(state)
        return x, y, keeping(jax.lax.dot_general(x, y, axes), total)

    return Loop(step=step, state=(x, y, jnp.float32(0)))


def parts_of(name: str) -> tuple[dict[str, Timed], collections.Counter[Shape], int]:
    """(the parts of a task, the products in its update, its environment steps)."""
    task = TASKS[name]
    env, agent, algorithm = parts(task)
    module = rlkit.RLModule(env=env, agent=agent, algorithm=algorithm, total_steps=task.total_steps)
    timed, update, state = (jittable_parts if env.is_jittable else host_parts)(module)
    counted: collections.Counter[Shape] = collections.Counter()
    for shape, times in products(jax.make_jaxpr(lambda state: update(state, jnp.int32(0)))(state)):
        counted[shape] += times
    timed["update"] = Loop(step=update, state=state)
    return timed, counted, algorithm.env_steps_per_iteration(env)


def jittable_parts(module: Any) -> tuple[dict[str, Timed], Callable[..., Any], Any]:
    """(all parts but the update, the update, its initial state)."""
    env, agent, algorithm = module.env, module.agent, module.algorithm
    ts = rlkit.ops.strong_types.strong_types(jax.jit(module.init_train_state)(jax.random.key(0)))
    num_steps, num_envs = algorithm.collector.num_steps, env.num_envs
    _, (rollout, episodes) = jax.jit(lambda ts: module.get_batch(ts, jnp.int32(0)))(ts)
    # [at least 64, N]
    actions = jax.tree.map(lambda x: jnp.concatenate([x] * -(-64 // num_steps)), rollout.action)
    policy, zero = ts.learner.policy, jnp.float32(0)

    def whole(ts: Any, i: jax.Array) -> Any:
        ts, batch = module.get_batch(ts, i)
        return module.training_step(i, ts, batch)[0]

    def collect(state: Any, i: jax.Array) -> Any:
        ts, total = state
        ts, outputs = module.get_batch(ts, i)
        return ts, keeping(outputs, total)

    def environments(state: Any, i: jax.Array) -> Any:
        def one(state: Any, t: jax.Array) -> Any:
            env_state, key, total = state
            key, step_key = jax.random.split(key)
            action = jax.tree.map(lambda x: x[(i + t) % len(x)], actions)
            env_state, timestep = env.step(step_key, env_state, action)
            return (env_state, key, keeping(timestep, total)), None

        return jax.lax.scan(one, state, jnp.arange(num_steps))[0]

    def acting(state: Any, i: jax.Array) -> Any:
        def one(state: Any, _: None) -> Any:
            obs, key, total = jax.lax.optimization_barrier(state)
            key, act_key = jax.random.split(key)
            carry = agent.initial_carry(num_envs)
            outputs = agent.explore(policy.params, obs, carry, act_key, policy.progress)
            return (obs, key, keeping(outputs, total)), None

        return jax.lax.scan(one, state, length=num_steps)[0]

    def update(ts: Any, i: jax.Array) -> Any:
        return module.training_step(i, ts, jax.lax.optimization_barrier((rollout, episodes)))[0]

    key = jax.random.key(1)
    loops: dict[str, Timed] = {
        "whole": Loop(step=whole, state=ts),
        "rollout": Loop(step=collect, state=(ts, zero)),
        "environments": Loop(step=environments, state=(ts.local.env_state, key, zero)),
        "acting": Loop(step=acting, state=(ts.local.obs, key, zero)),
    }
    return loops, update, ts


def host_parts(module: Any) -> tuple[dict[str, Timed], Callable[..., Any], Any]:
    """The same for host environments."""
    agent, algorithm = module.agent, module.algorithm
    num_steps = algorithm.collector.num_steps
    epochs = max(2, HOST_STEPS // num_steps)
    compiler = Compiler(num_seeds=1)
    program = HostProgram(module, compiler=compiler, epochs=epochs, overlap="none")
    held = {"ts": program.init(jax.random.key(0))}
    held["ts"], batch = program.single_schedule.get_batch(held["ts"], 0)
    rollout = jax.tree.map(jnp.asarray, batch.rollout)
    ts = program.copy(held["ts"])
    policy, obs = ts.learner.policy, np.array(ts.local.obs)
    other = module.env.remake(module.env.num_envs)
    env_state, _ = other.reset(jax.random.key(1))
    actions = np.asarray(rollout.action)

    def whole() -> None:
        held["ts"], _ = program.outer(held["ts"])

    def collect() -> None:
        held["ts"], _ = program.single_schedule.get_batch(held["ts"], 0)

    def environments() -> None:
        for action in actions:
            other.step(None, env_state, action)

    def choose(key: jax.Array) -> tuple[Any, jax.Array]:
        key, act_key = jax.random.split(key)
        return agent.explore(
            policy.params, obs, agent.initial_carry(len(actions[0])), act_key, policy.progress
        ), key

    chosen = compiler(choose)
    held["key"] = jax.random.key(2)

    def acting() -> None:
        for _ in range(num_steps):
            (action, _, _), held["key"] = chosen(held["key"])
            np.asarray(action)

    def update(state: Any, i: jax.Array) -> Any:
        learner, local = state
        local, outputs, episodes = algorithm.collector.count(
            local, jax.lax.optimization_barrier(rollout)
        )
        ts, _ = module.learn(TrainState(learner=learner, local=local), outputs, episodes)
        return ts.learner, ts.local

    timed: dict[str, Timed] = {
        "whole": Calls(call=whole, steps=epochs),
        "rollout": Calls(call=collect),
        "environments": Calls(call=environments),
        "acting": Calls(call=acting),
    }
    return timed, update, (ts.learner, ts.local.replace(obs=()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    able = [name for name, task in TASKS.items() if task.num_seeds == 1]
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"{', '.join(able)}; default: all")
    add_rounds(parser)
    add_output(parser)
    args = parser.parse_args()
    if unknown := set(args.tasks) - set(able):
        parser.error(f"no limits for {', '.join(sorted(unknown))}; choose one of {', '.join(able)}")
    rlkit.xla_cpu.enable()
    when, records, rows, rates = now(), {}, [], []
    squares = {n: product_loop(((n, n), (n, n), (((1,), (0,)), ((), ())))) for n in SQUARES}
    for name in args.tasks or able:
        loops, counted, env_steps = parts_of(name)
        alone = {shape: product_loop(shape) for shape in counted}
        for _, item in in_turns([*loops.values(), *alone.values(), *squares.values()], args.rounds):
            item.run()
        times = {part: item.microseconds for part, item in loops.items()}
        in_products = sum(times_ * alone[shape].microseconds for shape, times_ in counted.items())
        flop = sum(times_ * operations(shape) for shape, times_ in counted.items())
        best = max(2 * n**3 / item.microseconds / 1e3 for n, item in squares.items())
        rows.append(
            [
                name,
                *(f"{x:,.{0 if x >= 100 else 1}f}" for x in (*times.values(), in_products)),
                f"{env_steps / times['whole'] * 1e6:,.0f}",
            ]
        )
        rate, alone_rate = flop / times["update"] / 1e3, flop / in_products / 1e3
        rates.append(
            [
                name,
                f"{flop / 1e6:,.1f}",
                *(f"{x:,.0f}" for x in (rate, alone_rate, best)),
                f"{rate / best:.0%}",
            ]
        )
        shapes = {
            f"{left} {right} {axes}": (counted[left, right, axes], alone[left, right, axes].seconds)
            for left, right, axes in alone
        }
        records[name] = {
            "seconds": {part: item.seconds for part, item in loops.items()},
            "products": shapes,
            "squares": {n: item.seconds for n, item in squares.items()},
            "operations": flop,
        }
        print(f"{name} is done", file=sys.stderr)
        for item in squares.values():
            item.seconds.clear()
    print(
        markdown(["µs per training step", *times, "products in the update", "env steps/s"], rows),
        end="\n\n",
    )
    heads = [
        "",
        "Mflop per update",
        "update, Gflop/s",
        "its products alone",
        "best square product",
        "update ÷ best",
    ]
    print(markdown(heads, rates), end="\n\n")
    write(
        "limits",
        when,
        args.output,
        rounds=args.rounds,
        versions=versions("rlkit", "jax", "jaxlib"),
        tasks=records,
    )


if __name__ == "__main__":
    main()
