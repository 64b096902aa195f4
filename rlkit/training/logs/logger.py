"""What receives the records of a run: every `Logger`; and its results at the end: a `Publisher`."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from rlkit.training.logs.records import Record
from rlkit.validation import PlainData


@runtime_checkable
class Logger(Protocol):
    """Receives the records of one run, in order, from one thread of one process.

    A resumed run calls `restore` before its first `log`, before or after `start`. `restore({})`
    means that the run starts over, because it was interrupted before its first checkpoint.
    """

    def log(self, record: Record, /) -> None:
        """Logs one record."""
        ...

    def start(self, run_info: PlainData, /) -> None:
        """Receives the config as plain data; called once, before the first `log`."""
        ...

    def state(self) -> PlainData:
        """Plain JSON data that `restore` needs to continue from here; stored in each checkpoint."""
        ...

    def restore(self, state: PlainData, /) -> None:
        """Goes back to `state`: rows that an interrupted run logged after it are logged again."""
        ...

    def flush(self) -> None:
        """Returns once all rows are safe from a crash."""
        ...

    def close(self) -> None:
        """Closes the log; nothing is called after it."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run leaves on disk, complete, when it ends."""

    curve: Path | None
    """The picture of its learning curve; None: there is nothing to plot."""
    export_policy: Callable[[Path], PlainData] | None
    """Writes its policy to an empty directory, from which `load_policy` loads it, and returns the
    step, environment steps and return of its checkpoint. None: there is no checkpoint.
    """


@runtime_checkable
class VideoLogger(Protocol):
    """A logger that also shows videos of the policy."""

    def log_video(self, path: Path, seed: int, /) -> None:
        """Shows a complete video of a seed (its index), at the steps of the newest record."""
        ...


@runtime_checkable
class Publisher(Protocol):
    """A logger that also gets the results of a run."""

    def publish(self, outcome: Outcome, /) -> None:
        """Called at the end of each call of `Trainer.run` that trained."""
        ...
