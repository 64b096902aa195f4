"""What `train` and `resume` share: the compilation cache, signals, the report at the end."""

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from rlkit.cli import own_env
from rlkit.cli.report import report
from rlkit.errors import ConfigError, RunDirectoryError, require
from rlkit.training.config import TrainerConfig
from rlkit.training.files import run_directory

if TYPE_CHECKING:
    from rlkit.training.trainer import Trainer


def pin_threads() -> None:
    """One CPU thread, without which equal runs may differ in the last bits. JAX reads the variable
    when it starts.

    Raises `ConfigError` where JAX has been imported already.
    """
    cure = "start the run by the command `rlkit`, or with NPROC=1 in the environment"
    require(
        "jax" not in sys.modules or os.environ.get("NPROC") == "1",
        "deterministic comes too late: JAX is imported",
        cure,
    )
    os.environ["NPROC"] = "1"


def check_run_dir(config: TrainerConfig) -> None:
    """Raises what the trainer would say to the run directory of `config`, but at once; creates and
    locks nothing.
    """
    assert config.run_dir is not None
    path, is_run = run_directory.inspect(config.run_dir)
    cure = f"go on with `rlkit resume {config.run_dir}`, or choose another --run-dir"
    fresh = config.restore_checkpoint is None
    require(not (is_run and fresh), f"{path} already holds a run", cure, RunDirectoryError)
    cure = "name the --run-dir of a run, or leave out --restore-checkpoint"
    require(
        is_run or fresh or config.restore_checkpoint == "auto",
        f"{path} holds no run",
        cure,
        RunDirectoryError,
    )


def train_to_end(
    make_trainer: Callable[[], "Trainer"],
    *,
    run_dir: str,
    env: str | None = None,
    seed: int | None = None,
) -> int:
    """Trains until the run is over or a signal asks to stop, reports, and returns the exit code.

    `env` is the id of the environment where the user typed one. `seed` None: go on.
    """
    from rlkit.training.compile.compilation_cache import enable_compilation_cache

    with StopSignals() as signals:
        enable_compilation_cache()
        with make_trainer() as trainer:
            signals.trainer = trainer
            history = trainer.run(seed)
        print(report(history, run_dir, own_env.flag(env)))
    if signals.received is None:
        return 0
    again = f"rlkit resume {run_dir}{own_env.flag(env)}"
    print(
        f"rlkit: stopped by {signals.received.name}, all saved; go on with `{again}`",
        file=sys.stderr,
    )
    return 128 + signals.received


class StopSignals:
    """While open, the first SIGTERM or SIGINT lets the trainer finish its outer iteration, save and
    return.

    The second one ends the process at once; so does the first while there is no trainer, hence
    nothing to save. A signal that the process ignores (as background jobs of a shell do with
    SIGINT) stays ignored.
    """

    def __init__(self) -> None:
        self.trainer: Trainer | None = None
        self.received: signal.Signals | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
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
        said = (
            f"\nrlkit: {self.received.name}: finishing this outer iteration, then saving; once more"
            " ends at once\n"
        )
        os.write(
            2, said.encode()
        )  # print is not safe here: the signal may have come in the middle of another one


def read_settings(run_dir: str) -> dict[str, Any]:
    """The settings in the config.yaml of a run, unchecked. Raises `ConfigError` where there is no
    run. Imports no JAX.
    """
    from rlkit.training.run_config import read_yaml

    path = os.path.join(run_dir, "config.yaml")
    require(
        os.path.isfile(path),
        f"{run_dir} holds no run",
        "name a directory with a config.yaml, as `rlkit train` makes them",
    )
    settings = read_yaml(path)
    if not isinstance(settings, dict):
        raise ConfigError(f"{path} holds no settings; put back the file that `rlkit train` wrote")
    return settings
