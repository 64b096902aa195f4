"""Shared by `train` and `resume`: run-directory checks, compilation cache, signals, report."""

import os
import shlex
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from rlkit.cli import own_env
from rlkit.cli.closing_words import closing_words
from rlkit.errors import RunDirectoryError, require
from rlkit.training.config import TrainerConfig
from rlkit.training.files import run_directory
from rlkit.training.logs.human_units import human_seconds
from rlkit.training.run_config import places_outside
from rlkit.training.sweeps.launchers.fleet import Fleet

if TYPE_CHECKING:
    from rlkit.training.trainer import Trainer


def pin_threads() -> None:
    """Limits JAX to one CPU thread; with more, equal runs may differ in the last bits.

    Raises `ConfigError` if JAX was already imported, since it reads the variable at start.
    """
    fix = "start the run with the `rlkit` command, or with NPROC=1 in the environment"
    require(
        "jax" not in sys.modules or os.environ.get("NPROC") == "1",
        "deterministic was set too late: JAX is already imported",
        fix,
    )
    os.environ["NPROC"] = "1"


def check_run_dir(config: TrainerConfig, flag: str = "--run-dir") -> None:
    """Raises the trainer's errors about the run directory early; creates and locks nothing.

    `flag` is the one that named it.
    """
    assert config.run_dir is not None
    path, is_run = run_directory.inspect(config.run_dir)
    typed = shlex.quote(config.run_dir)
    fix = f"continue it with `rlkit resume {typed}`, or choose another {flag}"
    fresh = config.restore_checkpoint is None
    is_taken = is_run and fresh and run_directory.has_begun(path)
    require(not is_taken, f"{path} already holds a run", fix, RunDirectoryError)
    fix = "set --run-dir to a run, or leave out --restore-checkpoint"
    require(
        is_run or fresh or config.restore_checkpoint == "auto",
        f"{path} does not contain a run",
        fix,
        RunDirectoryError,
    )


def train_to_end(
    make_trainer: Callable[[], "Trainer"],
    *,
    run_dir: str,
    env: str | None = None,
    seed: int | None = None,
) -> int:
    """Trains until the run ends or a signal stops it, prints a report, and returns the exit code.

    `env` is the environment id that the user typed, if any. `seed=None` continues a run.
    """
    from rlkit.training.compile.compilation_cache import enable_compilation_cache
    from rlkit.training.processes.group import current

    with StopSignals() as signals:
        enable_compilation_cache()
        with make_trainer() as trainer:
            signals.trainer = trainer
            history = trainer.run(seed)
        signals.received = signals.received or _signal_in(trainer.stop_reason)
        if current().is_main:
            outside = list(places_outside(trainer.config, run_dir).values())
            own, is_stopped = own_env.flag(env), signals.received is not None
            print(closing_words(history, run_dir, own, outside=outside, is_stopped=is_stopped))
    return signals.exit_code()


def _signal_in(stop_reason: str | None) -> signal.Signals | None:
    """The signal that stopped a run, also if another process got it; None: none did."""
    return signal.Signals.__members__.get(stop_reason or "")


class StopSignals:
    """Lets the trainer finish its outer iteration and save on the first SIGTERM, SIGINT or SIGHUP.

    Or all trainers of a fleet. The second signal ends the process immediately. So does the first if
    there is no trainer yet, since there is nothing to save. Signals that the process ignores (as
    background jobs of a shell do with SIGINT, and `nohup` with SIGHUP) stay ignored.
    """

    def __init__(self) -> None:
        self.trainer: Trainer | Fleet | None = None
        self.received: signal.Signals | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        for each in self._previous:
            signal.signal(each, signal.SIG_DFL)
        if self.trainer is None:
            signal.raise_signal(number)
            return
        self.received = signal.Signals(number)
        self.trainer.request_stop(self.received.name)
        what = _in_progress(self.trainer)
        message = (
            f"\nrlkit: {self.received.name}: finishing {what} and saving; send it"
            " again to quit at once, as of the last checkpoint\n"
        )
        # `print` is not reentrant: the signal may interrupt another print.
        os.write(2, message.encode())

    def watch(self, running: "Trainer | Fleet") -> None:
        """Lets signals stop what is about to train; raises `Interrupted` after one."""
        from rlkit.training.sweeps.stages import Interrupted

        if self.received is not None:
            raise Interrupted
        self.trainer = running

    def exit_code(self) -> int:
        """The exit code of the command; says so if a signal stopped it."""
        if self.received is None:
            return 0
        print(f"rlkit: stopped by {self.received.name}; everything is saved", file=sys.stderr)
        return 128 + self.received


def _in_progress(running: "Trainer | Fleet") -> str:
    """What a stop waits for."""
    if isinstance(running, Fleet):
        return "the outer iterations of all groups"
    count, seconds = running.max_in_progress, running.iteration_seconds
    what = "this outer iteration" if count == 1 else f"up to {count} outer iterations"
    size = f"{count * running.plan.steps_per_checkpoint:,} environment steps"
    longest = 0.0 if seconds is None else count * seconds
    lasts = f", up to {human_seconds(longest)}" if longest >= 1 else ""
    return f"{what} ({size}{lasts})"
