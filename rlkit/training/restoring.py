"""What a run restores from a checkpoint: state, progress and plan; and when it must not."""

import contextlib
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from rlkit.errors import CheckpointError, EnvStateError, RunDirectoryError, require
from rlkit.training.compile.aot_compile import Compiler
from rlkit.training.compile.devices import Devices, host_device
from rlkit.training.config import Plan, TrainerConfig, make_plan
from rlkit.training.core.module import Module, RLModule
from rlkit.training.files.checkpoint_items import from_items, to_items, without_replay
from rlkit.training.files.checkpoint_metadata import CheckpointMetadata
from rlkit.training.files.checkpointer import Checkpointer, Which
from rlkit.training.files.read_once import read
from rlkit.training.files.run_description import ACCEPT, listed, require_as_recorded
from rlkit.training.files.run_files import RunFiles
from rlkit.training.fingerprint import fingerprint_differences
from rlkit.training.phase_plan import extended, phase_at
from rlkit.training.processes.group import Processes
from rlkit.training.programs.factory import make_program
from rlkit.training.programs.redivided import redivided
from rlkit.training.run import Run, RunStart
from rlkit.training.run_progress import KeyData, Parent, RunProgress
from rlkit.types import PyTree
from rlkit.validation import PlainData


@dataclasses.dataclass(frozen=True, kw_only=True)
class RestoredRun:
    """A checkpoint saved by the Trainer, read and verified."""

    directory: str
    step: int
    state: PyTree
    metadata: CheckpointMetadata
    environments: np.ndarray | None  # on the host, as bytes; None: not saved, or in the state
    damaged: tuple[int, ...]  # newer steps, which were skipped
    changed: list[str]  # settings, if that is accepted
    why_new_episodes: str = ""  # "": the environments go on where they were

    @property
    def progress(self) -> RunProgress:
        """The progress of the same run when it continues."""
        return self.metadata.progress

    @property
    def branch(self) -> RunProgress:
        """The progress of another run that continues from here."""
        parent = Parent(directory=self.directory, step=self.step)
        return dataclasses.replace(self.progress, wall_seconds=0.0, parent=parent)


def begin_or_restore(
    run: Run,
    files: RunFiles,
    start: RunStart,
    *,
    needs_key: bool = True,
    accept_differences: bool = False,
) -> RestoredRun | None:
    """Starts `run`, or restores a checkpoint of its own as `config.restore_checkpoint` says.

    `start` is what it was started from; a fresh start `needs_key` to begin with. Returns what was
    read; None if the run starts, in which case it has no state yet.

    Raises `RlkitError` if it cannot: no key was given, or the files hold another run. So does a
    checkpoint with other settings or, for a deterministic run, from another machine, unless
    `accept_differences`.
    """
    which: Any = run.processes.on_main(lambda: _which(run, files, start, needs_key=needs_key))
    if files.checkpointer is not None and which is not None:
        counts_on = run.config.restore_checkpoint != "auto"
        check = partial(
            require_continuable,
            now=files.description,
            deterministic=run.config.deterministic,
            accepted=accept_differences,
        )
        restored = restore(
            run,
            files.checkpointer,
            which,
            start=start,
            counts_on=counts_on,
            check=check,
            may_restart=accept_differences,
        )
        _resume_files(run, files, restored)
        if accept_differences:
            files.record_settings()
            files.record_length(run.plan)
        return restored
    run.use_plan(run.phases.all[0].plan)  # an earlier run may have changed its own
    run.begin(start.progress)
    if run.config.restore_checkpoint is not None:
        # "auto": a run interrupted before its first checkpoint may have left rows and a length
        files.logger.restore({})
        if accept_differences:
            files.record_settings()
        files.record_length(run.plan)
    return None


def _which(run: Run, files: RunFiles, start: RunStart, *, needs_key: bool) -> Which | None:
    """The checkpoint that a run starts from; None for a fresh start, if it may have one."""
    which = _which_to_restore(run, files.checkpointer, start, needs_key=needs_key)
    require(
        which is not None or files.checkpointer is None or not files.has_trained,
        "this run has trained before, but its checkpoints are gone",
        "put them back, or start a new run in another directory",
        CheckpointError,
    )
    return which


def restore(
    run: Run,
    checkpointer: Checkpointer,
    which: Which,
    *,
    start: RunStart | None = None,
    counts_on: bool = False,
    check: Callable[[CheckpointMetadata], list[str]] = lambda metadata: [],
    may_restart: bool = True,
) -> RestoredRun:
    """Restores `run` from a checkpoint of its own or of another run; returns what was read.

    `start` is what this run was started from; None: the checkpoint is of another run. `counts_on`:
    the setting `num_checkpoints` is the number of outer iterations from here on. `check` raises
    what speaks against a checkpoint, before its arrays are read, and returns the settings that
    differ. `may_restart`: environments on the host start new episodes if their saved states do not
    fit.

    Raises `RlkitError`, before any file is changed, if it must not.
    """
    restored = _read_run(run.processes, checkpointer, which, partial(_shape_of, run), check)
    restored = _on_these_devices(run, restored, accepted=may_restart)
    before, progress = restored.metadata.plan, restored.branch
    if start is not None:
        keys = start.progress.keys
        run.processes.on_main(lambda: _require_same_run(restored, checkpointer, keys))
        progress = restored.progress
        if start.progress.seed is not None:
            progress = dataclasses.replace(progress, seed=start.progress.seed)
    config, own = run.config, run.phases.all[0].plan  # `run.plan` may be that of another load
    is_counted = counts_on and not before.phases
    if is_counted and config.total_steps is None and config.num_checkpoints is not None:
        epochs = config.epochs_per_checkpoint or before.epochs_per_checkpoint
        more = config.num_checkpoints * epochs * own.env_steps_per_iteration
        config = dataclasses.replace(
            config,
            total_steps=before.steps_after(progress.outer_iteration) + more,
            num_checkpoints=None,
            epochs_per_checkpoint=before.epochs_per_checkpoint,
        )
    same_run = start is not None
    if before.phases:
        _require_same_sizes(own, before)
        phase = phase_at(before, progress.outer_iteration)
        run.use_plan(_phases_to_go_on(config, before, phase, same_run=same_run), phase)
    else:
        done = progress.outer_iteration
        run.use_plan(_plan_to_go_on(config, own, before, done, same_run=same_run))
    run.begin(progress)
    run.metrics = dict(restored.metadata.metrics)
    run.health = restored.metadata.health
    run.state, why_new = _with_environments(run, restored, may_restart=may_restart)
    restored = dataclasses.replace(restored, why_new_episodes=why_new)
    if run.plan.phases:
        run.set_hyperparameters()  # which may be others now
    if run.plan.total_steps != before.total_steps:
        run.set_horizon()
    return restored


def caveats(run: Run, restored: RestoredRun, stop_reason: str | None = None) -> list[str]:
    """Sentences on how the run differs from one that was never interrupted.

    `stop_reason` is what ended its earlier part, if not a signal.
    """
    texts = []
    if restored.changed:
        texts.append(continued_with(restored.changed))
    if stop_reason is not None and not run.is_complete:
        texts.append(
            f"this run had been stopped ({stop_reason}); it will not stop early again unless you"
            " pass the callback"
        )
    if restored.why_new_episodes:
        texts.append(
            "environments on the host cannot be restored: they start new episodes"
            f" ({restored.why_new_episodes})"
        )
    metadata, here = restored.metadata, run.devices_per_seed
    there = _place(metadata.devices_per_seed, metadata.processes)
    now = f"{here}{_in_processes(run.processes.count)}"
    if metadata.devices_per_seed != here:
        texts.append(
            f"each seed was trained on {there} and continues on {now}, with new random numbers"
        )
    elif metadata.processes != run.processes.count:
        texts.append(
            f"each seed was trained on {there} and continues on {now}: results agree up to rounding"
        )
    elsewhere = fingerprint_differences(restored.metadata.fingerprint)
    if elsewhere:
        texts.append(
            f"resumed on another machine or version ({listed(elsewhere)}): results agree up to"
            " rounding, not bit for bit"
        )
    return texts


def require_continuable(
    metadata: CheckpointMetadata, now: PlainData, *, deterministic: bool, accepted: bool
) -> list[str]:
    """The settings `now` that differ from those that a checkpoint was trained with.

    Raises `CheckpointError` unless they are `accepted`; likewise for another machine or version, if
    the run is `deterministic`.
    """
    step = metadata.progress.outer_iteration
    changed = require_as_recorded(  # keys tell more than the seed; they are compared later
        metadata.description, now, step, accepted=accepted, any_seed=True
    )
    elsewhere = fingerprint_differences(metadata.fingerprint)
    require(
        accepted or not elsewhere or not deterministic,
        "this run is deterministic, but would not be bit for bit the same here: checkpoint"
        f" {step} is from another machine or version ({listed(elsewhere)})",
        f"resume it there, or {ACCEPT}",
        CheckpointError,
    )
    return changed


def continued_with(changed: list[str]) -> str:
    """Tells of settings that differ from those of the checkpoint that a run continues from."""
    return f"continued with other settings ({listed(changed)})"


def _with_environments(run: Run, restored: RestoredRun, *, may_restart: bool) -> tuple[PyTree, str]:
    """The restored state with its environments, and why they start new episodes, if they do."""
    state, saved = restored.state, restored.environments
    if not run.has_replay(state):  # `refill` starts new episodes
        return state, "" if run.parts.is_compiled else "the replay buffer is filled again"
    if saved is None:
        why = "" if run.parts.is_compiled else "the checkpoint does not hold their states"
        return run.program.restart(state), why
    if restored.metadata.processes != run.processes.count:
        return run.program.restart(state), "they were divided among other processes"
    resumed, why = None, ""
    try:
        resumed = run.program.resume(state, run.processes.own_share(saved))
    except EnvStateError as error:
        why = str(error)
    why = next(filter(None, run.processes.agree(why)), "")
    if not why:
        return resumed, ""
    require(
        may_restart,
        f"checkpoint {restored.step} holds environments that cannot be restored here: {why}",
        f"use the environment that it was saved with, or {ACCEPT}: they start new episodes",
        CheckpointError,
    )
    return run.program.restart(state), why


def _which_to_restore(
    run: Run, checkpointer: Checkpointer | None, start: RunStart, *, needs_key: bool
) -> Which | None:
    """The checkpoint that a run starts from; None for a fresh start."""
    which = run.config.restore_checkpoint
    latest = None if checkpointer is None else checkpointer.latest_step()
    if checkpointer is not None and which is not None and (which != "auto" or latest is not None):
        return "latest" if which == "auto" else which
    require(
        start.keys is not None or not needs_key,
        "this run has no checkpoint yet, and its key is unknown",
        "start it again from its own script",
        CheckpointError,
    )
    require(
        latest is None,
        f"the directory already holds checkpoints of another run (up to step {latest})",
        'choose another directory, or set restore_checkpoint="auto" to continue it',
        CheckpointError,
    )
    return None


def _read_run(
    processes: Processes,
    checkpointer: Checkpointer,
    which: Which,
    shape_of: Callable[[CheckpointMetadata], PyTree],
    check: Callable[[CheckpointMetadata], list[str]],
) -> RestoredRun:
    """Reads a checkpoint of a state of that shape; without a replay memory if it was left out."""
    changed: list[str] = []
    directory = processes.on_main(lambda: str(checkpointer.directory))

    def items(metadata: PlainData) -> dict[str, PyTree]:
        found = CheckpointMetadata.from_metadata(metadata, directory)
        changed[:] = check(found)  # first: other settings may mean other shapes
        shape, size = shape_of(found), found.environments
        environments = None if size is None else jax.ShapeDtypeStruct((size,), np.uint8)
        saved = to_items(shape if found.replay else without_replay(shape), environments)
        return {name: item for name, item in saved.items() if name != "policy"}  # part of `learner`

    restored = read(processes, checkpointer, which, items)
    environments = restored.items.get("environments")
    metadata = CheckpointMetadata.from_metadata(restored.metadata, directory)
    return RestoredRun(
        directory=directory,
        step=restored.step,
        state=from_items(restored.items, shape_of(metadata)),
        metadata=metadata,
        environments=None if environments is None else np.asarray(environments),
        damaged=tuple(step for step, _ in restored.skipped),
        changed=changed,
    )


def _shape_of(run: Run, metadata: CheckpointMetadata) -> PyTree:
    """The shapes of the state in a checkpoint: those of the phase that trained last.

    Raises `CheckpointError` if its run had another number of seeds or another curriculum, or only
    one of the two has any.
    """
    here, saved = run.config.num_seeds, metadata.num_seeds
    require(
        here == saved,
        f"the checkpoint is of a run with {_counted(saved, 'seed')}, this one has {here}",
        f"use num_seeds={saved} (--num-seeds {saved}), or start all seeds from its policy:"
        " warm_start, or --warm-start RUN_DIR",
        CheckpointError,
    )
    own, theirs = len(run.plan.phases), len(metadata.plan.phases)

    def named(count: int) -> str:
        return f"a curriculum of {count} phases" if count else "no curriculum"

    require(
        own == theirs,
        f"the checkpoint is of a run with {named(theirs)}, this one has {named(own)}",
        "start from its policy: warm_start, or --warm-start RUN_DIR",
        CheckpointError,
    )
    there = metadata.devices_per_seed
    if there == run.devices_per_seed:
        return _shape_here(run, metadata)
    devices = None if there == 1 else Devices.imagined(there)
    compiler, module = Compiler(run.config.num_seeds, devices=devices), _module_of(run, metadata)
    program = make_program(module, compiler=compiler, num_iterations=1, overlap="none")
    with contextlib.closing(program):
        shape = program.state_shape(compiler.keys(0))
    # In the memory of the host, since the whole may be too large for a device.
    on_host = SingleDeviceSharding(host_device())
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=on_host), shape)


def _shape_here(run: Run, metadata: CheckpointMetadata) -> PyTree:
    """The shapes that the state in a checkpoint has on the devices of `run`."""
    index = run.phases.index_at(metadata.plan, metadata.progress.outer_iteration)
    return run.phases.program_at(index, run.plan).state_shape(run.compiler.keys(0))


def _module_of(run: Run, metadata: CheckpointMetadata) -> Module:
    """What trained the state in a checkpoint."""
    index = run.phases.index_at(metadata.plan, metadata.progress.outer_iteration)
    return run.phases.all[index].module


def _on_these_devices(run: Run, restored: RestoredRun, *, accepted: bool) -> RestoredRun:
    """The same state, divided among the devices of `run`.

    Raises `CheckpointError` for a deterministic run on other devices, unless that is `accepted`.
    """
    metadata, here = restored.metadata, run.devices_per_seed
    then = (metadata.devices_per_seed, metadata.seed_shares, metadata.processes)
    is_same = then == (here, run.seed_shares, run.processes.count)
    there = _place(metadata.devices_per_seed * metadata.seed_shares, metadata.processes)
    now = f"{here * run.seed_shares}{_in_processes(run.processes.count)}"
    require(
        accepted or is_same or not run.config.deterministic,
        "this run is deterministic, but would not be bit for bit the same here: it was trained on"
        f" {there}, here it is on {now}",
        f"use the same devices, processes and shard, or {ACCEPT}",
        CheckpointError,
    )
    if metadata.devices_per_seed == here:
        return restored
    module = _module_of(run, metadata)
    assert isinstance(module, RLModule)
    state = redivided(
        restored.state,
        shape=_shape_here(run, metadata),
        devices=(metadata.devices_per_seed, here),
        buffer=module.algorithm.replay_buffer,
        has_seeds=run.config.num_seeds > 1,
    )
    return dataclasses.replace(restored, state=state)


def _place(devices: int, processes: int) -> str:
    return f"{_counted(devices, 'device')}{_in_processes(processes)}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count > 1)}"


def _in_processes(count: int) -> str:
    return f" in {count} processes" if count > 1 else ""


def _require_same_sizes(plan: Plan, before: Plan) -> None:
    """Raises `CheckpointError` if iterations of the phases have another size than `before`."""
    here, there = ([x.env_steps_per_iteration for x in each.phases] for each in (plan, before))
    require(
        here == there,
        f"the iterations of the checkpoint's phases took {listed([f'{x:,}' for x in there])}"
        f" environment steps, here they take {listed([f'{x:,}' for x in here])}",
        "use the same num_steps and num_envs, or start from its policy: warm_start, or --warm-start"
        " RUN_DIR",
        CheckpointError,
    )


def _phases_to_go_on(config: TrainerConfig, before: Plan, phase: int, *, same_run: bool) -> Plan:
    """The plan of a run that continues in a phase, from a checkpoint with the plan `before`.

    Phases keep their lengths, also where one ended early; a longer run has a longer last one.

    Raises `ConfigError` if the same run would become shorter.
    """
    total = before.total_steps if config.total_steps is None else config.total_steps
    most = max(plan.steps_per_checkpoint for plan in before.phases)
    require(
        total > before.total_steps - most * len(before.phases) or not same_run,  # as rounded
        f"total_steps={total} is less than the {before.total_steps} of the run",
        "give a larger one to extend it",
    )
    return extended(before, total, phase)


def _require_same_run(
    restored: RestoredRun, checkpointer: Checkpointer, keys: KeyData | None
) -> None:
    """Raises `RlkitError` unless the run started from `keys` (None: any) may continue from there.

    It would continue in its own run directory.
    """
    require(
        keys is None or keys == restored.progress.keys,
        "this run was started from another key or seed",
        "pass the same one, or None to keep it",
        RunDirectoryError,
    )
    steps = set(checkpointer.all_steps()) - set(restored.damaged)
    newest = max(steps, default=restored.step)
    require(
        newest <= restored.step,
        f"step {restored.step} is older than the latest, {newest}: "
        "continuing from it would overwrite what followed",
        "continue in a new run, with reopen(run_dir, which=step, into=new_dir) or, for parts of"
        " your own, load_checkpoint(run_dir, step)",
        CheckpointError,
    )


def _plan_to_go_on(
    config: TrainerConfig, plan: Plan, before: Plan, iteration: int, *, same_run: bool
) -> Plan:
    """The plan of a run that continues after `iteration` outer iterations of the plan `before`.

    Outer iterations keep the number of their iterations; a longer run has more of them.

    Raises `ConfigError` if the same run would become shorter.
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
    plan = plan.going_on(iteration, before.steps_after(iteration), config.total_steps)
    if config.total_steps is None:
        is_shorter = plan.num_checkpoints < before.num_checkpoints
        asked = f"num_checkpoints={plan.num_checkpoints}"
        of_run = f"{before.num_checkpoints} outer iterations"
    else:
        rounding = before.steps_per_checkpoint - 1
        is_shorter = config.total_steps < before.total_steps - rounding
        asked, of_run = f"total_steps={config.total_steps}", f"{before.total_steps}"
    require(
        not (is_shorter and same_run),
        f"{asked} is less than the {of_run} of the run",
        "give a larger one to extend it",
    )
    return plan


def _resume_files(run: Run, files: RunFiles, restored: RestoredRun) -> None:
    """Resumes the run's own files as they were at the checkpoint; sets damaged steps aside."""
    files.record_length(run.plan)
    files.record_devices()
    for step in restored.damaged:
        if files.checkpointer is not None:
            files.checkpointer.set_aside(step)
    files.logger.restore(restored.metadata.logger)
    run.has_started = restored.metadata.has_started
    run.saved_iteration = restored.step
