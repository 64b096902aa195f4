"""What a run takes over from a checkpoint: state, progress and plan; and when it must not."""

import dataclasses
from typing import Any

from rlkit.errors import CheckpointError, RunDirectoryError, require
from rlkit.training.config import Plan, TrainerConfig, make_plan
from rlkit.training.files.checkpoint_items import from_items, to_items, without_replay
from rlkit.training.files.checkpointer import Checkpointer, Which
from rlkit.training.files.run_files import RunFiles
from rlkit.training.fingerprint import fingerprint
from rlkit.training.run import Run
from rlkit.training.run_progress import CheckpointMetadata, Parent, RunProgress
from rlkit.types import PyTree


@dataclasses.dataclass(frozen=True, kw_only=True)
class RestoredRun:
    """A checkpoint that the Trainer saved, read and verified."""

    directory: str
    step: int
    state: PyTree
    metadata: CheckpointMetadata
    damaged: tuple[int, ...]  # newer steps, which were passed over

    @property
    def progress(self) -> RunProgress:
        """The progress of the run that goes on."""
        return self.metadata.progress

    @property
    def branch(self) -> RunProgress:
        """The progress of another run that goes on from here."""
        parent = Parent(directory=self.directory, step=self.step)
        return dataclasses.replace(self.progress, wall_seconds=0.0, parent=parent)


def begin_or_restore(run: Run, files: RunFiles) -> RestoredRun | None:
    """Lets `run` begin, or take over a checkpoint of its own as `config.restore_checkpoint` says;
    returns what was read, None: it begins, and has no state yet.

    Raises `RlkitError` where it cannot: no key was given, or the files hold another run.
    """
    which = _which_to_restore(run, files.checkpointer)
    if files.checkpointer is not None and which is not None:
        restored = restore(run, files.checkpointer, which, same_run=True)
        _resume_files(run, files, restored)
        return restored
    run.begin(RunProgress.start(run.plan, seed=run.progress.seed, keys=run.progress.keys))
    if run.config.restore_checkpoint is not None:
        # "auto": a run that was cut before its first checkpoint may have left rows
        files.logger.restore({})
    return None


def restore(run: Run, checkpointer: Checkpointer, which: Which, *, same_run: bool) -> RestoredRun:
    """Lets `run` take over a checkpoint, of its own or of another run; returns what was read.

    Raises `RlkitError`, before anything is changed, where it must not.
    """
    restored = _read_run(checkpointer, which, run.program.state_shape(run.compiler.keys(0)))
    before, own = restored.metadata.plan, run.progress
    if same_run:
        _require_same_run(restored, checkpointer, own.keys)
    run.use_plan(_plan_to_go_on(run.config, run.plan, before, same_run=same_run))
    run.begin(restored.progress if same_run else restored.branch)
    if same_run and own.keys is not None:
        run.progress = dataclasses.replace(run.progress, seed=own.seed)
    run.state = restored.state
    if run.has_replay(run.state):  # else a refill starts it
        run.state = run.program.restart(run.state)
    if run.plan.total_steps != before.total_steps:
        run.set_horizon()
    return restored


def caveats(run: Run, restored: RestoredRun) -> list[str]:
    """What differs from a run that was never interrupted, in sentences."""
    texts = []
    if not run.parts.is_compiled:
        texts.append("environments on the host cannot be restored: their episodes start anew")
    if restored.metadata.fingerprint != fingerprint():
        texts.append(
            "resumed on other hardware, versions or settings: results agree to rounding, not bit"
            " for bit"
        )
    return texts


def _which_to_restore(run: Run, checkpointer: Checkpointer | None) -> Which | None:
    """The checkpoint that a run starts from, None: it begins."""
    which = run.config.restore_checkpoint
    latest = None if checkpointer is None else checkpointer.latest_step()
    if checkpointer is not None and which is not None and (which != "auto" or latest is not None):
        return "latest" if which == "auto" else which
    require(
        run.keys is not None,
        "this run has no checkpoint yet, and its key is not known",
        "start it again from its own script",
        CheckpointError,
    )
    require(
        latest is None,
        f"there are checkpoints of another run already (up to step {latest})",
        'choose another directory, or set restore_checkpoint="auto" to go on',
        CheckpointError,
    )
    return None


def _read_run(checkpointer: Checkpointer, which: Which, shape: PyTree) -> RestoredRun:
    """Reads a checkpoint of a state like `shape`; without a replay memory if it was left out."""
    directory = str(checkpointer.directory)

    def items(metadata: dict[str, Any]) -> dict[str, PyTree]:
        whole = CheckpointMetadata.from_metadata(metadata, directory).replay
        saved = to_items(shape if whole else without_replay(shape))
        return {name: item for name, item in saved.items() if name != "policy"}  # is in `learner`

    restored = checkpointer.restore(which, items)
    return RestoredRun(
        directory=directory,
        step=restored.step,
        state=from_items(restored.items, shape),
        metadata=CheckpointMetadata.from_metadata(restored.metadata, directory),
        damaged=tuple(step for step, _ in restored.skipped),
    )


def _require_same_run(
    restored: RestoredRun, checkpointer: Checkpointer, keys: list[Any] | None
) -> None:
    """Raises `RlkitError` unless the run that was started from `keys` (None: any) may go on from
    there, in its own run directory.
    """
    require(
        keys is None or keys == restored.progress.keys,
        "this run was started from another key or seed",
        "pass the same one, or None to go on from whichever it was",
        RunDirectoryError,
    )
    steps = set(checkpointer.all_steps()) - set(restored.damaged)
    newest = max(steps, default=restored.step)
    require(
        newest <= restored.step,
        f"step {restored.step} is older than the latest, {newest}: "
        "going on from it would overwrite what followed",
        "use a new run_dir, and load_checkpoint(old_run_dir, step) before run()",
        CheckpointError,
    )


def _plan_to_go_on(config: TrainerConfig, plan: Plan, before: Plan, *, same_run: bool) -> Plan:
    """The plan of a run that goes on from a checkpoint of a run with the plan `before`: outer
    iterations of the same size, more of them if it is longer.

    Raises `ConfigError` where the same run would become shorter.
    """
    if before.epochs_per_checkpoint != plan.epochs_per_checkpoint:
        config = dataclasses.replace(
            config,
            total_steps=config.total_steps or plan.total_steps,
            num_checkpoints=None,
            epochs_per_checkpoint=before.epochs_per_checkpoint,
        )
        plan = make_plan(
            config,
            env_steps_per_iteration=plan.env_steps_per_iteration,
            prefill_steps=plan.prefill_steps,
        )
    require(
        plan.total_steps >= before.total_steps or not same_run,
        f"total_steps={plan.total_steps} is less than the {before.total_steps} of the run",
        "give a larger one to extend it",
    )
    return plan


def _resume_files(run: Run, files: RunFiles, restored: RestoredRun) -> None:
    """Goes on with the run's own files, as they were at the checkpoint; damaged steps are set
    aside.
    """
    if run.plan.total_steps > restored.metadata.plan.total_steps:
        files.extend(run.plan)
    for step in restored.damaged:
        if files.checkpointer is not None:
            files.checkpointer.set_aside(step)
    files.logger.restore(restored.metadata.logger)
    run.has_started = True
    run.saved_iteration = restored.step
