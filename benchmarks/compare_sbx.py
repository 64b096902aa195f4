"""Compares how well rlkit and SBX learn MuJoCo tasks off policy: same settings, same machine.

    RLKIT_PEERS=<directory> python benchmarks/compare_sbx.py [TASK ...]

Both train at the same time, on one core each. Prints a Markdown table per task and writes all
evaluations to benchmarks/results/. rlkit runs its preset, cut to the steps of the task; SBX gets
the same settings. README.md explains how to set up SBX.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from records import HERE, add_output, markdown, now, write


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """What both contenders train.

    Evaluations are deterministic, over whole episodes, at the same environment steps.
    """

    algorithm: str
    env: str
    seeds: int
    settings: dict[str, Any]
    """rlkit's preset as keyword arguments for SBX."""
    hidden: tuple[int, ...] = (256, 256)
    total_steps: int = 100_000
    evaluations: int = 10
    evaluation_episodes: int = 10

    @property
    def evaluated_at(self) -> list[int]:
        """Environment steps of the evaluations: one before learning, the others evenly spaced."""
        prefill = self.settings["learning_starts"]
        return [
            prefill + part * (self.total_steps - prefill) // self.evaluations
            for part in range(self.evaluations + 1)
        ]


SETTINGS = {
    "learning_rate": 3e-4,
    "buffer_size": 1_000_000,
    "learning_starts": 10_000,
    "batch_size": 256,
    "tau": 0.005,
    "gamma": 0.99,
    "train_freq": 1,
    "gradient_steps": 1,
}
TASKS = {
    "sac-halfcheetah": Task(algorithm="sac", env="HalfCheetah-v5", seeds=2, settings=SETTINGS),
    "sac-hopper": Task(algorithm="sac", env="Hopper-v5", seeds=2, settings=SETTINGS),
    "td3-halfcheetah": Task(
        algorithm="td3",
        env="HalfCheetah-v5",
        seeds=1,
        settings=SETTINGS | {"policy_delay": 2, "exploration_noise": 0.1},
    ),
}

Curves = list[list[list[float]]]
"""For each seed, the (environment steps, mean return) of each evaluation."""


def learn_rlkit(task: Task) -> Curves:
    """Runs all seeds in one run of the command line."""
    with tempfile.TemporaryDirectory() as directory:
        run_dir = Path(directory) / "run"
        arguments = {
            "total-steps": task.total_steps,
            "num-checkpoints": task.evaluations,
            "num-seeds": task.seeds,
            "evaluation-episodes": task.evaluation_episodes,
            "checkpoint-every": task.evaluations,
            "run-dir": run_dir,
        }
        flags = [text for name, value in arguments.items() for text in (f"--{name}", str(value))]
        command = [
            str(Path(sys.executable).with_name("rlkit")),
            "train",
            task.algorithm,
            f"gymnasium/{task.env}",
            *flags,
        ]
        _run(command, core=0)
        rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    evaluations = [row for row in rows if "eval/avg_return" in row.get("metrics", {})]
    per_seed = (
        [[row for row in evaluations if row.get("seed") == seed] for seed in range(task.seeds)]
        if task.seeds > 1
        else [evaluations]
    )
    return [
        [[row["env_steps"], row["metrics"]["eval/avg_return"]] for row in rows] for rows in per_seed
    ]


def learn_sbx(task: Task) -> Curves:
    """Runs the seeds one after the other."""
    python = Path(os.environ["RLKIT_PEERS"]) / "venv-sbx/bin/python"
    given = json.dumps(dataclasses.asdict(task) | {"evaluated_at": task.evaluated_at})
    curves = []
    for seed in range(task.seeds):
        output = _run(
            [str(python), str(HERE / "drivers/sbx_learning.py"), given, str(seed)], core=1
        )
        line = next(line for line in output.splitlines() if line.startswith("RESULT "))
        curves.append(json.loads(line.removeprefix("RESULT ")))
    return curves


def _run(command: list[str], core: int) -> str:
    """The output of a process on one core; its errors go to stderr."""
    cores = sorted(os.sched_getaffinity(0))

    def pin() -> None:
        os.sched_setaffinity(0, {cores[core % len(cores)]})

    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        command, check=True, env=environment, stdout=subprocess.PIPE, text=True, preexec_fn=pin
    ).stdout


def table(name: str, task: Task, curves: dict[str, Curves]) -> str:
    """Mean return at the end and over the second half of the evaluations, with each seed."""
    rows = []
    for contender, seeds in curves.items():
        last = [curve[-1][1] for curve in seeds]
        half = [
            statistics.fmean(value for _, value in curve[-(task.evaluations // 2) :])
            for curve in seeds
        ]
        each = ", ".join(f"{value:.0f}" for value in last)
        rows.append(
            [contender, f"{statistics.fmean(last):.0f} ({each})", f"{statistics.fmean(half):.0f}"]
        )
    title = (
        f"{name}: {task.algorithm}, {task.env}, {task.total_steps:,} steps, {task.seeds} seed(s)"
    )
    heads = ["", "return at the end (each seed)", "mean of the last half"]
    return f"### {title}\n\n{markdown(heads, rows)}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Compares how well rlkit and SBX learn MuJoCo tasks off policy."
    )
    parser.add_argument(
        "tasks", nargs="*", metavar="TASK", help=f"{', '.join(TASKS)}; default: all"
    )
    parser.add_argument("--total-steps", type=int, help="instead of the tasks' own settings")
    add_output(parser)
    args = parser.parse_args()
    if unknown := set(args.tasks) - TASKS.keys():
        parser.error(f"unknown task {', '.join(sorted(unknown))}; choose one of {', '.join(TASKS)}")
    if not (Path(os.environ.get("RLKIT_PEERS", "/nonexistent")) / "venv-sbx/bin/python").exists():
        parser.error(
            "SBX is missing: RLKIT_PEERS must name a directory with venv-sbx (see"
            " benchmarks/README.md)"
        )
    for name in args.tasks or TASKS:
        task = TASKS[name]
        if args.total_steps:
            task = dataclasses.replace(task, total_steps=args.total_steps)
        if (task.total_steps - task.settings["learning_starts"]) % task.evaluations or len(
            set(task.evaluated_at)
        ) == 1:
            parser.error(
                f"the steps after the {task.settings['learning_starts']} random ones must be"
                f" divisible by {task.evaluations}"
            )
        when = now()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            running = {"rlkit": pool.submit(learn_rlkit, task), "sbx": pool.submit(learn_sbx, task)}
            curves = {contender: future.result() for contender, future in running.items()}
        for contender, seeds in curves.items():
            if any([steps for steps, _ in curve] != task.evaluated_at for curve in seeds):
                raise SystemExit(f"{contender} was not evaluated at {task.evaluated_at}: {seeds}")
        print(table(name, task, curves), end="\n\n", flush=True)
        task_fields = dataclasses.asdict(task)
        write(f"compare-sbx-{name}", when, args.output, task=task_fields, curves=curves)
    return 0


if __name__ == "__main__":
    sys.exit(main())
