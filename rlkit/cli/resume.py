"""`rlkit resume`: continues a stopped run or sweep, or extends a finished run."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Ge

from rlkit import validation
from rlkit.algorithms.registry import ALGORITHMS
from rlkit.cli import flags, launcher_flags, own_env, sweep, train_flags
from rlkit.cli.launcher_flags import LauncherFlags
from rlkit.cli.process_flags import ProcessFlags, join_processes
from rlkit.cli.running import check_run_dir, pin_threads, train_to_end
from rlkit.errors import require
from rlkit.training.config import Shard, TrainerConfig
from rlkit.training.directories import is_address
from rlkit.training.run_config import read_settings, require_longer
from rlkit.training.sweeps.directory import holds_sweep
from rlkit.validation import LargeCount, PositiveInt

if TYPE_CHECKING:
    from rlkit.training.trainer import Trainer

COMMAND = "rlkit resume"
EXAMPLES = f"""examples:
  {COMMAND} runs/mine                          where it stopped
  {COMMAND} runs/mine --total-steps 2M         beyond its end
  {COMMAND} runs/mine --devices 8               on other devices
  {COMMAND} runs/mine --checkpoint best --into runs/branch
  {COMMAND} runs/my-sweep                      the trials that are left
  {COMMAND} runs/my-sweep --launcher ray       on a Ray cluster"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResumeFlags:
    """Continues the run in RUN_DIR as if it had never stopped, or branches off a new one.

    Rows that were logged after its last checkpoint are logged again.
    """

    run_dir: flags.RunDir
    """Directory of the run, or directory or address of a sweep."""
    total_steps: LargeCount | None = None
    """Total environment steps, to extend the run; None: as when it was started.
    Steps that refill an unsaved replay buffer are not counted.
    """
    save_replay: bool | None = None
    """Save the replay buffer from now on, or not; None: as when the run was started."""
    devices: PositiveInt | None = None
    """Devices to go on with; None: as when the run was started.
    On others, the learner is the same, and random numbers are new.
    """
    shard: Shard | None = None
    """What several devices share: data, seeds or both; None: as when the run was started."""
    checkpoint: Annotated[int, Ge(0)] | Literal["latest", "best"] = "latest"
    """Where to continue from: a step, latest or best. All but the latest need --into."""
    into: str | None = None
    """Directory of a new run that continues from there; RUN_DIR stays as it is."""
    outside: tuple[str, ...] = ()
    """Places outside of RUN_DIR that its config.yaml may name, for logs or checkpoints:
    rlkit never writes to, or deletes, what only a file names.
    """
    accept_differences: bool = False
    """Continue although config.yaml was changed, or a deterministic run is on another machine."""
    debug: bool | None = None
    """Show a progress bar, in a terminal or a notebook; None: as when the run was started."""
    where: LauncherFlags = dataclasses.field(default_factory=LauncherFlags)
    """Where a sweep is trained."""
    env: str | None = None
    """The run's environment again, if it is your own class (module:Class):
    rlkit never imports code that is named in a file.
    """
    processes: ProcessFlags = dataclasses.field(default_factory=ProcessFlags)
    """Processes to go on with."""


def _of_new_runs() -> dict[str, list[str]]:
    """Who has the flags of `rlkit train`: a run that begins.

    Those of the algorithm have another way to change them here, since no shape follows from most.
    """
    new = "a run that begins (`rlkit train ... --warm-start RUN_DIR` begins with a policy)"
    edited = f"{new}; to change it here, edit config.yaml and add --accept-differences"
    known = {flag: [new] for flag in train_flags.owners()}
    for kind in (train_flags.RunFlags, TrainerConfig):
        known |= {flag: [new] for flag in flags.flags(kind)}
    for entry in ALGORITHMS.values():
        known |= {flag: [edited] for flag in flags.flags(entry.config)}
    return known


def run(arguments: Sequence[str]) -> int:
    """Resumes the run and returns the exit code."""
    arguments = flags.joined(arguments, launcher_flags.LISTS)
    chosen = flags.parse(
        ResumeFlags, arguments, command=COMMAND, epilogue=EXAMPLES, elsewhere=_of_new_runs
    )
    flags.validate(chosen, ResumeFlags)
    if holds_sweep(chosen.run_dir):
        return _resume_sweep(chosen)
    require(
        not is_address(chosen.run_dir),
        f"{chosen.run_dir} holds no sweep, and no runs are at addresses",
        "name the address of a sweep, or a directory",
    )
    require(
        chosen.where == LauncherFlags(),
        f"{chosen.run_dir} holds no sweep, and a run has no groups for a launcher",
        "leave out its flags",
    )
    settings = read_settings(chosen.run_dir)
    own_env.check_run(own_env.id_in(settings), typed=chosen.env, run_dir=chosen.run_dir)
    trainer = validation.from_dict(TrainerConfig, settings["trainer"])
    if chosen.total_steps is not None:
        require_longer(chosen.total_steps, trainer.total_steps)
    require(
        chosen.checkpoint == "latest" or chosen.into is not None,
        f"a run continues from its latest checkpoint only, not from {chosen.checkpoint}",
        "add --into with the directory of a new run",
    )
    is_main = _join(chosen, deterministic=trainer.deterministic)
    if chosen.into is not None and is_main:
        new = dataclasses.replace(trainer, run_dir=chosen.into, restore_checkpoint=None)
        check_run_dir(new, "--into")
    own_env.register(chosen.env)
    run_dir = chosen.into or chosen.run_dir
    return train_to_end(lambda: _reopen(chosen), run_dir=run_dir, env=chosen.env)


def _join(chosen: ResumeFlags, *, deterministic: bool) -> bool:
    """Joins the other processes, if there are any; whether this is the main one."""
    if deterministic:
        pin_threads()
    return join_processes(chosen.processes)


def _resume_sweep(chosen: ResumeFlags) -> int:
    allowed = ResumeFlags(run_dir=chosen.run_dir, where=chosen.where, env=chosen.env)
    require(
        chosen == allowed,
        f"{chosen.run_dir} holds a sweep, which continues with its own settings",
        f"leave out the other flags, or resume one of its trials ({chosen.run_dir}/trials/000)",
    )
    return sweep.resume(chosen.run_dir, chosen.env, chosen.where)


def _reopen(chosen: ResumeFlags) -> "Trainer":
    from rlkit.training.from_config import reopen, require_unfinished

    if chosen.into is not None:
        require_unfinished(chosen.run_dir, chosen.checkpoint, chosen.total_steps)
    return reopen(
        chosen.run_dir,
        total_steps=chosen.total_steps,
        save_replay=chosen.save_replay,
        devices=chosen.devices,
        shard=chosen.shard,
        debug=chosen.debug,
        which=chosen.checkpoint,
        into=chosen.into,
        accept_differences=chosen.accept_differences,
        outside=chosen.outside,
    )
