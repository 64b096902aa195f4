"""`rlkit resume`: continues a run that was stopped, or extends a finished one."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from rlkit import validation
from rlkit.cli import flags
from rlkit.cli.running import pin_threads, read_settings, train_to_end
from rlkit.training.config import PositiveInt

COMMAND = "rlkit resume"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResumeFlags:
    """Continues the run in RUN_DIR as if it had never stopped; the rows after the checkpoint are logged again."""

    run_dir: flags.RunDir
    """Directory of the run."""
    total_steps: PositiveInt | None = None
    """Environment steps to train for in all, to extend the run; None: as many as it was started for."""


def run(arguments: Sequence[str]) -> int:
    """Continues as `arguments` say; returns the exit code."""
    chosen = validation.validate(flags.parse(ResumeFlags, arguments, command=COMMAND))
    trainer_settings = read_settings(chosen.run_dir).get("trainer")
    if isinstance(trainer_settings, dict) and trainer_settings.get("deterministic"):
        pin_threads()
    return train_to_end(lambda: _reopen(chosen), run_dir=chosen.run_dir)


def _reopen(chosen: ResumeFlags) -> Any:
    from rlkit.training.building import reopen

    return reopen(chosen.run_dir, total_steps=chosen.total_steps)
