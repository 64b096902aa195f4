"""`build`: a Trainer from a `RunConfig`; `reopen`: one that continues a run directory."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

from rlkit import validation
from rlkit.agents.base import Agent
from rlkit.agents.registry import make_agent
from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.compatibility import check_compatible
from rlkit.algorithms.registry import make_algorithm
from rlkit.envs.base import EnvAdapter
from rlkit.envs.registry import make_env
from rlkit.errors import CheckpointError, require
from rlkit.training import run_config
from rlkit.training.config import CheckpointerConfig, TrainerConfig
from rlkit.training.files.checkpointer import Which
from rlkit.training.files.run_description import read_config
from rlkit.training.files.run_files import open_checkpoints
from rlkit.training.run_parts import plan_of
from rlkit.training.trainer import Trainer

_MARK = ".tmp-branch"  # in the directory of a branch that has no checkpoint yet


def build(config: run_config.RunConfig, **arguments: Any) -> Trainer:
    """The trainer of a run; `arguments` go to `Trainer` (callbacks, eval_fn, logger, checkpointer).

    `trainer.run(config.seed)` runs it. Opens the run directory. Raises `RlkitError`, also if the
    directory cannot be used.
    """
    env, agent, algorithm = _parts(config)
    trainer = Trainer(env, None, agent, algorithm, config.trainer, **arguments)
    trainer.open(seed=config.seed)
    return trainer


def check_parts(config: run_config.RunConfig) -> None:
    """Raises what `build` raises if environment, agent, algorithm and length do not fit together.

    Compiles nothing and opens no files.
    """
    env, agent, algorithm = _parts(config)
    try:
        check_compatible(algorithm, agent, env)
        plan_of(config.trainer, algorithm, env)
    finally:
        env.close()


def _parts(config: run_config.RunConfig) -> tuple[EnvAdapter, Agent, Algorithm]:
    validation.validate(config)
    env = make_env(config.env.id, config.env.num_envs, **config.env.arguments)
    assert config.agent is not None
    agent = make_agent(config.agent, env.observation_space, env.action_space, config.network)
    return env, agent, make_algorithm(config.algorithm, config.hyperparameters)


def reopen(
    run_dir: str | os.PathLike[str],
    *,
    total_steps: int | None = None,
    save_replay: bool | None = None,
    which: Which = "latest",
    into: str | os.PathLike[str] | None = None,
    **arguments: Any,
) -> Trainer:
    """A trainer that continues a run directory: `trainer.run()` trains what is left.

    With `into`, a new run in that directory goes on from any of its checkpoints: an older step, the
    best or the latest. The old run stays as it is, and the new one records where it came from.
    Without, `which` must be the latest.
    A larger `total_steps` extends the run. `save_replay` says whether checkpoints hold the replay
    memory from now on; None: as before. All other settings stay as they were. Raises `RlkitError`
    if there is nothing to resume.
    """
    config = read_config(run_dir)
    origin = config.trainer.checkpoint_directory(run_dir)
    if into is None:
        require(
            not pathlib.Path(run_dir, _MARK).exists(),
            f"{os.fspath(run_dir)} was to go on from another run, but was cut short before it had"
            " a checkpoint",
            "remove it, and branch off again",
            CheckpointError,
        )
        if which != "latest":
            _require_latest(origin, which)
        # "auto": a run that was interrupted before its first checkpoint starts again.
        settings = dataclasses.replace(
            config.trainer, run_dir=os.fspath(run_dir), restore_checkpoint="auto"
        )
    else:
        _step_of(origin, which)  # before anything is created
        settings = run_config.for_branch(config, os.fspath(into)).trainer
    if save_replay is not None:
        checkpoints = settings.checkpointer_config or CheckpointerConfig()
        checkpoints = dataclasses.replace(checkpoints, save_replay=save_replay)
        settings = dataclasses.replace(settings, checkpointer_config=checkpoints)
    if total_steps is not None:
        settings = _extended(settings, total_steps)
    config = dataclasses.replace(config, trainer=settings)
    if into is not None:
        return _branch(config, origin, which, pathlib.Path(into), arguments)
    trainer = build(config, **arguments)
    trainer.init(config.seed)
    return trainer


def _branch(
    config: run_config.RunConfig,
    origin: str,
    which: Which,
    directory: pathlib.Path,
    arguments: dict[str, Any],
) -> Trainer:
    """A new run in `directory` that goes on from a checkpoint, which it saves as its own first."""
    with _marked(directory), contextlib.ExitStack() as undo:
        trainer = build(config, **arguments)
        undo.callback(trainer.close)
        trainer.load_checkpoint(origin, which)
        trainer.save_checkpoint()  # so that it resumes from there, whenever it is stopped
        undo.pop_all()
    return trainer


@contextlib.contextmanager
def _marked(directory: pathlib.Path) -> Iterator[None]:
    """Marks a new run directory as unusable meanwhile; an error removes it."""
    is_ours = not directory.exists() or not any(directory.iterdir())
    if not is_ours:  # the trainer says what is wrong with it
        yield
        return
    directory.mkdir(parents=True, exist_ok=True)
    mark = directory / _MARK
    mark.touch()
    try:
        yield
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    mark.unlink()


def _require_latest(directory: str, which: Which) -> None:
    """Raises `CheckpointError` if newer checkpoints follow `which`."""
    with open_checkpoints(directory) as saved:
        latest = saved.latest_step()
    step = _step_of(directory, which)
    require(
        step == latest,
        f"step {step} is older than the latest, {latest}: continuing from it would overwrite what"
        " followed",
        "branch off with reopen(run_dir, which=step, into=new_dir)",
        CheckpointError,
    )


def _step_of(directory: str, which: Which) -> int:
    """The step of a checkpoint; raises `CheckpointError` unless there is such a one."""
    with open_checkpoints(directory) as saved:
        step = saved.best_step() if which == "best" else which
        step = saved.latest_step() if which == "latest" else step
        if not isinstance(step, int):
            raise CheckpointError(f"{directory} has no {which} checkpoint; use latest, or a step")
        saved.metadata(step)
    return step


def _extended(settings: TrainerConfig, total_steps: int) -> TrainerConfig:
    run_config.require_longer(total_steps, settings.total_steps)
    return dataclasses.replace(
        settings, total_steps=total_steps, num_checkpoints=None, epochs_per_checkpoint=None
    )
