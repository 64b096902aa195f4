"""A sweep beside its runs one by one: the same trials and seeds, without compile time.

    python benchmarks/sweep.py [--total-steps 100000] [--rounds 3] [--alone 8]

16 trials of PPO on CartPole with four seeds each, evaluation and checkpoints included:

- "sweep": `run_sweep`, all 64 seeds in one program, until the run directory of each trial is
  written; without compile time, and again in the training alone;
- "one by one": `--alone` of the 64 runs, drawn evenly, each by `build` with a run directory of its
  own, times 64 / `--alone`.

Prints a Markdown table and writes the raw record to benchmarks/results/.
"""

import argparse
import dataclasses
import statistics
import sys
import tempfile
import time
from pathlib import Path

import jax

import rlkit
from common import versions
from records import add_output, add_rounds, in_turns, markdown, now, with_spread, write

GRID = {"learning_rate": (1e-4, 3e-4, 1e-3, 3e-3)}
RANDOM = {"gamma": rlkit.Range(low=0.95, high=0.999)}
TRIALS, SEEDS = 16, 4


def sweep_config(total_steps: int) -> rlkit.SweepConfig:
    """The sweep; its runs print nothing."""
    run = rlkit.preset("ppo", "gymnax/CartPole-v1")
    trainer = dataclasses.replace(
        run.trainer,
        total_steps=total_steps,
        num_seeds=SEEDS,
        debug=False,
        logger_config=rlkit.LoggerConfig(console=False),
    )
    run = dataclasses.replace(run, trainer=trainer)
    return rlkit.SweepConfig(run=run, grid=GRID, random=RANDOM, trials=TRIALS)


def together(config: rlkit.SweepConfig) -> tuple[float, float, int]:
    """Seconds of the whole sweep, and of its training alone, and the number of programs."""
    trainers: list[rlkit.Trainer] = []
    with tempfile.TemporaryDirectory() as directory:
        start = time.perf_counter()
        rlkit.run_sweep(
            config, Path(directory) / "sweep", watch=trainers.append, say=lambda text: None
        )
        whole = time.perf_counter() - start
    [trainer] = trainers
    compiling = trainer.compiler.seconds
    return whole - compiling, trainer.wall_seconds - compiling, trainer.compiler.count


def one_by_one(config: rlkit.SweepConfig, count: int) -> float:
    """Seconds of the training of all runs, from `count` of them."""
    changes, seconds = config.trial_settings(), 0.0
    for index in range(count):
        place = index * TRIALS * SEEDS // count
        run = config.trial(changes[place // SEEDS])
        with tempfile.TemporaryDirectory() as directory:
            trainer_config = dataclasses.replace(
                run.trainer, num_seeds=1, run_dir=str(Path(directory) / "run")
            )
            run = dataclasses.replace(run, trainer=trainer_config)
            with rlkit.build(run) as trainer:
                trainer.run(place % SEEDS)
                seconds += trainer.wall_seconds - trainer.compiler.seconds
    return seconds * TRIALS * SEEDS / count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--total-steps", type=int, default=100_000, help="of each seed")
    parser.add_argument("--alone", type=int, default=8, help="runs that are trained one by one")
    add_rounds(parser)
    add_output(parser)
    args = parser.parse_args()
    if not 1 <= args.alone <= TRIALS * SEEDS:
        parser.error(f"--alone {args.alone} is not between 1 and {TRIALS * SEEDS}; use 8")
    when, config = now(), sweep_config(args.total_steps)
    seconds: dict[str, list[float]] = {"sweep": [], "its training": [], "one by one": []}
    programs: list[int] = []
    with tempfile.TemporaryDirectory() as cache:
        jax.config.update("jax_compilation_cache_dir", cache)
        for number, name in in_turns(["sweep", "one by one"], args.rounds):
            if name == "sweep":
                whole, training, count = together(config)
                seconds["sweep"].append(whole)
                seconds["its training"].append(training)
                programs.append(count)
            else:
                seconds["one by one"].append(one_by_one(config, args.alone))
            print(f"round {number}, {name}: {seconds[name][-1]:.1f} s", file=sys.stderr)
    rows = [
        [
            name,
            with_spread(times, 1),
            with_spread([x / y for x, y in zip(times, seconds["one by one"], strict=True)], 2),
        ]
        for name, times in seconds.items()
    ]
    print(markdown(["", "seconds (min–max)", "of one by one"], rows))
    print(f"programs of the sweep: {statistics.median(programs):g}")
    write(
        "sweep",
        when,
        args.output,
        total_steps=args.total_steps,
        trials=TRIALS,
        seeds=SEEDS,
        alone=args.alone,
        versions=versions("rlkit", "jax", "jaxlib", "orbax-checkpoint"),
        seconds=seconds,
        programs=programs,
    )


if __name__ == "__main__":
    main()
