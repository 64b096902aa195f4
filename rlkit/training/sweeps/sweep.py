"""`run_sweep`: trains the trials of a sweep, and says what they reached."""

import collections
import dataclasses
import math
import os
from pathlib import Path

from tqdm import tqdm

from rlkit.errors import RlkitError, require
from rlkit.training import run_config
from rlkit.training.processes.group import current
from rlkit.training.sweeps.config import SweepConfig, check, with_changes
from rlkit.training.sweeps.directory import TOGETHER, SweepFiles, locked_sweep
from rlkit.training.sweeps.launchers.local import LocalLauncher
from rlkit.training.sweeps.launchers.protocol import Launcher, Say, Session, Watch
from rlkit.training.sweeps.plan import Plan
from rlkit.training.sweeps.results import TrialResult, as_csv, ranked, table
from rlkit.training.sweeps.search import batches_of
from rlkit.training.sweeps.standing import Standing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep as it stands, made by `run_sweep`."""

    directory: Path | str
    """Where it is: a path, or an address."""
    config: SweepConfig
    """What it tries."""
    results: tuple[TrialResult, ...]
    """What the trials reached, the best one first; those that were stopped early come last."""
    num_rungs: int
    """How many rungs there are; 1 without successive halving."""
    is_finished: bool
    """Whether all trials are trained; False if it was asked to stop."""

    @property
    def best(self) -> TrialResult:
        """The best trial. Raises `RlkitError` if there is none with a score."""
        found = [result for result in self.results if math.isfinite(result.score)]
        require(
            bool(found),
            "no trial of this sweep has a score",
            "see the failures in results.csv",
            RlkitError,
        )
        return found[0]

    def trial_directory(self, trial: int) -> Path | str:
        """The run directory of a trial, which `load_run` and `load_policy` read."""
        name = SweepFiles.trial(trial)
        where = self.directory
        return f"{where}/{name}" if isinstance(where, str) else where / name

    def table(self) -> str:
        """The results as text, in columns."""
        return table(self.results, self.num_rungs)


def run_sweep(
    config: SweepConfig | None,
    directory: str | os.PathLike[str],
    *,
    launcher: Launcher | None = None,
    watch: Watch = lambda running: None,
    say: Say = tqdm.write,
) -> Sweep:
    """Trains all trials of a sweep in `directory`; continues one that was stopped or killed.

    Trials on jittable environments that differ in numbers alone are trained together: their seeds
    are the seed axis of one program. All others, and those of a deterministic run, are runs of
    their own, one after the other. Every trial leaves a run directory, `trials/NNN`.

    Args:
        config: what is tried; None: that of the sweep in `directory`.
        directory: a new directory, or that of a sweep with the same config. Or an address, such as
            s3://bucket/my-sweep, if its package (s3fs) is installed.
        launcher: where groups of trials are trained, such as `RayLauncher()`; None: in this
            process, one after the other. A sweep may be continued by another one.
        watch: called with each trainer before it trains, or once with the groups that a launcher
            trains elsewhere, to stop them by `request_stop`, for instance. The sweep then ends, and
            can be continued.
        say: prints a sentence.

    Raises `RlkitError` before anything compiles if a trial cannot be trained, or if the directory
    holds anything else; and when all others are trained, about groups that a launcher gave up.
    """
    require(
        current().count == 1,
        f"a sweep cannot be trained in {current().count} processes",
        "start a sweep with other values of the grid in each machine",
    )
    launcher = launcher or LocalLauncher()
    config = None if config is None else check(config)
    with locked_sweep(directory, config) as files:
        config = files.config  # given or read, it is checked
        first, num_rungs, is_finished = 0, 1, True
        with launcher.open(files, watch, say) as session:
            for changes in batches_of(config, files.results):
                plan = session.plan(changes, first)
                is_finished = plan is not None and _train(files, plan, session, say)
                if plan is None or not is_finished:
                    break
                first, num_rungs = first + len(changes), len(plan.rungs)
        sweep = Sweep(
            directory=files.place,
            config=config,
            results=tuple(ranked(files.results())),
            num_rungs=num_rungs,
            is_finished=is_finished,
        )
        if sweep.results:
            files.store.write("results.csv", as_csv(sweep.results))
        if is_finished:
            _conclude(files, sweep)
    return sweep


def _train(files: SweepFiles, plan: Plan, session: Session, say: Say) -> bool:
    """Trains what is left of a plan, rung by rung; returns whether all is done."""
    _announce(plan, say)
    files.collect()  # what was done without this process
    count = len(plan.rungs)
    for rung in range(count):
        left = Standing(files, plan).left(rung)
        if left and not session.train(plan, rung, left):
            return False
        if rung + 1 < count:
            standing = Standing(files, plan)
            before, after = len(standing.alive(rung)), len(standing.alive(rung + 1))
            say(f"rung {rung + 1} of {count}: {after} of {before} trials go on")
    return True


def _announce(plan: Plan, say: Say) -> None:
    joint = [group for group in plan.groups if len(group.trials) > 1]
    alone = len(plan.groups) - len(joint)
    sizes = collections.Counter(len(group.trials) for group in joint)
    parts = [_told(number, size) for size, number in sizes.items()]
    parts += [f"{alone} {'trial' if alone == 1 else 'trials'} one by one"] if alone else []
    seeds = plan.config.run.trainer.num_seeds
    say(
        f"sweep: {len(plan.configs)} trials x {seeds} {'seed' if seeds == 1 else 'seeds'}:"
        f" {', '.join(parts)}"
    )


def _told(number: int, size: int) -> str:
    """So many programs with so many trials each."""
    return f"{size} trials in one program" if number == 1 else f"{number} programs of {size} trials"


def _conclude(files: SweepFiles, sweep: Sweep) -> None:
    """Writes what is only known at the end: the best settings and the picture."""
    from rlkit.training.sweeps.picture import plot_sweep

    files.store.remove(TOGETHER)
    if any(math.isfinite(result.score) for result in sweep.results):
        best = with_changes(run_config.for_another_run(sweep.config.run), sweep.best.settings)
        files.store.write("best.yaml", run_config.dump(best))
        with files.store.writing("results.png") as path:
            plot_sweep(sweep.results, path, title=files.title)
