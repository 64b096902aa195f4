"""`RunConfig`: a whole run as plain data, read from and written to YAML, with presets. No JAX."""

import dataclasses
import os
import pathlib
from importlib import resources
from typing import Annotated, Any

import yaml
from annotated_types import Ge, Lt

from rlkit import validation
from rlkit.agents.registry import agent_entry
from rlkit.algorithms.registry import algorithm_entry
from rlkit.envs.ids import DEFAULT_NUM_ENVS
from rlkit.envs.registry import check_arguments
from rlkit.errors import (
    ConfigError,
    RunDirectoryError,
    UnknownNameError,
    did_you_mean,
    require,
    shown,
)
from rlkit.training.config import CheckpointerConfig, LoggerConfig, TrainerConfig
from rlkit.training.curriculum import Curriculum
from rlkit.training.curriculum import from_plain as curriculum_from_plain
from rlkit.training.curriculum import to_plain as curriculum_to_plain
from rlkit.training.directories import absolute_path, near_run, require_copied
from rlkit.training.plain_yaml import dump_yaml, parse_yaml
from rlkit.validation import PlainData, PositiveInt, field_annotations

Seed = Annotated[int, Ge(0), Lt(2**32)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvConfig:
    """The training environments."""

    id: str
    """Registry id, such as gymnax/CartPole-v1."""
    num_envs: PositiveInt = DEFAULT_NUM_ENVS
    """Number of parallel environments."""
    arguments: PlainData = dataclasses.field(default_factory=dict)
    """Keyword arguments of the environment, such as {params: {max_steps_in_episode: 200}}."""

    def __post_init__(self) -> None:
        if isinstance(self.arguments, dict):  # else `validate` refuses them
            check_arguments(self.arguments)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All settings of a run; `rlkit.build(run_config)` creates the Trainer."""

    algorithm: str
    """Name of the algorithm."""
    env: EnvConfig
    """Training environments; evaluation creates its own from the same id."""
    hyperparameters: Any = None
    """Settings of the algorithm; None: its defaults."""
    agent: str | None = None
    """Name of the agent; None: the algorithm's default."""
    network: Any = None
    """Settings of the agent; None: its defaults."""
    curriculum: Curriculum | None = None
    """Phases that change environments or hyperparameters; None: the same from start to end."""
    trainer: TrainerConfig = dataclasses.field(default_factory=TrainerConfig)
    """Settings of training, evaluation, checkpoints and logs."""
    seed: Seed | None = 0
    """Seed of the run; parallel seeds count up from it. None: the run was started from a key."""

    def __post_init__(self) -> None:
        entry = algorithm_entry(self.algorithm)
        agent = self.agent or entry.agent
        object.__setattr__(self, "agent", agent)
        for field, kind in (
            ("hyperparameters", entry.config),
            ("network", agent_entry(agent).config),
        ):
            value = getattr(self, field)
            object.__setattr__(self, field, kind() if value is None else value)
            require(
                isinstance(getattr(self, field), kind),
                f"{field} of {self.algorithm} must be a {kind.__name__}, got"
                f" {type(value).__name__}",
                f"pass {kind.__name__}(...)",
            )


def to_dict(config: RunConfig) -> PlainData:
    """The config as plain data."""
    values = validation.to_dict(config)
    if config.curriculum is not None:
        values["curriculum"] = curriculum_to_plain(config.curriculum)
    return values


def from_dict(values: object) -> RunConfig:
    """Builds a config from plain data, as from `to_dict`; missing fields take their defaults.

    Raises `ConfigError` for invalid data.
    """
    if not isinstance(values, dict) or "algorithm" not in values or "env" not in values:
        raise ConfigError(
            "a run config needs at least `algorithm: ppo` and `env: {id: gymnax/CartPole-v1}`; add"
            " both"
        )
    values = dict(values)
    for name in ("algorithm", "agent"):
        value = values.get(name)
        require(
            value is None or isinstance(value, str),
            f"{name} must be a name, got {value!r}",
            f"use `{name}: name`",
        )
    entry = algorithm_entry(values["algorithm"])
    kinds = {
        "hyperparameters": entry.config,
        "network": agent_entry(values.get("agent") or entry.agent).config,
    }
    _require_own_fields(values, {**kinds, "trainer": TrainerConfig, "env": EnvConfig})
    built: dict[str, Any] = {
        name: validation.from_dict(kind, values.pop(name) or {})
        for name, kind in kinds.items()
        if name in values
    }
    built["curriculum"] = curriculum_from_plain(values.pop("curriculum", None))
    return validation.validate(
        dataclasses.replace(validation.from_dict(RunConfig, values), **built)
    )


def _require_own_fields(values: PlainData, sections: dict[str, type]) -> None:
    """Raises `ConfigError` for settings at the top that belong to a section, and says to which."""
    env = values["env"]
    require(
        not isinstance(env, str),
        f"RunConfig.env needs a mapping of field names to values, got {shown(env)}",
        f"write `env: {{id: {env}}}`",
    )
    trainer = {"logger_config": LoggerConfig, "checkpointer_config": CheckpointerConfig}
    sections |= {f"trainer: {name}": kind for name, kind in trainer.items()}
    for name in (each for each in values if each not in field_annotations(RunConfig)):
        owners = [part for part, kind in sections.items() if name in field_annotations(kind)]
        place = next(iter(owners), None)
        fix = f"write it below `{place}:`"
        require(place is None, f"RunConfig has no field {name!r}", fix)


def save(config: RunConfig, path: str | pathlib.Path) -> None:
    """Writes the config as YAML. Raises `ConfigError` instead of overwriting a file."""
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(dump(config))
    except FileExistsError:
        raise ConfigError(
            f"{path} already exists; choose another name (nothing was overwritten)"
        ) from None


def dump(config: RunConfig) -> str:
    """The config as YAML text."""
    return dump_yaml(to_dict(config))


def load(path: str | pathlib.Path) -> RunConfig:
    """Reads YAML or JSON. Raises `ConfigError`, naming the file."""
    return from_dict(read_yaml(path))


def for_another_run(config: RunConfig) -> RunConfig:
    """The settings without those of a single run: its directory, files inside it, its parent."""
    trainer = config.trainer
    logs, checkpoints = trainer.logger_config, trainer.checkpointer_config
    if logs is not None and _inside(logs.jsonl, trainer.run_dir):
        logs = dataclasses.replace(logs, jsonl=None)
    if checkpoints is not None and _inside(checkpoints.directory, trainer.run_dir):
        checkpoints = dataclasses.replace(checkpoints, directory=None)
    trainer = dataclasses.replace(
        trainer,
        run_dir=None,
        restore_checkpoint=None,
        logger_config=logs,
        checkpointer_config=checkpoints,
    )
    return dataclasses.replace(config, trainer=trainer)


def for_branch(config: RunConfig, run_dir: str) -> RunConfig:
    """The settings for a run in `run_dir` that continues from another one's checkpoint.

    Its logs and checkpoints are in `run_dir`, wherever the other run has its own.
    """
    trainer = for_another_run(config).trainer
    logs, checkpoints = trainer.logger_config, trainer.checkpointer_config
    trainer = dataclasses.replace(
        trainer,
        run_dir=run_dir,
        warm_start=None,
        logger_config=logs and dataclasses.replace(logs, jsonl=None),
        checkpointer_config=checkpoints and dataclasses.replace(checkpoints, directory=None),
    )
    return dataclasses.replace(config, trainer=trainer)


def places_outside(trainer: TrainerConfig, run_dir: str | os.PathLike[str]) -> dict[str, str]:
    """The paths outside of the run's directory that its settings name, by their settings."""
    logs, checkpoints = trainer.logger_config, trainer.checkpointer_config
    named = {
        "logger_config.jsonl": logs and logs.jsonl,
        "checkpointer_config.directory": checkpoints and checkpoints.directory,
    }
    inside = os.path.realpath(absolute_path(run_dir))
    return {
        name: path
        for name, path in named.items()
        if path and os.path.commonpath([inside, os.path.realpath(absolute_path(path))]) != inside
    }


def _inside(path: str | None, directory: str | None) -> bool:
    if path is None or directory is None:
        return False
    return absolute_path(path).is_relative_to(absolute_path(directory))


def read_yaml(path: str | pathlib.Path) -> Any:
    """Plain data from a YAML or JSON file. Raises `ConfigError` if it cannot be read."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from None
    return yaml_in(text, path)


def yaml_in(text: str, path: str | pathlib.Path) -> Any:
    """Plain data from the text of the YAML or JSON file at `path`. Raises `ConfigError`."""
    try:
        return parse_yaml(text)
    except yaml.YAMLError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: str | pathlib.Path, error: Exception) -> ConfigError:
    told = error.strerror if isinstance(error, OSError) else None  # which names no file again
    reason = " ".join((told or str(error)).split())  # YAML's are pictures of several lines
    within = os.path.join(path, "config.yaml")
    return ConfigError(
        f"cannot read {path}: {reason}; pass {within if os.path.isfile(within) else 'a YAML file'}"
    )


def read_settings(run_dir: str | os.PathLike[str]) -> PlainData:
    """The unchecked settings in a run's `config.yaml`. Raises `RunDirectoryError` without one."""
    require_copied(run_dir)
    path = os.path.expanduser(os.path.join(run_dir, "config.yaml"))
    require(
        os.path.isfile(path),
        f"{os.fspath(run_dir)} does not contain a run",
        near_run(run_dir) or "pass the run_dir of a training run, a directory with a config.yaml",
        RunDirectoryError,
    )
    settings = read_yaml(path)
    require(
        isinstance(settings, dict) and "trainer" in settings,
        f"{path} contains no settings of a run",
        "restore the file that the run wrote",
        RunDirectoryError,
    )
    return settings


def require_seed(seed_index: int | None, num_seeds: int) -> None:
    """Raises `ConfigError` unless it is the index of a seed of the run, or None."""
    counted = f"{num_seeds} seeds; choose 0 to {num_seeds - 1}"
    if num_seeds == 1:
        counted = "one seed; leave it out"
    if seed_index is not None and not 0 <= seed_index < num_seeds:
        raise ConfigError(f"seed_index={seed_index}, but the run has {counted}")


def require_longer(total_steps: int, before: int | None) -> None:
    """Raises `ConfigError` unless a run of `before` steps can be extended to `total_steps`."""
    require(
        before is None or total_steps >= before,
        f"total_steps={total_steps} is less than the {before} of the run",
        "give a larger one to extend it, or leave it out",
    )


def preset_names() -> list[str]:
    """Names of rlkit's presets, as `algorithm/suite/env`."""
    root = resources.files("rlkit.presets")
    return sorted(
        f"{folder.name}/{file.name.removesuffix('.yaml').replace('--', '/')}"
        for folder in root.iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".yaml")
    )


def preset(algorithm: str, env_id: str, *, of: str | None = None) -> RunConfig:
    """The tuned settings for an algorithm and environment, or the algorithm's defaults.

    The defaults have no length: `trainer.total_steps` is None. `dataclasses.replace` changes them,
    and `rlkit.build(settings).run(settings.seed)` trains; `build` knows whether there is such an
    environment. `of` takes what was tuned for another one, and raises `UnknownNameError` if nothing
    was. So does an algorithm that does not exist.
    """
    values = preset_values(algorithm, of or env_id, must_exist=of is not None)
    return from_dict(with_names(values, algorithm, env_id))


def preset_values(algorithm: str, env_id: str, *, must_exist: bool = False) -> PlainData:
    """What a preset sets, as plain data; {} without one, unless it `must_exist`.

    Presets are stored in `rlkit/presets/<algorithm>/<suite>--<env>.yaml`.
    """
    algorithm_entry(algorithm)
    file = resources.files("rlkit.presets") / algorithm / f"{env_id.replace('/', '--')}.yaml"
    if file.is_file():
        return parse_yaml(file.read_text(encoding="utf-8"))
    if must_exist:
        own = [name for name in preset_names() if name.startswith(f"{algorithm}/")]
        fix = did_you_mean(env_id, [name.partition("/")[2] for name in own])
        raise UnknownNameError(f"{algorithm} has no preset {env_id!r}; {fix}")
    return {}


def with_names(values: PlainData, algorithm: str, env_id: str) -> PlainData:
    """Plain data of a preset, or of a config of this algorithm, for this environment."""
    env = values.get("env") or {}
    env = {**env, "id": env_id} if isinstance(env, dict) else env  # else `from_dict` refuses it
    return {**values, "algorithm": algorithm, "env": env}


def flat_settings(config: Any, prefix: str = "") -> PlainData:
    """Settings as a flat dict, `{"hyperparameters.gamma": 0.99, …}`, of a dataclass or dicts."""
    values = validation.to_dict(config) if dataclasses.is_dataclass(config) else config
    flat: PlainData = {}
    for name, value in values.items():
        flat |= (
            flat_settings(value, f"{prefix}{name}.")
            if isinstance(value, dict) and value
            else {f"{prefix}{name}": value}
        )
    return flat
