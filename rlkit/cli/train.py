"""`rlkit train`: settings from a preset or file, overridden by flags, then training."""

import dataclasses
import os
import re
import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlkit.agents.registry import agent_entry
from rlkit.algorithms.configs import PPOConfig, PQNConfig, check_minibatches
from rlkit.algorithms.registry import algorithm_entry, list_algorithms
from rlkit.cli import flags, help, own_env, train_flags
from rlkit.cli.dry_run import dump, origins
from rlkit.cli.running import check_run_dir, pin_threads, train_to_end
from rlkit.envs.ids import NEEDS_NETWORK
from rlkit.envs.registry import is_class_id
from rlkit.errors import ConfigError, require
from rlkit.optimizers.config import OptimizerConfig, check_optimizer
from rlkit.training import run_config
from rlkit.training.config import LoggerConfig, TrainerConfig, make_plan
from rlkit.training.logs.loggers import check_logger
from rlkit.training.run_config import RunConfig

if TYPE_CHECKING:
    from rlkit.training.trainer import Trainer

COMMAND = "rlkit train"
RUNS = "runs"  # where runs go that were given no directory


def usage() -> str:
    """The text of `rlkit train --help` without an algorithm and environment."""
    summaries = list_algorithms()
    width = max(map(len, summaries))
    algorithms = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in summaries.items())
    return f"""usage: {COMMAND} ALGORITHM ENV [--setting value ...]

The algorithm and environment select a tuned preset, or the algorithm's defaults
if there is none; flags override single settings.

algorithms:
{algorithms}

environments (`rlkit list envs`):
  gymnax/NAME       JAX environments, compiled together with training
  gymnasium/NAME    Gymnasium environments, including those of other packages
  envpool/NAME      EnvPool's C++ simulators
  module:Class      your own gymnasium.Env or JaxEnv class, importable from here

presets: `rlkit list presets`

examples:
  {COMMAND} ppo gymnax/CartPole-v1
  {COMMAND} ppo gymnax/CartPole-v1 --num-seeds 4 --total-steps 1M
  {COMMAND} dqn gymnax/CartPole-v1 --hidden-sizes 128 128 --wandb offline
  {COMMAND} ppo gymnasium/Hopper-v5 --num-envs 8 --run-dir runs/hopper
  {COMMAND} ppo my_package.my_module:MyEnv --total-steps 100k
  {COMMAND} --config runs/hopper/config.yaml --run-dir runs/again
  {COMMAND} ppo gymnax/CartPole-v1 --dry-run > mine.yaml

`{COMMAND} ppo gymnax/CartPole-v1 --help` shows the first settings with their
values, `--help-all` all of them, `--dry-run` where each comes from.
"""


def run(arguments: Sequence[str]) -> int:
    """Trains and returns the exit code."""
    names = _positionals(arguments)
    file = flags.peek(arguments, "--config")
    if len(names) < 2 and file is None and help.is_asked(arguments):
        print(usage(), end="")
        return 0
    require(
        file is not None or "--config" not in arguments or len(names) == 2,
        "--config needs a value",
        "name a file: --config runs/mine/config.yaml",
    )
    preset, agent = flags.peek(arguments, "--preset"), flags.peek(arguments, "--agent")
    base = _base(names, file, preset, agent)
    has_seed = base.config.seed is not None or flags.peek(arguments, "--seed") is not None
    require(
        has_seed,
        f"{file} belongs to a run that was started from a key, not from a seed",
        "choose a seed with --seed N",
    )
    typed = arguments[len(names) :]
    command = " ".join([COMMAND, *(names or ["--config", str(file)])])
    config, dry_run = train_flags.override(base.config, typed, command=command)
    if isinstance(config.hyperparameters, (PPOConfig, PQNConfig)):
        check_minibatches(config.hyperparameters, config.env.num_envs)
    if isinstance(config.hyperparameters, OptimizerConfig):
        check_optimizer(config.hyperparameters)
    _check_logger(config.trainer.logger_config, typed)
    _check_warm_start(config.trainer)
    if dry_run:
        _check_sizes(config)
        own_env.register(_typed_env(names))
        _check_parts(config)
        names_alone = {"algorithm": config.algorithm, "agent": config.agent, "seed": 0}
        defaults = run_config.from_dict(names_alone | {"env": {"id": config.env.id}})
        origin_of = origins(config, defaults, base.source, typed)
        print(dump(config, origin_of), end="")
        return 0
    run_dir = config.trainer.run_dir
    run_dir = f"{RUNS}/{_run_name(config)}" if run_dir is None else run_dir
    config = dataclasses.replace(
        config, trainer=dataclasses.replace(config.trainer, run_dir=run_dir)
    )
    check_run_dir(config.trainer)
    _check_sizes(config)
    if config.trainer.deterministic:
        pin_threads()
    own_env.register(_typed_env(names))
    return train_to_end(
        lambda: _build(config), run_dir=run_dir, env=config.env.id, seed=config.seed
    )


def _check_warm_start(config: TrainerConfig) -> None:
    """Raises errors about the source of a warm start, unless a checkpoint may be restored."""
    run_dir, restores = config.run_dir, config.restore_checkpoint is not None
    if config.restore_checkpoint == "auto" and run_dir is not None:
        restores = os.path.isdir(config.checkpoint_directory(run_dir))
    if config.warm_start is not None and not restores:
        run_config.read_settings(config.warm_start)


def _check_logger(config: LoggerConfig | None, typed: Sequence[str]) -> None:
    check_logger(config, RUNS)
    if config is not None and config.wandb is None:
        names = (each.partition("=")[0].replace("_", "-") for each in typed)
        unused = next((name for name in names if name.startswith("--wandb-")), None)
        fix = "add --wandb, or --wandb offline"
        require(unused is None, f"{unused} has no effect without Weights & Biases", fix)


def _check_sizes(config: RunConfig) -> None:
    """Raises errors about sizes that can be detected without importing JAX."""
    trainer, num_envs = config.trainer, config.env.num_envs
    length = (trainer.total_steps, trainer.num_checkpoints, trainer.epochs_per_checkpoint)
    require(
        length != (None, None, None),
        "the length of training is not set",
        "add for example --total-steps 500000",
    )
    prefill = getattr(config.hyperparameters, "prefill_steps", 0)
    prefill = prefill if trainer.warmup_steps is None else trainer.warmup_steps
    make_plan(trainer, env_steps_per_iteration=1, prefill_steps=prefill)
    require(
        trainer.overlap != "acting" or num_envs % 2 == 0,
        f"--overlap acting needs an even number of environments, got {num_envs}",
        f"use --num-envs {num_envs + 1}",
    )


def _check_parts(config: RunConfig) -> None:
    from rlkit.training.from_config import check_parts

    check_parts(config)


def _build(config: RunConfig) -> "Trainer":
    from rlkit.training.from_config import build

    return build(config)


def _positionals(arguments: Sequence[str]) -> list[str]:
    names = []
    for argument in arguments:
        if argument.startswith("-"):
            break
        names.append(argument)
    return names


@dataclasses.dataclass(frozen=True)
class _Base:
    """The settings to which the flags apply, and where they are from: a preset or a file."""

    config: RunConfig
    source: str


def _base(names: list[str], file: str | None, preset: str | None, agent: str | None) -> _Base:
    """`names` are the algorithm and environment, or empty if the file names them."""
    require(
        file is None or preset is None,
        "--config and --preset both choose the settings",
        "leave one of them out",
    )
    if len(names) != 2 and (names or file is None):
        fix = (
            f"use `{COMMAND} ppo gymnax/CartPole-v1`, then the flags (algorithms:"
            f" {', '.join(list_algorithms())})"
        )
        raise ConfigError(
            f"{COMMAND} needs an algorithm and an environment before the flags, got"
            f" {' '.join(names) or 'none'}; {fix}"
        )
    if names:
        is_swapped = names[0] not in list_algorithms() and names[1] in list_algorithms()
        fix = f"use `{COMMAND} {names[1]} {names[0]}`"
        require(not is_swapped, f"{names[0]!r} comes before its algorithm", fix)
        algorithm_entry(names[0])
        _check_env(names[1])
    if file is not None:
        config = run_config.for_another_run(_from_file(file, names))
    else:
        config = run_config.preset(names[0], names[1], of=preset)
    if not names and is_class_id(config.env.id):
        fix = f"use `{COMMAND} {config.algorithm} {config.env.id} --config {file}`"
        raise ConfigError(
            f"{file} is for your own class, which is only imported if you ask for it; {fix}"
        )
    _check_env(config.env.id)
    if agent is not None and agent != config.agent:
        agent_entry(agent)
        config = dataclasses.replace(config, agent=agent, network=None)
    return _Base(config, os.path.basename(file or "") or f"preset {preset or names[1]}")


def _from_file(file: str, names: list[str]) -> RunConfig:
    """The settings in a file, for the algorithm and environment that were named, if any."""
    values = run_config.read_yaml(file)
    if not isinstance(values, dict):
        return run_config.from_dict(values)
    algorithm = values.get("algorithm")
    if names:
        require(
            algorithm in (None, names[0]),
            f"{file} is for {algorithm}, not for {names[0]}",
            f"use `{COMMAND} {algorithm} ...`",
        )
        values = run_config.with_names(values, *names)
    require(
        "algorithm" in values and "env" in values,
        f"{file} names no algorithm and environment",
        f"name them: `{COMMAND} ALGORITHM ENV --config {file}`",
    )
    return run_config.from_dict(values)


def _typed_env(names: list[str]) -> str | None:
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


def _run_name(config: RunConfig) -> str:
    """A unique name, even for runs that start in the same second."""
    env = re.sub(r"[^A-Za-z0-9._-]+", "-", re.split("[/:]", config.env.id, maxsplit=1)[-1])
    moment = time.strftime("%Y%m%d-%H%M%S")
    return f"{config.algorithm}-{env[:60]}-s{config.seed}-{moment}-{secrets.token_hex(2)}"
