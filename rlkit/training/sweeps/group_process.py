"""What a process does that trains one group of a sweep, and was started by a launcher."""

import os

from rlkit.training.sweeps.config import check
from rlkit.training.sweeps.directory import sweep_in
from rlkit.training.sweeps.launchers.protocol import Say, Watch
from rlkit.training.sweeps.plan import plan_of, planned
from rlkit.training.sweeps.running import Running
from rlkit.training.sweeps.search import batches_of
from rlkit.training.sweeps.stages import Interrupted
from rlkit.training.sweeps.standing import Standing

PATIENCE = 120.0  # seconds in which the end of a process elsewhere frees the group that it trained


def train_group(directory: str | os.PathLike[str], trial: int, *, watch: Watch, say: Say) -> bool:
    """Trains the group that has a trial up to the rung where the sweep is; False if interrupted.

    Begins it, continues it from its checkpoint, or finds it done, by what is in `directory`, where
    it leaves its results. `watch` and `say` are as in `run_sweep`. Raises `RunDirectoryError` if
    another process trains it for longer than two minutes.
    """
    files = sweep_in(directory)
    plan = plan_of(files, trial)
    group = next(group for group in plan.groups if trial in group.trials)
    with files.locked_group(group.first, say, PATIENCE) as work:
        standing = Standing(files, plan)
        rung = standing.rung
        if rung is None or group not in standing.left(rung):
            say(f"the group of trial {group.first:03d} is done")
            return True
        try:
            Running(files, plan, work, watch, say).train(rung, group)
        except Interrupted:
            return False
    return True


def plan_batch(directory: str | os.PathLike[str]) -> None:
    """Writes the plan of the batch of trials that is next, unless it is written.

    For a launcher whose own process must not touch the devices. Raises `ConfigError` if a trial
    cannot be trained.
    """
    files, first = sweep_in(directory), 0
    for changes in batches_of(check(files.config), files.results):
        plan = planned(files, changes, first)
        if Standing(files, plan).rung is not None:
            return
        first += len(changes)
