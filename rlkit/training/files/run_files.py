"""What a run leaves behind: run directory, logs, checkpoints, summary and picture."""

import dataclasses
import json
import math
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import yaml
from gymnasium import spaces

from rlkit.agents.registry import agent_entry
from rlkit.algorithms.registry import algorithm_entry
from rlkit.envs.base import EnvAdapter
from rlkit.errors import CheckpointError, RunDirectoryError, UnknownNameError, require
from rlkit.training import run_config as run_configs
from rlkit.training.config import CheckpointerConfig, Plan, TrainerConfig
from rlkit.training.core.module import Module, RLModule
from rlkit.training.files.checkpointer import Checkpointer
from rlkit.training.files.run_directory import RunDirectory
from rlkit.training.logs.loggers import Logger, LoggerConfig, as_logger, make_logger
from rlkit.training.logs.records import read_records
from rlkit.types import PyTree, TrainState
from rlkit.validation import to_dict

Path = str | os.PathLike[str]
# Fields that may differ between the parts of one run: where it writes, how much it shows, how long
# it goes on.
MAY_DIFFER = {
    "run_dir",
    "restore_checkpoint",
    "logger_config",
    "checkpointer_config",
    "debug",
    "log_every",
    "max_queued",
    "overlap",
    "compile_host_loop",
    "total_steps",
    "num_checkpoints",
    "epochs_per_checkpoint",
}


class Outputs:
    """Opens the files of a run, each at most once, and closes those that it opened.

    With a run directory, logs and checkpoints default to places in it. Raises `RunDirectoryError`
    before anything is trained if the directory cannot be used, or holds a run with other settings.
    """

    def __init__(
        self,
        config: TrainerConfig,
        description: dict[str, Any],
        *,
        logger: Logger | LoggerConfig | Path | None = None,
        checkpointer: Checkpointer | CheckpointerConfig | Path | None = None,
    ):
        self.run_directory: RunDirectory | None = None
        self.description = description
        closers: list[Callable[[], None]] = []
        self._closers = closers
        try:
            if config.run_dir is not None:
                self.run_directory = self._open_directory(config, description)
                closers.append(self.run_directory.close)
            folder = None if self.run_directory is None else str(self.run_directory.path)
            self.checkpointer = self._open_checkpointer(config, checkpointer)
            if self.checkpointer is not None and self.checkpointer is not checkpointer:
                closers.insert(0, self.checkpointer.close)
            self.logger = (
                make_logger(config.logger_config, folder)
                if logger is None
                else as_logger(logger, folder)
            )
            if self.logger is not logger:
                closers.insert(0, self.logger.close)
        except BaseException:
            self.close()
            raise

    def extend(self, plan: Plan) -> None:
        """Records in `config.yaml` that the run goes on to the end of `plan`."""
        if self.run_directory is None:
            return
        stored: Any = run_configs.read_yaml(self.run_directory.config_file)
        longer = {
            "total_steps": plan.total_steps,
            "num_checkpoints": None,
            "epochs_per_checkpoint": plan.epochs_per_checkpoint,
        }
        stored = stored | {"trainer": stored["trainer"] | longer}
        self.run_directory.write_text(
            self.run_directory.config_file.name, yaml.safe_dump(stored, sort_keys=False)
        )

    def write_summary(self, summary: dict[str, Any], *, replace: bool = True) -> None:
        """`summary.json` and `learning_curve.png`, where there is a run directory; unless
        `replace`, only missing ones.
        """
        if self.run_directory is None or (self.run_directory.summary_file.exists() and not replace):
            return
        self.run_directory.write_text(
            self.run_directory.summary_file.name, json.dumps(summary, indent=2) + "\n"
        )
        self.logger.flush()
        logged = self.run_directory.metrics_file.exists()  # not with a logger that writes elsewhere
        mean = summary.get("eval_return_mean")
        if logged and mean is not None and math.isfinite(mean) and self._has_curve():
            from rlkit.training.logs.plotting import learning_curve

            learning_curve([self.run_directory.path], self.run_directory.curve_file)

    def _has_curve(self) -> bool:
        """Whether there is anything to draw: not for a run that took over a finished one and had
        nothing left to do.
        """
        assert self.run_directory is not None
        return any(
            record.kind == "eval" for record in read_records(self.run_directory.metrics_file)
        )

    def flush(self) -> None:
        """Returns once everything handed over so far is on disk."""
        self.logger.flush()
        if self.checkpointer is not None:
            self.checkpointer.wait()

    def close(self) -> None:
        """Closes what this object opened; all of it even if one fails."""
        errors = []
        while self._closers:
            try:
                self._closers.pop(0)()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _open_directory(self, config: TrainerConfig, description: dict[str, Any]) -> RunDirectory:
        assert config.run_dir is not None
        if config.restore_checkpoint is None:
            directory = RunDirectory(config.run_dir)
        else:
            directory = RunDirectory.open(
                config.run_dir, must_exist=config.restore_checkpoint != "auto"
            )
        try:
            if directory.is_new:
                directory.write_text(
                    directory.config_file.name, yaml.safe_dump(description, sort_keys=False)
                )
            else:
                _require_same_run(
                    str(directory.path), run_configs.read_yaml(directory.config_file), description
                )
        except BaseException:
            directory.close()
            raise
        return directory

    def _open_checkpointer(
        self, config: TrainerConfig, checkpointer: Checkpointer | CheckpointerConfig | Path | None
    ) -> Checkpointer | None:
        if isinstance(checkpointer, Checkpointer):
            return checkpointer
        settings = config.checkpointer_config
        if isinstance(checkpointer, CheckpointerConfig):
            settings = checkpointer
        elif checkpointer is not None:
            settings = _in_directory(settings, checkpointer)
        elif settings.directory is None and self.run_directory is not None:
            settings = _in_directory(settings, self.run_directory.checkpoint_directory)
        if settings.directory is None:
            require(
                config.restore_checkpoint is None,
                f"restore_checkpoint={config.restore_checkpoint!r} but there is nowhere to restore"
                " from",
                "set run_dir, or directory in checkpointer_config",
                CheckpointError,
            )
            return None
        return Checkpointer(settings)


def _in_directory(config: CheckpointerConfig, directory: Path) -> CheckpointerConfig:
    return dataclasses.replace(config, directory=os.fspath(directory))


def _require_same_run(path: str, stored: Any, wanted: dict[str, Any]) -> None:
    before, now = _comparable(stored), _comparable(wanted)
    different = sorted(
        name for name in before.keys() | now.keys() if before.get(name) != now.get(name)
    )
    if different:
        shown = ", ".join(
            f"{name}: {before.get(name)!r} there, {now.get(name)!r} here" for name in different[:5]
        )
        raise RunDirectoryError(
            f"{path} holds a run with other settings ({shown}); use another run_dir, or the same"
            " settings"
        )


def _comparable(description: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(description, dict):
        return {prefix.rstrip("."): description}
    flat: dict[str, Any] = {}
    for name, value in description.items():
        if prefix != "trainer." or name not in MAY_DIFFER:
            flat |= _comparable(value, f"{prefix}{name}.")
    return flat


def describe(
    module: Module, eval_env: EnvAdapter | None, config: TrainerConfig, seed: int | None
) -> dict[str, Any]:
    """The run as plain data: a `RunConfig` where every part comes from a registry; else each part
    as well as it can be told, and under `custom` which ones were built in Python.
    """
    trainer = to_dict(config)
    if not isinstance(module, RLModule):
        return {"custom": ["module"], "module": plain(module), "trainer": trainer, "seed": seed}
    parts: dict[str, Any] = {
        "algorithm": module.algorithm,
        "env": module.env,
        "agent": module.agent,
    }
    custom = [name for name, part in parts.items() if not _has_name(name, part.spec)]
    custom += [
        f"{name}.{extra}" for name, part in parts.items() for extra in getattr(part, "custom", ())
    ]
    if eval_env is not None and (eval_env.spec is None or eval_env.spec != module.env.spec):
        custom.append("eval_env")
    if custom:
        told = {
            name: plain(part if part.spec is None else part.spec) for name, part in parts.items()
        }
        return {
            "custom": custom,
            **told,
            "num_envs": module.env.num_envs,
            "trainer": trainer,
            "seed": seed,
        }
    (algorithm, hyperparameters), (env_id, arguments), (agent, network) = (
        part.spec for part in parts.values()
    )
    described = run_configs.RunConfig(
        algorithm=algorithm,
        env=run_configs.EnvConfig(id=env_id, num_envs=module.env.num_envs, arguments=arguments),
        hyperparameters=hyperparameters,
        agent=agent,
        network=network,
        trainer=config,
        seed=seed,
    )
    return run_configs.to_dict(described)


def _has_name(part: str, spec: tuple[str, Any] | None) -> bool:
    """Whether `spec` rebuilds the part: one of a name that was never registered, or that another
    config goes with, does not.
    """
    entry_of = {"algorithm": algorithm_entry, "agent": agent_entry}.get(part)
    if spec is None or entry_of is None:
        return spec is not None
    try:
        return isinstance(spec[1], entry_of(spec[0]).config)
    except UnknownNameError:
        return False


def plain(value: Any, depth: int = 6) -> Any:
    """Any object as plain data, to be read and compared: numbers and strings as they are, objects
    by type and fields.
    """
    if isinstance(value, spaces.Space):
        return str(value)
    if isinstance(
        value, np.ndarray | np.generic | jax.Array
    ):  # before numbers: NumPy's float64 is a float, but no plain one
        return np.asarray(value).tolist() if np.size(value) <= 64 else f"array{list(value.shape)}"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain(item, depth) for item in value]
    if isinstance(value, dict):
        return {str(name): plain(item, depth) for name, item in value.items()}
    if callable(value) and hasattr(value, "__qualname__"):
        return value.__qualname__
    if depth == 0 or not hasattr(value, "__dict__"):
        return type(value).__qualname__
    fields = {
        name: plain(item, depth - 1)
        for name, item in vars(value).items()
        if not name.startswith("_")
    }
    return {"type": type(value).__qualname__, **fields}


def to_items(state: PyTree) -> dict[str, PyTree]:
    """A train state as checkpoint items, so that a policy can be read without the environments and
    the replay memory.
    """
    if isinstance(state, TrainState):
        return {"policy": state.learner.policy, "learner": state.learner, "local": state.local}
    return {"state": state}


def without_replay(state: TrainState) -> TrainState:
    """The state without its replay memory, as checkpoints hold it that leave it out."""
    return state.replace(local=state.local.replace(memory=()))


def from_items(items: dict[str, PyTree], shape: PyTree) -> PyTree:
    """The inverse of `to_items`, for a state like `shape`."""
    if isinstance(shape, TrainState):
        return TrainState(learner=items["learner"], local=items["local"])
    return items["state"]
