"""Laws of runs on an environment: tiny ones, with any registered algorithm.

They take what `rlkit.testing.episodes` takes. A directory is one that may be written to, such as
pytest's `tmp_path`.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rlkit.envs.base import EnvAdapter
from rlkit.errors import (
    EnvContractError,
    EnvFailedError,
    EnvStateError,
    ExportError,
    NonFiniteError,
)
from rlkit.testing.comparison import assert_same
from rlkit.testing.play import Env, batch_of
from rlkit.testing.small_runs import small_parts
from rlkit.training.config import CheckpointerConfig, LoggerConfig, TrainerConfig
from rlkit.training.export.checks import Format
from rlkit.training.policy import load_policy
from rlkit.training.trainer import Trainer

Arguments = Mapping[str, Any] | None
NUM_ENVS = 2
OUTER, STOPPED = 4, 2  # outer iterations; the one after which a run goes on from its checkpoint


def trains(
    env: Env, *, algorithm: str = "ppo", env_arguments: Arguments = None, seed: int = 0
) -> None:
    """A few updates run, change the parameters, and leave only finite numbers."""
    with batch_of(env, env_arguments, NUM_ENVS) as batch, _trainer(batch, algorithm) as trainer:
        before = jax.device_get(trainer.init(seed).learner.params)
        _run(trainer, algorithm)
        after = jax.device_get(trainer.state.learner.params)
    leaves = jax.tree.leaves(after)
    if not all(np.isfinite(leaf).all() for leaf in leaves):
        raise AssertionError(f"{algorithm} made parameters that are not finite")
    if all(np.array_equal(*pair) for pair in zip(leaves, jax.tree.leaves(before), strict=True)):
        raise AssertionError(f"{algorithm} left all parameters as they were")


def resumes_exactly(
    env: Env,
    directory: str | os.PathLike[str],
    *,
    algorithm: str = "ppo",
    env_arguments: Arguments = None,
    seed: int = 0,
) -> None:
    """A run that went on from a checkpoint ends as the one that was never stopped, in every bit.

    On the host that needs environments that can be saved (`get_state` and `set_state`, or
    `rlkit.envs.ResumeByReplay`).
    """
    run_dir = Path(directory) / "run"

    def end(restore: str | None) -> Any:
        with (
            batch_of(env, env_arguments, NUM_ENVS) as batch,
            _trainer(batch, algorithm, run_dir, restore) as trainer,
        ):
            _run(trainer, algorithm, seed)
            return jax.device_get(trainer.state), _saved(batch)

    never_stopped = end(None)
    for later in range(STOPPED + 1, OUTER + 1):  # as if it had been killed before it saved these
        shutil.rmtree(run_dir / "checkpoints" / str(later))
    what = "the run that was resumed is not the one that was never stopped: "
    assert_same(end("auto"), never_stopped, what)


def exports_the_same_actions(
    env: Env,
    directory: str | os.PathLike[str],
    *,
    algorithm: str = "ppo",
    env_arguments: Arguments = None,
    format: Format = "stablehlo",
    seed: int = 0,
) -> None:
    """What `rlkit export` writes acts as the trained policy does, in a process without rlkit.

    `format` is "stablehlo", "onnx" or "both"; the last two need the packages onnx and onnxruntime.
    """
    run_dir = Path(directory) / "run"
    with batch_of(env, env_arguments, NUM_ENVS) as batch:
        with _trainer(batch, algorithm, run_dir) as trainer:
            _run(trainer, algorithm, seed)
            agent = trainer.module.agent  # pyright: ignore[reportAttributeAccessIssue]
        policy = load_policy(run_dir, env=batch, agent=agent)
        try:
            policy.export(Path(directory) / "exported", format=format)
        except ExportError as error:
            raise AssertionError(f"the policy cannot be exported: {error}") from error


def _trainer(
    batch: EnvAdapter, algorithm: str, run_dir: Path | None = None, restore: Any = None
) -> Trainer:
    config = TrainerConfig(
        num_checkpoints=OUTER,
        epochs_per_checkpoint=2,
        enable_evaluation=False,
        debug=False,
        run_dir=None if run_dir is None else str(run_dir),
        restore_checkpoint=restore,
        logger_config=LoggerConfig(console=False),
        checkpointer_config=None if run_dir is None else CheckpointerConfig(max_to_keep=OUTER),
    )
    resumes = restore is not None  # an object under test is no longer what it was: no setting
    parts = small_parts(algorithm, batch)
    return Trainer(batch, None, *parts, config, accept_differences=resumes)


def _run(trainer: Trainer, algorithm: str, seed: int | None = None) -> None:
    try:
        trainer.run(seed)
    except (EnvContractError, EnvFailedError, NonFiniteError) as error:
        raise AssertionError(f"{algorithm} cannot be trained on it: {error}") from error


def _saved(batch: EnvAdapter) -> Any:
    """Where environments on the host are; those in JAX are in the state of the run."""
    if batch.is_jittable:
        return None
    try:
        return batch.get_state()  # pyright: ignore[reportAttributeAccessIssue]
    except (EnvStateError, AttributeError) as error:
        raise AssertionError(
            f"it cannot be saved amid an episode, so a resumed run is another one: {error}; define"
            " get_state and set_state, or wrap it in rlkit.envs.ResumeByReplay"
        ) from error
