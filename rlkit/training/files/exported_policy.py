"""`export_policy`: a small directory with the policy of a run, which `load_policy` loads."""

import os

import numpy as np

from rlkit.errors import CheckpointError, RunDirectoryError, require
from rlkit.training.directories import absolute_path
from rlkit.training.files.checkpoint_metadata import CheckpointMetadata
from rlkit.training.files.checkpointer import Checkpointer
from rlkit.training.logs.redaction import redact
from rlkit.training.plain_yaml import dump_yaml
from rlkit.validation import PlainData


def export_policy(
    checkpointer: Checkpointer | None,
    description: PlainData,
    directory: str | os.PathLike[str],
    *,
    may_exist: bool = False,
) -> PlainData:
    """Copies the policy of the best checkpoint, or else of the latest, to a new `directory`.

    What only training needs stays behind: optimiser, environments, replay memory. `description` is
    that of the run; secrets in it are masked. `may_exist`: the directory may be there, empty.
    Returns the step and environment steps of the checkpoint, and the mean return over seeds of the
    last evaluation before it (None: there is none).

    Raises `RunDirectoryError` if the directory exists, `CheckpointError` if there is no checkpoint,
    or one without a policy; nothing is written then.
    """
    target = absolute_path(directory)
    fix = "choose another directory, or move it away"
    is_free = may_exist or not target.exists()
    require(is_free, f"{target} already exists", fix, RunDirectoryError)
    if checkpointer is None:
        raise CheckpointError("this run has no checkpoints to export from; set run_dir")
    step = checkpointer.best_step()
    step = checkpointer.latest_step() if step is None else step
    if step is None:
        raise CheckpointError(
            f"{checkpointer.directory} holds no checkpoints; train and save first"
        )
    settings = _settings(description)
    found = checkpointer.metadata(step)
    # The loggers' states hold texts of the run.
    metadata = found | {"description": settings, "logger": {}, "callbacks": {}, "replay": False}
    checkpointer.export(step, ["policy"], target / "checkpoints", metadata=metadata)
    (target / "config.yaml").write_text(dump_yaml(settings))
    progress = CheckpointMetadata.from_metadata(found, checkpointer.directory).progress
    returns = progress.seed_returns
    mean = None if returns is None or not np.isfinite(returns).all() else float(np.mean(returns))
    return {"step": step, "env_steps": progress.env_steps, "return": mean}


def _settings(description: PlainData) -> PlainData:
    """The contents of its `config.yaml`, without secrets; checkpoints are where it is."""
    settings = redact(description)
    checkpoints = (settings["trainer"]["checkpointer_config"] or {}) | {"directory": None}
    trainer = settings["trainer"] | {"checkpointer_config": checkpoints}
    return settings | {"trainer": trainer}
