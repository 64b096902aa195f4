"""The settings of a run as a user gives them: names, a preset or file, then flags."""

import dataclasses
import os
import re
import secrets
import time
from collections.abc import Sequence

from rlkit.agents.registry import agent_entry
from rlkit.algorithms.configs import (
    A2CConfig,
    OffPolicyConfig,
    PPOConfig,
    PQNConfig,
    check_rollout,
    check_sequences,
)
from rlkit.algorithms.registry import algorithm_entry, list_algorithms
from rlkit.cli import flags, own_env
from rlkit.envs.ids import NEEDS_NETWORK
from rlkit.envs.registry import is_class_id
from rlkit.errors import ConfigError, require, shown
from rlkit.optimizers.config import OptimizerConfig, check_optimizer
from rlkit.training import run_config
from rlkit.training.config import LoggerConfig, make_plan
from rlkit.training.curriculum import from_plain
from rlkit.training.logs.loggers import check_logger
from rlkit.training.run_config import RunConfig

RUNS = "runs"  # where runs go that were given no directory


@dataclasses.dataclass(frozen=True)
class Base:
    """The settings to which the flags apply, and where they are from: a preset or a file."""

    config: RunConfig
    source: str


def read_base(arguments: Sequence[str], *, command: str) -> tuple[list[str], Base]:
    """The names that were typed, and the settings that they, a file or a preset choose.

    Raises `RlkitError` for unknown names, a missing or invalid file, or a run without a seed.
    """
    names, file = positionals(arguments), flags.peek(arguments, "--config")
    require(
        file is not None or "--config" not in arguments or len(names) == 2,
        "--config needs a value",
        "name a file: --config runs/mine/config.yaml",
    )
    preset, agent = flags.peek(arguments, "--preset"), flags.peek(arguments, "--agent")
    base = _settings_before_flags(names, file, preset, agent, command)
    phases = flags.peek(arguments, "--curriculum")
    if phases is not None:
        base = dataclasses.replace(base, config=_with_curriculum(base.config, phases))
    has_seed = base.config.seed is not None or flags.peek(arguments, "--seed") is not None
    require(
        has_seed,
        f"{file} belongs to a run that was started from a key, not from a seed",
        "choose a seed with --seed N",
    )
    return names, base


def _with_curriculum(config: RunConfig, file: str) -> RunConfig:
    """`config` with the phases in a file; they set its length, unless the last one leaves it open.

    Raises `ConfigError` for anything else in the file.
    """
    values = run_config.read_yaml(file)
    try:
        curriculum = from_plain(values)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    require(curriculum is not None, f"{file} is empty", "write phases, such as `- {steps: 100000}`")
    assert curriculum is not None
    trainer = config.trainer
    if curriculum.phases[-1].steps is not None:
        trainer = dataclasses.replace(trainer, total_steps=None)
    return dataclasses.replace(config, curriculum=curriculum, trainer=trainer)


def check_settings(config: RunConfig, typed: Sequence[str]) -> None:
    """Raises what speaks against settings before JAX is imported; `typed` are the flags."""
    has_memory = getattr(config.network, "memory", None) is not None
    if isinstance(config.hyperparameters, (PPOConfig, A2CConfig, PQNConfig)):
        check_rollout(config.hyperparameters, config.env.num_envs, has_memory=has_memory)
    if isinstance(config.hyperparameters, OffPolicyConfig):
        check_sequences(config.hyperparameters, has_memory=has_memory)
    if isinstance(config.hyperparameters, OptimizerConfig):
        check_optimizer(config.hyperparameters)
    _check_logging(config.trainer.logger_config, typed)


def _check_logging(config: LoggerConfig | None, typed: Sequence[str]) -> None:
    check_logger(config, RUNS)
    if config is not None and config.wandb is None:
        names = (each.partition("=")[0].replace("_", "-") for each in typed)
        unused = next((name for name in names if name.startswith("--wandb-")), None)
        fix = "add --wandb, or --wandb offline"
        require(unused is None, f"{unused} has no effect without Weights & Biases", fix)


def check_sizes(config: RunConfig) -> None:
    """Raises errors about sizes that can be detected without importing JAX."""
    trainer, num_envs = config.trainer, config.env.num_envs
    if config.curriculum is None:  # else its phases set the length
        _check_length(config)
    require(
        trainer.overlap != "acting" or num_envs % 2 == 0,
        f"--overlap acting needs an even number of environments, got {num_envs}",
        f"use --num-envs {num_envs + 1}",
    )


def check_parts(config: RunConfig) -> None:
    """Raises what building the run would, with JAX, which a dry run alone waits for."""
    from rlkit.training import from_config

    from_config.check_parts(config)


def _check_length(config: RunConfig) -> None:
    trainer = config.trainer
    length = (trainer.total_steps, trainer.num_checkpoints, trainer.epochs_per_checkpoint)
    require(
        length != (None, None, None),
        "the length of training is not set",
        "add for example --total-steps 500000",
    )
    prefill = getattr(config.hyperparameters, "prefill_steps", 0)
    prefill = prefill if trainer.warmup_steps is None else trainer.warmup_steps
    make_plan(trainer, env_steps_per_iteration=1, prefill_steps=prefill)


def positionals(arguments: Sequence[str]) -> list[str]:
    """What was typed before the first flag."""
    names = []
    for argument in arguments:
        if argument.startswith("-"):
            break
        names.append(argument)
    return names


def names_come_first(command: str, names: Sequence[str]) -> str:
    """The error for names that are missing before the flags; `names` are those that are there."""
    return (
        f"{command} needs an algorithm and an environment before the flags, got"
        f" {' '.join(names) or 'none'}; use `{command} ppo gymnax/CartPole-v1`, then the flags"
        f" (algorithms: {', '.join(list_algorithms())})"
    )


def _settings_before_flags(
    names: list[str], file: str | None, preset: str | None, agent: str | None, command: str
) -> Base:
    """`names` are the algorithm and environment, or empty if the file names them."""
    require(
        file is None or preset is None,
        "--config and --preset both choose the settings",
        "leave one of them out",
    )
    require(
        preset is None or not preset.endswith((".yaml", ".yml")),
        f"--preset takes the environment of a preset, got the file {preset}",
        f"use --config {preset}",
    )
    if len(names) != 2 and (names or file is None):
        raise ConfigError(names_come_first(command, names))
    if names:
        is_swapped = names[0] not in list_algorithms() and names[1] in list_algorithms()
        fix = f"use `{command} {names[1]} {names[0]}`"
        require(not is_swapped, f"{names[0]!r} comes before its algorithm", fix)
        algorithm_entry(names[0])
        _check_env(names[1])
    if file is not None:
        config = run_config.for_another_run(_from_file(file, names, command))
    else:
        config = run_config.preset(names[0], names[1], of=preset)
    if not names and is_class_id(config.env.id):
        fix = f"use `{command} {config.algorithm} {config.env.id} --config {file}`"
        raise ConfigError(
            f"{file} is for your own class, which is only imported if you ask for it; {fix}"
        )
    _check_env(config.env.id)
    if agent is not None and agent != config.agent:
        agent_entry(agent)
        config = dataclasses.replace(config, agent=agent, network=None)
    return Base(config, os.path.basename(file or "") or f"preset {preset or names[1]}")


def _from_file(file: str, names: list[str], command: str) -> RunConfig:
    """The settings in a file, for the algorithm and environment that were named, if any."""
    values = run_config.read_yaml(file)
    is_list = isinstance(values, list)
    require(not is_list, f"{file} is a list, as a curriculum is", f"pass it as --curriculum {file}")
    if not isinstance(values, dict):
        what = "is empty" if values is None else f"holds no settings, but {shown(values)}"
        raise ConfigError(f"{file} {what}; write `name: value` lines, as --dry-run prints them")
    algorithm = values.get("algorithm")
    if names:
        require(
            algorithm in (None, names[0]),
            f"{file} is for {algorithm}, not for {names[0]}",
            f"use `{command} {algorithm} ...`",
        )
        values = run_config.with_names(values, *names)
    require(
        "algorithm" in values and "env" in values,
        f"{file} names no algorithm and environment",
        f"name them: `{command} ALGORITHM ENV --config {file}`",
    )
    try:
        return run_config.from_dict(values)
    except ConfigError as error:
        raise type(error)(f"{file}: {error}") from error


def typed_env(names: list[str]) -> str | None:
    """The environment id that was typed, if any."""
    return names[1] if names else None


def _check_env(env_id: str) -> None:
    """Raises errors about an environment id before any slow import."""
    suite, _, name = env_id.partition("/")
    offline = suite != "gymnax" or name not in NEEDS_NETWORK
    require(
        offline,
        f"{env_id} cannot run offline ({NEEDS_NETWORK.get(name)})",
        "use another id (see `rlkit list envs`)",
    )
    own_env.check_typed(env_id)


def run_name(config: RunConfig) -> str:
    """A unique name, even for runs that start in the same second."""
    env = re.sub(r"[^A-Za-z0-9._-]+", "-", re.split("[/:]", config.env.id, maxsplit=1)[-1])
    moment = time.strftime("%Y%m%d-%H%M%S")
    return f"{config.algorithm}-{env[:60]}-s{config.seed}-{moment}-{secrets.token_hex(2)}"
