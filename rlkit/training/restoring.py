"""What a run takes over from a checkpoint: state, progress and plan; and when it must not."""

import dataclasses
from typing import Any

from rlkit.errors import CheckpointError, RunDirectoryError, require
from rlkit.training.config import Plan, TrainerConfig, make_plan
from rlkit.training.files.checkpoint_items import from_items, to_items, without_replay
from rlkit.training.files.checkpointer import Checkpointer, Which
from rlkit.training.fingerprint import fingerprint
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


def read_run(checkpointer: Checkpointer, which: Which, shape: PyTree) -> RestoredRun:
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


def require_same_run(
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


def plan_to_go_on(config: TrainerConfig, plan: Plan, before: Plan, *, same_run: bool) -> Plan:
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


def caveats(restored: RestoredRun, *, is_compiled: bool) -> list[str]:
    """What differs from a run that was never interrupted, in sentences."""
    texts = []
    if not is_compiled:
        texts.append("environments on the host cannot be restored: their episodes start anew")
    if restored.metadata.fingerprint != fingerprint():
        texts.append(
            "resumed on other hardware, versions or settings: results agree to rounding, not bit"
            " for bit"
        )
    return texts
