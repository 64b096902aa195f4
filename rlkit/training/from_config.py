"""`build`: a Trainer from a `RunConfig`; `reopen`: one that continues a run directory."""

import contextlib
import dataclasses
import operator
import os
import pathlib
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from rlkit import validation
from rlkit.agents.base import Agent
from rlkit.agents.registry import make_agent
from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.registry import ALGORITHMS, make_algorithm
from rlkit.envs.base import EnvAdapter
from rlkit.envs.registry import make_env
from rlkit.errors import CheckpointError, ConfigError, RunDirectoryError, SpaceError, require
from rlkit.training import run_config
from rlkit.training.compile.devices import imagined_devices
from rlkit.training.config import CheckpointerConfig, Shard, TrainerConfig
from rlkit.training.directories import make_directory
from rlkit.training.files import run_directory
from rlkit.training.files.checkpoint_metadata import CheckpointMetadata
from rlkit.training.files.checkpointer import Which
from rlkit.training.files.run_description import read_config
from rlkit.training.files.run_files import open_checkpoints
from rlkit.training.phases import parts_of_curriculum
from rlkit.training.processes.group import current
from rlkit.training.programs.shares import share_of
from rlkit.training.restoring import continued_with, require_continuable
from rlkit.training.run_parts import RunParts, parts_from_env
from rlkit.training.starting import check_warm_start
from rlkit.training.trainer import Trainer


def build(config: run_config.RunConfig, **arguments: Any) -> Trainer:
    """The trainer of a run; `arguments` go to `Trainer` (callbacks, eval_fn, logger, checkpointer).

    `trainer.run(config.seed)` runs it, and closing it closes its environments. Opens the run
    directory. Raises `RlkitError`, also if the directory cannot be used; nothing is left open then.
    """
    config = validation.validate(config)
    env, agent, algorithm = make_parts(config)
    with contextlib.ExitStack() as undo:
        undo.callback(env.close)
        parts = _run_parts(env, agent, algorithm, config)
        _require_moving_target(config, parts.plan.total_steps)
        parts = dataclasses.replace(parts, own_envs=(*parts.own_envs, env))
        trainer = Trainer(env, None, agent, algorithm, config.trainer, _parts=parts, **arguments)
        undo.callback(trainer.close)
        trainer.open(seed=config.seed)
        undo.pop_all()
    return trainer


def check_parts(config: run_config.RunConfig) -> None:
    """Raises what `build` raises if the parts of a run do not fit together, see `checked_parts`."""
    with checked_parts(config):
        pass


@contextlib.contextmanager
def checked_parts(config: run_config.RunConfig) -> Iterator[RunParts]:
    """The parts of a run, whose environments are closed at the end.

    Raises what `build` raises if environment, agent, algorithm and length do not fit together. So
    too if an evaluation might never end, or the policy of `warm_start` does not fit. Compiles
    nothing and writes no files.
    """
    config = validation.validate(config)
    env, agent, algorithm = make_parts(config)
    with contextlib.ExitStack() as undo:
        undo.callback(env.close)
        parts = _run_parts(env, agent, algorithm, config)
        for own in parts.own_envs:
            undo.callback(own.close)
        _require_moving_target(config, parts.plan.total_steps)
        _require_shares(parts, config.trainer)
        if config.trainer.warm_start is not None:
            check_warm_start(parts, config.trainer.warm_start)
        yield parts


def _require_shares(parts: RunParts, trainer: TrainerConfig) -> None:
    """Raises `ConfigError` for what the devices, which need not be here, cannot share equally."""
    if trainer.devices == 1:
        return
    devices = imagined_devices(trainer.devices, trainer.shard, trainer.num_seeds)
    for phase in parts.phases or (parts,):
        share_of(phase.module, devices)


def _run_parts(
    env: EnvAdapter, agent: Agent, algorithm: Algorithm, config: run_config.RunConfig
) -> RunParts:
    if config.curriculum is None:
        return parts_from_env(env, None, agent, algorithm, config.trainer)
    return parts_of_curriculum(env, None, agent, algorithm, config.trainer, config.curriculum)


def _require_moving_target(config: run_config.RunConfig, total_steps: int) -> None:
    """Raises `ConfigError` for a target period that was chosen and is longer than the run.

    The default may be: a short run of a preset is a trial.
    """
    hyperparameters = config.hyperparameters
    period = getattr(hyperparameters, "target_period", None)
    require(
        period is None or period == type(hyperparameters).target_period or period <= total_steps,
        f"target_period={period} is longer than the run of {total_steps} environment steps, so the"
        " target network would never change",
        f"lower it (--target-period {max(total_steps // 100, 1)}), or train longer",
    )


def make_parts(config: run_config.RunConfig) -> tuple[EnvAdapter, Agent, Algorithm]:
    """Environment, agent and algorithm of a run; the caller closes the environment."""
    config = validation.validate(config)
    env = make_env(config.env.id, config.env.num_envs, **config.env.arguments)
    assert config.agent is not None
    try:
        agent = make_agent(config.agent, env.observation_space, env.action_space, config.network)
    except SpaceError as error:
        env.close()
        if fitting := _algorithms_for(env):
            problem = f"{config.algorithm} cannot be trained on {config.env.id}: {error}"
            fix = f"use {' or '.join(fitting)}"
            raise SpaceError(f"{problem.rpartition('; ')[0]}; {fix}") from None
        raise
    return env, agent, make_algorithm(config.algorithm, config.hyperparameters)


def _algorithms_for(env: EnvAdapter) -> list[str]:
    """The algorithms of rlkit whose own agents take the spaces of `env`."""
    fitting = []
    for name, entry in ALGORITHMS.items():
        with contextlib.suppress(ConfigError):
            make_agent(entry.agent, env.observation_space, env.action_space)
            fitting.append(name)
    return fitting


def reopen(
    run_dir: str | os.PathLike[str],
    *,
    total_steps: int | None = None,
    save_replay: bool | None = None,
    devices: int | None = None,
    shard: Shard | None = None,
    debug: bool | None = None,
    which: Which = "latest",
    into: str | os.PathLike[str] | None = None,
    accept_differences: bool = False,
    outside: Sequence[str | os.PathLike[str]] = (),
    **arguments: Any,
) -> Trainer:
    """A trainer that continues a run directory: `trainer.run()` trains what is left.

    With `into`, a new run in that directory continues from any of its checkpoints: an older step,
    the best or the latest. The old run stays as it is, and the new one records where it came from.
    Without, `which` must be the latest. A larger `total_steps` extends the run. `save_replay` says
    whether checkpoints hold the replay memory from now on, `devices` and `shard` how many devices
    train and what they share, `debug` whether there is a progress bar; None: as before, but all
    devices of several processes. All other settings stay as they were: if config.yaml was changed
    since the checkpoint was saved, that is an error unless you `accept_differences`; so is another
    machine or version for a deterministic run. Files that config.yaml names outside of the run
    directory are only used if they are listed in `outside`: the directory may be somebody else's.
    Raises `RlkitError` if there is nothing to resume.
    """
    processes, changed = current(), []
    # Process 0 alone, since it will soon write the file.
    config = run_config.from_dict(
        processes.on_main(lambda: run_config.to_dict(read_config(run_dir)))
    )
    origin = config.trainer.checkpoint_directory(run_dir)
    if into is None:
        _require_inside(run_dir, config.trainer, outside)
        if which != "latest":
            _require_latest(origin, which)
        # "auto": a run that was interrupted before its first checkpoint starts again.
        settings = dataclasses.replace(
            config.trainer, run_dir=os.fspath(run_dir), restore_checkpoint="auto"
        )
    else:
        changed = require_continuable(  # before anything is created
            _record_of(origin, which),
            run_config.to_dict(config),
            deterministic=config.trainer.deterministic,
            accepted=accept_differences,
        )
        require(
            processes.count == 1,
            f"a new run branches off in one process, not in {processes.count}",
            "branch off with rlkit resume RUN_DIR --into NEW_DIR first, then resume the new one",
        )
        settings = run_config.for_branch(config, os.fspath(into)).trainer
    if save_replay is not None:
        checkpoints = settings.checkpointer_config or CheckpointerConfig()
        checkpoints = dataclasses.replace(checkpoints, save_replay=save_replay)
        settings = dataclasses.replace(settings, checkpointer_config=checkpoints)
    if devices is None and processes.count > 1:
        devices = jax.device_count()  # of all of them, however many there were
    changes = {"devices": devices, "shard": shard, "debug": debug}
    given = {name: value for name, value in changes.items() if value is not None}
    settings = dataclasses.replace(settings, **given)
    if total_steps is not None:
        settings = _extended(settings, total_steps)
    config = dataclasses.replace(config, trainer=settings)
    arguments |= {"accept_differences": accept_differences}
    if into is not None:
        return _branch(config, origin, which, arguments, changed)
    with contextlib.ExitStack() as undo:
        trainer = build(config, **arguments)
        undo.callback(trainer.close)
        trainer.init(config.seed)
        undo.pop_all()
    return trainer


def _branch(
    config: run_config.RunConfig,
    origin: str,
    which: Which,
    arguments: dict[str, Any],
    changed: list[str],
) -> Trainer:
    """A new run that continues from a checkpoint, which it saves as its own first.

    `changed` are settings that differ from those that the checkpoint was trained with.

    Until it has, a mark makes its directory unusable; an error removes what was created.
    """
    assert config.trainer.run_dir is not None
    directory, is_run = run_directory.inspect(config.trainer.run_dir)
    fix = "choose another directory for the branch"
    require(not is_run, f"{directory} already holds a run", fix, RunDirectoryError)
    mark = directory / run_directory.BRANCH_MARK
    make_directory(directory)
    run_directory.require_no_links_out(directory)
    with contextlib.ExitStack() as held:
        # Its own lock, because two branches may begin here before either has the directory's.
        held.callback(os.close, run_directory.take_lock(mark))
        try:
            trainer = build(config, **arguments)
        except BaseException:
            mark.unlink(missing_ok=True)
            _remove_if_empty(directory)
            raise
        try:
            trainer.load_checkpoint(origin, which)
            if changed:
                trainer.log(continued_with(changed))
            trainer.save_checkpoint()  # so that it resumes from there, whenever it is stopped
        except BaseException:
            trainer.close()
            shutil.rmtree(directory, ignore_errors=True)  # our own: the trainer held its lock
            raise
        mark.unlink(missing_ok=True)
    return trainer


def _remove_if_empty(directory: pathlib.Path) -> None:
    """Removes a directory in which no run has begun, unless another process is beginning one."""
    with contextlib.suppress(OSError, RunDirectoryError), run_directory.RunDirectory(directory):
        if not (directory / "config.yaml").exists():
            shutil.rmtree(directory)


def _require_inside(
    run_dir: str | os.PathLike[str],
    settings: TrainerConfig,
    outside: Sequence[str | os.PathLike[str]],
) -> None:
    """Raises `RunDirectoryError` if config.yaml names a file elsewhere that nobody vouched for."""
    known = {os.path.realpath(os.path.expanduser(path)) for path in outside}
    for name, path in run_config.places_outside(settings, run_dir).items():
        require(
            os.path.realpath(os.path.expanduser(path)) in known,
            f"config.yaml of {os.fspath(run_dir)} names a place outside of the run, {name}: {path}",
            f"if it is yours, add --outside {path} (outside=[{path!r}])",
            RunDirectoryError,
        )


def _require_latest(directory: str, which: Which) -> None:
    """Raises `CheckpointError` if newer checkpoints follow `which`."""
    step, latest = _step_of(directory, which), _step_of(directory, "latest")
    require(
        step == latest,
        f"step {step} is older than the latest, {latest}: continuing from it would overwrite what"
        " followed",
        "branch off with reopen(run_dir, which=step, into=new_dir)",
        CheckpointError,
    )


def _step_of(directory: str, which: Which) -> int:
    """The step of a checkpoint; raises `CheckpointError` unless it exists."""
    with open_checkpoints(directory) as saved:
        if which == "latest":  # if it is damaged, the one before is read
            return max(saved.all_steps())  # there are some, or opening them would have failed
        step = saved.best_step() if which == "best" else which
        try:
            step = operator.index(step)  # pyright: ignore[reportArgumentType]
        except TypeError:
            raise CheckpointError(
                f"{directory} has no {which} checkpoint; use latest, or a step"
            ) from None
        saved.metadata(step)
    return step


def _record_of(directory: str, which: Which) -> CheckpointMetadata:
    """What a checkpoint records; an older one, if it is the latest and its record is damaged."""
    step = _step_of(directory, which)
    with open_checkpoints(directory) as saved:
        for older in reversed(saved.all_steps()) if which == "latest" else ():
            with contextlib.suppress(CheckpointError):
                return CheckpointMetadata.from_metadata(saved.metadata(older), directory)
        return CheckpointMetadata.from_metadata(saved.metadata(step), directory)


def require_unfinished(
    run_dir: str | os.PathLike[str], which: Which, total_steps: int | None
) -> None:
    """Raises `ConfigError` if a run that branches off there would have nothing to train.

    `total_steps` is the end that it is given; None: that of the run in `run_dir`.
    """
    settings = read_config(run_dir).trainer
    record = _record_of(settings.checkpoint_directory(run_dir), which)
    plan, last = record.plan, settings.num_checkpoints
    if total_steps is None and settings.total_steps is None:
        is_longer = last is not None and last > plan.num_checkpoints  # edited in config.yaml
    else:
        is_longer = (total_steps or settings.total_steps or 0) > plan.total_steps
    require(
        is_longer or record.progress.outer_iteration < plan.num_checkpoints,
        f"{os.fspath(run_dir)} is finished, and its {which} checkpoint is the end of it, so that a"
        " new run from there would train nothing",
        f"add --total-steps N (more than {plan.total_steps:,}), or choose an earlier --checkpoint",
    )


def _extended(settings: TrainerConfig, total_steps: int) -> TrainerConfig:
    run_config.require_longer(total_steps, settings.total_steps)
    return dataclasses.replace(
        settings, total_steps=total_steps, num_checkpoints=None, epochs_per_checkpoint=None
    )
