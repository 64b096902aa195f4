"""`rlkit resume`: continues a run that was stopped, or extends a finished one."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from rlkit import validation
from rlkit.cli import flags, own_env
from rlkit.cli.running import pin_threads, read_settings, train_to_end
from rlkit.training.config import PositiveInt

COMMAND = "rlkit resume"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResumeFlags:
    """Continues the run in RUN_DIR as if it had never stopped; the rows after the checkpoint are
    logged again.
    """

    run_dir: flags.RunDir
    """Directory of the run."""
    total_steps: PositiveInt | None = None
    """Environment steps to train for in all, to extend the run; None: as many as it was started
    for. Those that fill a replay buffer anew, which was not saved, come on top.
    """
    save_replay: bool | None = None
    """Save the replay buffer from now on, or do not; None: as the run was started."""
    env: str | None = None
    """The run's environment, once more, where it is a class of your own (module:Class): no file
    alone has code imported.
    """


def run(arguments: Sequence[str]) -> int:
    """Continues as `arguments` say; returns the exit code."""
    chosen = validation.validate(flags.parse(ResumeFlags, arguments, command=COMMAND))
    settings = read_settings(chosen.run_dir)
    own_env.check_run(own_env.id_in(settings), typed=chosen.env, run_dir=chosen.run_dir)
    trainer_settings = settings.get("trainer")
    if isinstance(trainer_settings, dict) and trainer_settings.get("deterministic"):
        pin_threads()
    own_env.register(chosen.env)
    return train_to_end(lambda: _reopen(chosen), run_dir=chosen.run_dir, env=chosen.env)


def _reopen(chosen: ResumeFlags) -> Any:
    from rlkit.training.from_config import reopen

    return reopen(chosen.run_dir, total_steps=chosen.total_steps, save_replay=chosen.save_replay)
