"""What logging, evaluation and checkpoints cost: the same training with and without them.

    python benchmarks/overhead.py [--num-updates 28000] [--rounds 5]

PPO on CartPole, 4 x 128, in ten outer iterations, alternating, without compile time:

- "loop": the compiled outer iteration called ten times, and nothing else;
- "run": `Trainer.run` with a run directory, the console and WandB offline, an evaluation of 16
  episodes (deterministic, and again with sampled actions) and a checkpoint before the first and
  after each outer iteration, until everything is on disk. What does not grow with the run, such as
  starting WandB, is in it: a short run has more of it.

Prints a Markdown table and writes the raw record to benchmarks/results/.
"""

import argparse
import contextlib
import dataclasses
import io
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax

import rlkit
from common import versions
from records import add_output, add_rounds, in_turns, markdown, now, with_spread, write
from rlkit_parts import parts
from tasks import TASKS

OUTER, EPISODES = 10, 16


def make_trainer(num_updates: int, run_dir: Path | None) -> rlkit.Trainer:
    """A Trainer with everything that a run can have or, without a directory, nothing."""
    task = dataclasses.replace(TASKS["cartpole-4x128"], num_updates=num_updates)
    env, agent, algorithm = parts(task)
    with_all = run_dir is not None
    config = rlkit.TrainerConfig(
        num_checkpoints=OUTER,
        epochs_per_checkpoint=num_updates // OUTER,
        enable_evaluation=with_all,
        evaluation_episodes=EPISODES,
        debug=False,
        run_dir=str(run_dir) if with_all else None,
        logger_config=rlkit.LoggerConfig(console=with_all, wandb="offline" if with_all else None),
    )
    return rlkit.Trainer(env, None, agent, algorithm, config)


def loop(num_updates: int, seed: int) -> float:
    """Seconds of ten outer iterations alone."""
    trainer = make_trainer(num_updates, None)
    state = trainer.init(seed)
    outer = trainer.program.outer
    jax.block_until_ready(state)
    compiled, start = trainer.compiler.seconds, time.perf_counter()
    for _ in range(OUTER):
        state, metrics = outer(state)
    jax.block_until_ready((state, metrics))
    return time.perf_counter() - start - (trainer.compiler.seconds - compiled)


def run(num_updates: int, seed: int) -> float:
    """Seconds of a complete run, from its start to its summary."""
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()):
        os.environ["WANDB_SILENT"] = "true"
        trainer = make_trainer(num_updates, Path(directory) / "run")
        jax.block_until_ready(trainer.init(seed))
        compiled, start = trainer.compiler.seconds, time.perf_counter()
        trainer.run()
        trainer.close()
        return time.perf_counter() - start - (trainer.compiler.seconds - compiled)


MODES: dict[str, Callable[[int, int], float]] = {"loop": loop, "run": run}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--num-updates", type=int, default=28_000, help="rollouts in total; about a minute"
    )
    add_rounds(parser)
    add_output(parser)
    args = parser.parse_args()
    if args.num_updates < OUTER or args.num_updates % OUTER:
        parser.error(
            f"--num-updates {args.num_updates} is not divisible by {OUTER} outer iterations; use"
            " 28000"
        )
    when = now()
    seconds: dict[str, list[float]] = {name: [] for name in MODES}
    with (
        tempfile.TemporaryDirectory() as cache
    ):  # otherwise each run would compile its programs again
        jax.config.update("jax_compilation_cache_dir", cache)
        for name in MODES:
            MODES[name](OUTER * 10, 0)
        for number, name in in_turns(list(MODES), args.rounds):
            seconds[name].append(MODES[name](args.num_updates, number))
            print(f"round {number}, {name}: {seconds[name][-1]:.1f} s", file=sys.stderr)
    steps = args.num_updates * TASKS["cartpole-4x128"].num_envs * TASKS["cartpole-4x128"].num_steps
    added = [
        with_all / alone - 1
        for alone, with_all in zip(seconds["loop"], seconds["run"], strict=True)
    ]
    rows = [
        [name, with_spread(times, 1), with_spread([steps / x for x in times])]
        for name, times in seconds.items()
    ]
    print(markdown(["", "seconds (min–max)", "env steps/s"], rows))
    print(
        f"overhead: {statistics.median(added):.1%} (median of the rounds), {min(added):.1%} to"
        f" {max(added):.1%}"
    )
    write(
        "overhead",
        when,
        args.output,
        num_updates=args.num_updates,
        outer_iterations=OUTER,
        evaluation_episodes=EPISODES,
        versions=versions("rlkit", "jax", "jaxlib", "orbax-checkpoint", "wandb"),
        seconds=seconds,
    )


if __name__ == "__main__":
    main()
