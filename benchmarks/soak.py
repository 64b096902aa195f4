"""What a long run leaves in memory: its slope, threads, files and compilations.

    python benchmarks/soak.py [--saves 1000] [--rounds 3]

PPO on CartPole, 16 environments, in outer iterations of 5,120 environment steps, each evaluated,
logged (metrics.jsonl and metrics.csv) and saved, so about 195 times in a million steps:

- "rlkit": `Trainer.run` in a run directory;
- "orbax": Orbax alone, which saves the arrays and texts of such a checkpoint as often. It keeps
  some kilobytes for each save, so whoever saves with it does.

Each contender is a process of its own. The slope is a least-squares line through its resident
memory after the first third. Prints a Markdown table and writes the raw record to
benchmarks/results/; `--part NAME DIRECTORY` is what the processes run.
"""

import argparse
import gc
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.monitoring
import numpy as np
import orbax.checkpoint as ocp
import psutil
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, LatestN

import rlkit
from common import versions
from records import add_output, add_rounds, in_turns, markdown, now, with_spread, write
from rlkit.training.run_config import from_dict

STEPS = 5_120  # environment steps of an outer iteration
EVERY = 10  # saves from one sample to the next
COMPILED = "/jax/core/compile/backend_compile_duration"
CONTENDERS = ("rlkit", "orbax")


class Samples:
    """Resident memory, Python objects, threads and open files of this process, now and then."""

    def __init__(self, saves: int):
        self._process, self._begin = psutil.Process(), saves // 3
        self.rows: list[dict[str, int]] = []
        self.compilations = 0  # after the first third
        jax.monitoring.register_event_duration_secs_listener(self._count)

    def take(self, save: int) -> None:
        """Notes how things stand after so many saves."""
        if save < self._begin or save % EVERY:
            return
        self.rows.append(
            {
                "save": save,
                "bytes": self._process.memory_info().rss,
                "objects": len(gc.get_objects()),
                "threads": self._process.num_threads(),
                "files": self._process.num_fds(),
            }
        )

    def _count(self, event: str, *_: Any, **__: Any) -> None:
        self.compilations += event == COMPILED and bool(self.rows)


class Sampling(rlkit.Callback):
    """Takes a sample after each outer iteration."""

    def __init__(self, samples: Samples):
        self._samples = samples

    def on_iteration_end(self, trainer: rlkit.Trainer, iteration: int, metrics: Any) -> None:
        self._samples.take(iteration)


def make_trainer(saves: int, run_dir: Path, callbacks: list[rlkit.Callback]) -> rlkit.Trainer:
    """A run with so many checkpoints."""
    trainer = {
        "num_checkpoints": saves,
        "epochs_per_checkpoint": STEPS // (16 * 64),
        "evaluation_episodes": 16,
        "run_dir": str(run_dir),
        "logger_config": {"console": False, "csv": True},
    }
    settings = {
        "algorithm": "ppo",
        "env": {"id": "gymnax/CartPole-v1", "num_envs": 16},
        "hyperparameters": {"num_steps": 64},
        "trainer": trainer,
    }
    return rlkit.build(from_dict(settings), callbacks=callbacks)


def soak_rlkit(saves: int, directory: Path, samples: Samples) -> None:
    """Trains and saves."""
    with make_trainer(saves, directory / "run", [Sampling(samples)]) as trainer:
        trainer.run(0)


def soak_orbax(saves: int, directory: Path, samples: Samples) -> None:
    """Saves again and again what a checkpoint of rlkit holds."""
    with make_trainer(1, directory / "run", []) as trainer:
        trainer.run(0)
    checkpoint = directory / "run" / "checkpoints" / "1"
    content: dict[str, Any] = {}
    reader = ocp.StandardCheckpointer()
    for item in sorted(path for path in checkpoint.iterdir() if path.is_dir()):
        text = item / "metadata"
        if text.is_file():
            content[item.name] = ocp.args.JsonSave(json.loads(text.read_text()))
        else:
            content[item.name] = ocp.args.StandardSave(
                jax.tree.map(np.asarray, reader.restore(item))
            )
    reader.close()
    options = ocp.CheckpointManagerOptions(preservation_policy=AnyPreservationPolicy([LatestN(2)]))
    with ocp.CheckpointManager(directory / "bare", options=options) as manager:
        for save in range(1, saves + 1):
            manager.wait_until_finished()
            manager.save(save, args=ocp.args.Composite(**content))
            samples.take(save)


def run_part(name: str, saves: int, directory: Path) -> None:
    """What a process of a contender does; prints its samples as JSON."""
    samples = Samples(saves)
    {"rlkit": soak_rlkit, "orbax": soak_orbax}[name](saves, directory, samples)
    print(json.dumps({"rows": samples.rows, "compilations": samples.compilations}))


def measure(name: str, saves: int) -> dict[str, Any]:
    """Runs a contender in a process of its own; its samples, with the slope."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, "--part", name, directory, "--saves", str(saves)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=3600)
    found = json.loads(done.stdout.splitlines()[-1])
    at, used = (np.array([row[key] for row in found["rows"]], float) for key in ("save", "bytes"))
    per_save = float(np.polyfit(at, used, 1)[0])
    return found | {
        "kilobytes_per_save": per_save / 1e3,
        "megabytes_per_million_steps": per_save / STEPS,
    }


def row(name: str, found: list[dict[str, Any]]) -> tuple[str, ...]:
    """A contender's row of the table."""

    def growth(key: str) -> str:
        return str(max(one["rows"][-1][key] - one["rows"][0][key] for one in found))

    return (
        name,
        with_spread([one["kilobytes_per_save"] for one in found], 1),
        with_spread([one["megabytes_per_million_steps"] for one in found], 2),
        growth("objects"),
        growth("threads"),
        growth("files"),
        str(max(one["compilations"] for one in found)),
    )


def main() -> None:
    """Command line; see the module docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--saves", type=int, default=1_000, help="outer iterations, each saved")
    add_rounds(parser, "processes of each contender")
    parser.set_defaults(rounds=3)
    add_output(parser)
    parser.add_argument("--part", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.saves < 6 * EVERY:
        parser.error(f"{options.saves} saves give no slope; use at least {6 * EVERY}")
    if options.part:
        run_part(options.part[0], options.saves, Path(options.part[1]))
        return
    when = now()
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTENDERS}
    for number, name in in_turns(CONTENDERS, options.rounds):
        found[name].append(measure(name, options.saves))
        slope = found[name][-1]["megabytes_per_million_steps"]
        print(f"round {number}, {name}: {slope:.2f} MB per million steps", file=sys.stderr)
    heads = ("", "kB per save", "MB per 10⁶ steps", "objects", "threads", "files", "compilations")
    print(markdown(heads, [row(name, found[name]) for name in CONTENDERS]))
    ours, bare = (
        statistics.median(one["megabytes_per_million_steps"] for one in found[name])
        for name in CONTENDERS
    )
    print(f"\nbeyond Orbax alone: {ours - bare:.2f} MB per million steps")
    write(
        "soak",
        when,
        options.output,
        versions=versions(),
        settings={"saves": options.saves, "steps_per_save": STEPS},
        megabytes_beyond_orbax=ours - bare,
        contenders=found,
    )


if __name__ == "__main__":
    main()
