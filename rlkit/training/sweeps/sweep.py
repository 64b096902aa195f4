"""`run_sweep`: trains the trials of a sweep, and says what they reached."""

import dataclasses
import math
import os
import shutil
from pathlib import Path

from tqdm import tqdm

from rlkit.errors import RlkitError, require
from rlkit.training import run_config
from rlkit.training.processes.group import current
from rlkit.training.sweeps.config import SweepConfig, check, with_changes
from rlkit.training.sweeps.directory import SweepDirectory
from rlkit.training.sweeps.plan import plan_trials
from rlkit.training.sweeps.results import TrialResult, as_csv, ranked, table
from rlkit.training.sweeps.running import Running, Say
from rlkit.training.sweeps.search import batches_of
from rlkit.training.sweeps.stages import Watch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep as it stands, made by `run_sweep`."""

    directory: Path
    """Where it is."""
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

    def trial_directory(self, trial: int) -> Path:
        """The run directory of a trial, which `load_run` and `load_policy` read."""
        return self.directory / "trials" / f"{trial:03d}"

    def table(self) -> str:
        """The results as text, in columns."""
        return table(self.results, self.num_rungs)


def run_sweep(
    config: SweepConfig | None,
    directory: str | os.PathLike[str],
    *,
    watch: Watch = lambda trainer: None,
    say: Say = tqdm.write,
) -> Sweep:
    """Trains all trials of a sweep in `directory`; continues one that was stopped or killed.

    Trials on jittable environments that differ in numbers alone are trained together: their seeds
    are the seed axis of one program. All others, and those of a deterministic run, are runs of
    their own, one after the other. Every trial leaves a run directory, `trials/NNN`.

    Args:
        config: what is tried; None: that of the sweep in `directory`.
        directory: a new directory, or that of a sweep with the same config.
        watch: called with each trainer before it trains, to stop it by `request_stop`, for
            instance. The sweep then ends, and can be continued.
        say: prints a sentence.

    Raises `RlkitError` before anything compiles if a trial cannot be trained, or if the directory
    holds anything else.
    """
    require(
        current().count == 1,
        f"a sweep cannot be trained in {current().count} processes",
        "start a sweep with other values of the grid in each machine",
    )
    with SweepDirectory(directory, config) as files:
        config = check(files.config)
        found, first, num_rungs, is_finished = files.results.read, 0, 1, True
        for changes in batches_of(config, found):
            plan = plan_trials(config, changes, first=first, name=files.path.name)
            first, num_rungs = first + len(changes), len(plan.rungs)
            is_finished = Running(files, plan, watch, say).train()
            if not is_finished:
                break
        sweep = Sweep(
            directory=files.path,
            config=config,
            results=tuple(ranked(found())),
            num_rungs=num_rungs,
            is_finished=is_finished,
        )
        files.write_text("results.csv", as_csv(sweep.results))
        if is_finished:
            _conclude(files, sweep)
    return sweep


def _conclude(files: SweepDirectory, sweep: Sweep) -> None:
    """Writes what is only known at the end: the best settings and the picture."""
    from rlkit.training.sweeps.picture import plot_sweep

    shutil.rmtree(files.together, ignore_errors=True)
    if any(math.isfinite(result.score) for result in sweep.results):
        best = with_changes(run_config.for_another_run(sweep.config.run), sweep.best.settings)
        files.write_text("best.yaml", run_config.dump(best))
        plot_sweep(sweep.results, files.path / "results.png", title=files.title)
