"""What a launcher is: it plans batches of trials, and trains groups of them somewhere."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from rlkit.training.sweeps.directory import SweepFiles
from rlkit.training.sweeps.launchers.fleet import Fleet
from rlkit.training.sweeps.plan import Plan
from rlkit.training.sweeps.shapes import Group
from rlkit.validation import PlainData

if TYPE_CHECKING:
    from rlkit.training.trainer import Trainer

Say = Callable[[str], None]
Watch = Callable[["Trainer | Fleet"], None]
"""Called with what is about to train, which a signal may ask to stop."""


class Session(Protocol):
    """A launcher at work on the sweep in a directory."""

    def plan(self, changes: Sequence[PlainData], first: int) -> Plan | None:
        """The plan of a batch of trials that make these changes, numbered from `first` on.

        None if it was asked to stop. Raises `ConfigError` if a trial cannot be trained.
        """
        ...

    def train(self, plan: Plan, rung: int, groups: Sequence[Group]) -> bool:
        """Trains these groups up to a rung; whether they are there, and not just asked to stop.

        Raises `RlkitError` about those that cannot be trained, once the others are.
        """
        ...


class Launcher(Protocol):
    """Where a sweep is trained. What it reaches does not depend on it, only the time it takes.

    Each group is trained by one process at a time, which begins, continues or skips it by what is
    in the sweep's directory: `rlkit.training.sweeps.group_process`.
    """

    def open(self, files: SweepFiles, watch: Watch, say: Say) -> AbstractContextManager[Session]:
        """Makes ready to train a sweep whose lock this process holds.

        `watch` and `say` are as in `run_sweep`. Raises `RlkitError` if it cannot.
        """
        ...
