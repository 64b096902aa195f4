"""Commands that use a trained policy: which one, the checks of that, and loading it."""

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Literal

from rlkit import validation
from rlkit.cli import flags, own_env
from rlkit.errors import CheckpointError, require
from rlkit.training.config import TrainerConfig
from rlkit.training.run_config import Seed, read_settings, require_seed
from rlkit.validation import Count

if TYPE_CHECKING:
    from rlkit.training.policy import Policy


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyFlags:
    """Which policy of a run."""

    run_dir: flags.RunDir
    """Directory of the run."""
    checkpoint: Count | Literal["latest", "best"] | None = None
    """Which policy: best, latest or the step of a checkpoint.
    None: the best one, or the latest if the run was never evaluated.
    """
    seed_index: Count | None = None
    """Which of several parallel seeds, counted from 0; None: the best one."""
    env: str | None = None
    """The run's environment again, if it is your own class (module:Class):
    rlkit never imports code that is named in a file.
    """
    accept_differences: bool = False
    """Use the settings of config.yaml even if the checkpoint was trained with others."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlayFlags(PolicyFlags):
    """Which policy plays, and which episodes."""

    seed: Seed | None = None
    """Seed of the episodes; None: fixed episodes that differ from those during training."""


def check(chosen: PolicyFlags) -> None:
    """Raises the errors of `load` that can be known without importing JAX."""
    flags.validate(chosen, type(chosen))
    settings = read_settings(chosen.run_dir)
    own_env.check_run(own_env.id_in(settings), typed=chosen.env, run_dir=chosen.run_dir)
    config = validation.from_dict(TrainerConfig, settings["trainer"])
    require_seed(chosen.seed_index, config.num_seeds)
    _check_step(chosen.checkpoint, chosen.run_dir, config)


def load(chosen: PolicyFlags) -> "Policy":
    """The policy, in a process that compiles as training does."""
    own_env.register(chosen.env)
    from rlkit.training.compile.compilation_cache import enable_compilation_cache
    from rlkit.training.policy import load_policy
    from rlkit.xla_cpu import enable

    enable_compilation_cache()
    enable()
    return load_policy(
        chosen.run_dir,
        which=chosen.checkpoint,
        seed_index=chosen.seed_index,
        accept_differences=chosen.accept_differences,
    )


def _check_step(step: object, run_dir: str, config: TrainerConfig) -> None:
    """Raises the error of `load_policy` about a checkpoint early."""
    directory = pathlib.Path(config.checkpoint_directory(run_dir))
    if isinstance(step, int) and directory.is_dir():
        names = (path.name for path in directory.iterdir())
        steps = sorted(int(name) for name in names if name.isdecimal())
        listed = ", ".join(map(str, steps)) or "none"
        known = f"its steps are: {listed}"
        require(step in steps, f"{directory} has no step {step}", known, CheckpointError)
