"""`SweepFiles`: what the files of a sweep are, and who may write them. No JAX."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rlkit.errors import RlkitError, RunDirectoryError, require
from rlkit.training.directories import SWEEP
from rlkit.training.logs.loaded_run import LOCK, SUMMARY
from rlkit.training.run_config import yaml_in
from rlkit.training.sweeps.config import SweepConfig, dump, from_dict, to_dict
from rlkit.training.sweeps.results import Results, TrialResult, from_rows, to_rows
from rlkit.training.sweeps.stores.store import ID, Hold, SweepStore, Workplace, open_store

RESULTS = "results.jsonl"
TOGETHER = "together"  # the folder of what groups leave until the sweep is finished
TRIALS = "trials"


def holds_sweep(path: str | os.PathLike[str]) -> bool:
    """Whether a directory, or an address, is that of a sweep.

    Raises `RlkitError` for an address that cannot be looked at.
    """
    return open_store(path).has(SWEEP)


class SweepFiles:
    """What the files of a sweep are.

    sweep.yaml has its settings, results.jsonl a row for each trial and rung, and `trials` the run
    directories of the trials. `together` is what groups of trials leave until the sweep is
    finished: their plan, the run directories of programs that train several, their results. Each
    of these files is written by one process, that of a group or that of the sweep, so that groups
    may be trained on several machines. A group is named by the number of its first trial.
    """

    def __init__(self, store: SweepStore, config: SweepConfig, hold: Hold | None = None):
        self.store, self.config = store, config
        self._hold = hold  # of the process of the sweep
        self._complete: set[int] = set()  # trials that once were; they stay so

    @property
    def place(self) -> Path | str:
        """Where they are: a path, or an address."""
        return self.store.place

    @property
    def title(self) -> str:
        """What is trained, for a picture."""
        run = self.config.run
        return f"{run.algorithm} on {run.env.id}"

    @staticmethod
    def plan(first: int) -> str:
        """The plan of a batch of trials, by the number of the first one."""
        return f"{TOGETHER}/plan-{first:03d}.json"

    @staticmethod
    def joint(rung: int, group: int) -> str:
        """The run directory of the program that trains a group up to a rung."""
        return f"{TOGETHER}/rung-{rung}-group-{group}"

    @staticmethod
    def log(group: int) -> str:
        """What the process of a group said, if it has one of its own."""
        return f"{TOGETHER}/group-{group}.log"

    @staticmethod
    def trial(trial: int) -> str:
        """The run directory of a trial."""
        return f"{TRIALS}/{trial:03d}"

    def has_trial(self, trial: int) -> bool:
        """Whether the run directory of a trial is complete."""
        if trial not in self._complete and self.store.has(f"{self.trial(trial)}/{SUMMARY}"):
            self._complete.add(trial)
        return trial in self._complete

    def is_split(self, group: int) -> bool:
        """Whether the trials of a group are trained one by one, since they failed together."""
        return self.store.has(f"{TOGETHER}/group-{group}-one-by-one")

    def split(self, group: int) -> None:
        """From now on, the trials of a group are trained one by one."""
        self.store.write(f"{TOGETHER}/group-{group}-one-by-one", "")

    def has_plan(self, first: int) -> bool:
        """Whether the batch of trials from `first` on is planned."""
        return self.store.has(self.plan(first))

    def planned_firsts(self) -> list[int]:
        """The first trial of each batch that is planned."""
        names = [name for name in self.store.names(TOGETHER) if name.startswith("plan-")]
        return sorted(int(name[5:-5]) for name in names if name.endswith(".json"))

    def results(self) -> Results:
        """What all trials reached, by (rung, trial), as far as groups have said."""
        found = self._collected()
        for name in self.store.names(TOGETHER):
            if name.startswith("group-") and name.endswith(".jsonl"):
                found |= from_rows(self.store.read(f"{TOGETHER}/{name}") or "")
        return {place: found[place] for place in sorted(found)}

    def add_results(self, group: int, results: Sequence[TrialResult]) -> None:
        """Writes what trials of a group reached; its process alone may."""
        name = f"{TOGETHER}/group-{group}.jsonl"
        before = from_rows(self.store.read(name) or "")
        self.store.write(name, to_rows([*before.values(), *results]))

    def collect(self) -> None:
        """Writes the results of all groups to results.jsonl; the process of the sweep alone may."""
        if self._hold is not None:
            self._hold.require_ours()
        found = self.results()
        if found != self._collected():
            self.store.write(RESULTS, to_rows(list(found.values())))

    def _collected(self) -> Results:
        return from_rows(self.store.read(RESULTS) or "")

    @contextlib.contextmanager
    def locked_group(
        self, group: int, say: Callable[[str], None], patience: float = 0.0
    ) -> Iterator[Workplace]:
        """Where this process, and it alone, trains the group.

        Waits up to `patience` seconds for another one that has it, then raises
        `RunDirectoryError`.
        """
        part, what = f"{TOGETHER}/group-{group}", f"the group of trial {group} in {self.place}"
        with (
            self.store.hold(part, what, patience) as hold,
            self.store.workplace(part, hold, say) as work,
        ):
            yield work


def sweep_in(path: str | os.PathLike[str]) -> SweepFiles:
    """The sweep in a directory, for a process that trains one of its groups.

    Raises `RunDirectoryError` if there is none.
    """
    store = open_store(path)
    return SweepFiles(store, read_sweep(store))


def read_sweep(store: SweepStore) -> SweepConfig:
    """What the sweep in a store tries. Raises `RunDirectoryError` if there is none."""
    text = store.read(SWEEP)
    _require_sweep(store, text is not None)
    assert text is not None
    return from_dict(yaml_in(text, f"{store.place}/{SWEEP}"))


@contextlib.contextmanager
def locked_sweep(path: str | os.PathLike[str], config: SweepConfig | None) -> Iterator[SweepFiles]:
    """The sweep in a directory, which is made if there is none; this process alone plans it.

    `config` is what it tries; None: what its file says. Raises `RunDirectoryError` if the directory
    holds another sweep or anything else, or is in use, or if there is no sweep to continue. A new
    one in which an `RlkitError` comes before any training is removed.
    """
    store = open_store(path)
    _is_begun(store, is_new=config is not None)
    with store.hold("", str(store.place)) as hold:
        # again: another process may have been there while this one waited
        held = _is_begun(store, is_new=config is not None)
        try:
            if held:
                files = SweepFiles(store, read_sweep(store), hold)
                require(
                    config is None or to_dict(config) == to_dict(files.config),
                    f"{store.place} holds a sweep with other settings",
                    "choose another directory, or continue it with `rlkit resume`",
                    RunDirectoryError,
                )
            else:
                assert config is not None
                files = SweepFiles(store, config, hold)
                store.write(SWEEP, dump(config))
            yield files
        except RlkitError:
            if not held:
                with contextlib.suppress(RlkitError):  # the error before says more
                    _forget_start(store)
            raise


def _is_begun(store: SweepStore, *, is_new: bool) -> bool:
    """Whether a store holds a sweep; one that is new may begin where there is nothing else."""
    held = store.has(SWEEP)
    _require_sweep(store, held or is_new)
    own = (LOCK, ".owner", ".tmp-")  # what a start that came to nothing leaves
    foreign = [] if held else [name for name in store.names() if not name.startswith(own)]
    require(
        not foreign and not (isinstance(store.place, Path) and store.place.is_file()),
        f"{store.place} already exists, and holds no sweep",
        "choose a new or empty directory",
        RunDirectoryError,
    )
    return held


def _forget_start(store: SweepStore) -> None:
    """Removes a sweep that ended before it trained anything, so that it can be started again."""
    names = [*store.names(), *store.names(TOGETHER)]
    begun = [name for name in names if name.startswith(("results", "rung-", "trial-"))]
    begun += [name for name in names if name.endswith(ID)]  # a machine may have what it trained
    if not begun and not store.names(TRIALS):
        for name in (SWEEP, TRIALS, TOGETHER):
            store.remove(name)


def _require_sweep(store: SweepStore, is_there: bool) -> None:
    require(
        is_there,
        f"{store.place} holds no sweep",
        f"name a directory with a {SWEEP}, or start one with `rlkit sweep`",
        RunDirectoryError,
    )
