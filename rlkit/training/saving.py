"""What a run saves in a checkpoint: its state and `CheckpointMetadata`; see `restoring`."""

import dataclasses
import math
from collections.abc import Sequence

from rlkit.training.files.checkpoint_items import to_items, without_replay
from rlkit.training.files.checkpoint_metadata import CheckpointMetadata
from rlkit.training.files.checkpointer import Checkpointer
from rlkit.training.files.run_files import RunFiles
from rlkit.training.fingerprint import fingerprint, versions
from rlkit.training.finite_checks import require_finite
from rlkit.training.run import Run
from rlkit.types import PyTree, TrainState
from rlkit.validation import PlainData


def save(
    run: Run,
    files: RunFiles,
    checkpointer: Checkpointer,
    iteration: int,
    state: PyTree,
    *,
    score: float | None,
    seed_scores: Sequence[float] | None,
    description: PlainData,
    callbacks: PlainData,
) -> str:
    """Saves `state`, which is that of `run` after `iteration` outer iterations.

    `iteration` may be lower than the current one. `checkpointer` may be that of `files` or another.
    `callbacks` are the states of the run's callbacks. Returns why environments on the host are not
    saved, "" if they are. Raises `NonFiniteError` for a state with NaN.
    """
    require_finite(state, iteration, run.last_saved)
    state = without_replay(state) if run.leaves_out_replay(checkpointer) else state
    environments, why_not = run.environments(state)
    whole = run.gathered(state)
    learner = state.learner if isinstance(state, TrainState) else None
    progress = dataclasses.replace(
        run.progress,
        outer_iteration=iteration,
        env_steps=run.steps_at(iteration),
        updates=run.progress.updates if learner is None else learner.updates.to_int(),
        wall_seconds=run.wall_seconds,
    )
    metadata = CheckpointMetadata(
        progress=progress,
        plan=run.plan,
        num_seeds=run.config.num_seeds,
        devices_per_seed=run.devices_per_seed,
        seed_shares=run.seed_shares,
        processes=run.processes.count,
        normalize_observations=learner is not None and learner.obs_stats is not None,
        logger=files.logger.state(),
        description=description,
        fingerprint=fingerprint(),
        versions=versions(),
        callbacks=callbacks,
        environments=None if environments is None else len(environments),
        replay=run.has_replay(state),
        has_started=run.has_started,
        health=run.health,
        metrics={name: x for name, x in run.metrics.items() if math.isfinite(x)},
    )
    checkpointer.save(
        iteration,
        to_items(whole, environments),
        score=score,
        seed_scores=seed_scores,
        metadata=metadata.to_metadata(),
    )
    if checkpointer is files.checkpointer:
        run.saved_iteration = iteration
    return why_not
