"""`Standing`: what is left of a plan, as what its groups left on disk says. Touches no device."""

from collections.abc import Sequence

from rlkit.training.sweeps.directory import SweepFiles
from rlkit.training.sweeps.plan import Plan
from rlkit.training.sweeps.results import TrialResult
from rlkit.training.sweeps.shapes import Group


class Standing:
    """Who is trained up to each rung, and which groups have anything to do.

    Every process that looks sees the same, whoever trained what.
    """

    def __init__(self, files: SweepFiles, plan: Plan):
        self._files, self._plan, self._results = files, plan, files.results()
        self._alive = [list(plan.configs)]  # by rung, as far as somebody asked

    @property
    def rung(self) -> int | None:
        """The rung that is being trained; None: all of them are done."""
        return next((rung for rung in range(len(self._plan.rungs)) if self.left(rung)), None)

    def alive(self, rung: int) -> list[int]:
        """The trials that are trained up to a rung, once all rungs before are done."""
        while len(self._alive) <= rung:
            reached = [self._results[len(self._alive) - 1, trial] for trial in self._alive[-1]]
            self._alive.append(kept(reached, self._plan.config.halving or 1))
        return self._alive[rung]

    def members(self, rung: int, group: Group) -> list[int]:
        """Those of a group."""
        alive = self.alive(rung)
        return [trial for trial in group.trials if trial in alive]

    def left(self, rung: int) -> list[Group]:
        """The groups that have anything to do for a rung, once all rungs before are done."""
        return [
            group
            for group in self._plan.groups
            if self.untrained(rung, group) or any(self.unwritten(rung, group))
        ]

    def untrained(self, rung: int, group: Group) -> list[int]:
        """The trials of a group that have yet to reach a rung."""
        members = self.members(rung, group)
        return [trial for trial in members if (rung, trial) not in self._results]

    def unwritten(self, rung: int, group: Group) -> tuple[list[int], list[int]]:
        """The trials of a group without run directories, which its processes write.

        First those that the rung before was the last for, then those at the end of training. Trials
        that are trained one by one are runs from the beginning.
        """
        if not group.traced or self._is_split(group):
            return [], []
        before = self.members(rung - 1, group) if rung > 0 else []
        members = self.members(rung, group)
        is_last = rung + 1 == len(self._plan.rungs)
        ended = [trial for trial in before if trial not in members]
        return self._missing(ended), self._missing(members if is_last else [])

    def _is_split(self, group: Group) -> bool:
        """Whether its trials are trained one by one; only such trials are recorded as failed.

        The file that marks it is gone once the sweep is done.
        """
        failed = (trial for (_, trial), found in self._results.items() if found.failure is not None)
        return self._files.is_split(group.first) or any(trial in group.trials for trial in failed)

    def _missing(self, trials: Sequence[int]) -> list[int]:
        return [trial for trial in trials if not self._files.has_trial(trial)]


def kept(results: Sequence[TrialResult], factor: int) -> list[int]:
    """The best trials, one in `factor`, in the order of their numbers."""
    count = max(len(results) // factor, 1)
    sound = [found for found in results if found.failure is None]
    best = sorted(sound, key=lambda found: (-found.score, found.trial))[:count]
    return sorted(found.trial for found in best)
