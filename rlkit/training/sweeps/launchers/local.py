"""`LocalLauncher`: trains one group after the other in this process."""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rlkit.training.sweeps.directory import SweepFiles
from rlkit.training.sweeps.launchers.protocol import Say, Session, Watch
from rlkit.training.sweeps.plan import Plan, planned
from rlkit.training.sweeps.running import Running
from rlkit.training.sweeps.shapes import Group
from rlkit.training.sweeps.stages import Interrupted
from rlkit.validation import PlainData


@dataclasses.dataclass(frozen=True)
class LocalLauncher:
    """Trains one group after the other in this process, on its devices."""

    @contextmanager
    def open(self, files: SweepFiles, watch: Watch, say: Say) -> Iterator[Session]:
        """See `Launcher`."""
        yield _LocalSession(files, watch, say)


@dataclasses.dataclass(frozen=True)
class _LocalSession:
    files: SweepFiles
    watch: Watch
    say: Say

    def plan(self, changes: Sequence[PlainData], first: int) -> Plan:
        return planned(self.files, changes, first)

    def train(self, plan: Plan, rung: int, groups: Sequence[Group]) -> bool:
        for group in groups:
            try:
                with self.files.locked_group(group.first, self.say) as work:
                    Running(self.files, plan, work, self.watch, self.say).train(rung, group)
            except Interrupted:
                return False
            self.files.collect()
        return True
