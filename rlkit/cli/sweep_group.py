"""`rlkit sweep-group`: trains one group of a sweep, for a launcher that started this process."""

import dataclasses
import os
import sys
import threading
from collections.abc import Sequence
from typing import Annotated

import tyro
from annotated_types import Ge

from rlkit.cli import flags, own_env
from rlkit.cli.running import StopSignals, pin_threads
from rlkit.errors import require
from rlkit.training.directories import SWEEP
from rlkit.training.sweeps.directory import holds_sweep, read_sweep
from rlkit.training.sweeps.stores.store import open_store

COMMAND = "rlkit sweep-group"
EXAMPLES = f"""examples:
  {COMMAND} runs/my-sweep 12      the group of trial 12
  {COMMAND} runs/my-sweep --plan"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepGroupFlags:
    """Trains one group of the sweep in RUN_DIR: the trials that share a program with TRIAL.

    `rlkit sweep --launcher ray` and `slurm` start it, on several machines at once. It begins the
    group, continues it from its checkpoint, or finds it done. The sweep itself goes on by
    `rlkit resume RUN_DIR`, which collects the results.
    """

    run_dir: flags.RunDir
    """Directory or address of the sweep."""
    trial: Annotated[
        Annotated[int, Ge(0)] | None,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="TRIAL"),
    ] = None
    """Number of a trial of the group."""
    plan: bool = False
    """Find out which trials share a program, write that down, and train nothing."""
    with_parent: bool = False
    """End when standard input ends, which a launcher holds open as long as it lives."""
    env: str | None = None
    """The environment of the runs again, if it is your own class (module:Class):
    rlkit never imports code that is named in a file.
    """


def run(arguments: Sequence[str]) -> int:
    """Trains the group and returns the exit code."""
    chosen = flags.parse(SweepGroupFlags, arguments, command=COMMAND, epilogue=EXAMPLES)
    flags.validate(chosen, SweepGroupFlags)
    require(
        holds_sweep(chosen.run_dir),
        f"{chosen.run_dir} holds no sweep",
        f"name a directory with a {SWEEP}",
    )
    require(
        (chosen.trial is None) == chosen.plan,
        "it trains the group of one trial" if chosen.trial is None else "--plan trains nothing",
        f"use `{COMMAND} {chosen.run_dir} 0`, or --plan alone",
    )
    config = read_sweep(open_store(chosen.run_dir))
    own_env.check_run(config.run.env.id, typed=chosen.env, run_dir=chosen.run_dir)
    if config.run.trainer.deterministic:
        pin_threads()
    if chosen.with_parent:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    own_env.register(chosen.env)
    if chosen.trial is None:
        from rlkit.training.sweeps.group_process import plan_batch

        plan_batch(chosen.run_dir)
        return 0
    return _train(chosen.run_dir, chosen.trial)


def _train(run_dir: str, trial: int) -> int:
    from rlkit.training.compile.compilation_cache import enable_compilation_cache
    from rlkit.training.sweeps.group_process import train_group

    with StopSignals() as signals:
        enable_compilation_cache()
        train_group(run_dir, trial, watch=signals.watch, say=_say)
    return signals.exit_code()


def _say(text: str) -> None:
    print(text, flush=True)  # somebody reads the file meanwhile


def _end_with_parent() -> None:
    """Ends this process at once when the one that started it has ended, however it did.

    Nobody waits for what it does, and another process may be about to continue its group.
    """
    while os.read(0, 4096):
        pass
    print("rlkit: ended, since the process that started it has", file=sys.stderr, flush=True)
    os._exit(1)
