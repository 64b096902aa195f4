"""`rlkit train`: settings from a preset or file, overridden by flags, then training."""

import dataclasses
import json
import os
import re
import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlkit import validation
from rlkit.agents.registry import agent_entry
from rlkit.algorithms.configs import PPOConfig, PQNConfig, check_minibatches
from rlkit.algorithms.registry import algorithm_entry, list_algorithms
from rlkit.cli import flags, own_env
from rlkit.cli.dry_run import dump, origins
from rlkit.cli.running import check_run_dir, pin_threads, train_to_end
from rlkit.envs.ids import NEEDS_NETWORK
from rlkit.envs.registry import is_class_id
from rlkit.errors import ConfigError, require
from rlkit.training import run_config
from rlkit.training.logs.loggers import check_logger
from rlkit.training.run_config import EnvConfig, RunConfig

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

The algorithm and environment select a tuned preset, or the algorithm's defaults if there is none;
flags override single settings.

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
  {COMMAND} ppo gymnax/CartPole-v1 --num-seeds 4 --total-steps 500000 --run-dir runs/cartpole
  {COMMAND} ppo gymnax/CartPole-v1 --hidden-sizes 128 128 --wandb offline
  {COMMAND} ppo gymnasium/Hopper-v5 --num-envs 8 --env-arguments '{{"vectorization": "async"}}'
  {COMMAND} ppo my_package.my_module:MyEnv --total-steps 100000 --env-arguments '{{"size": 5}}'
  {COMMAND} --config runs/cartpole/config.yaml --run-dir runs/again
  {COMMAND} ppo gymnax/CartPole-v1 --dry-run > mine.yaml     write the settings to a file
  {COMMAND} ppo gymnax/CartPole-v1 --help                    all settings with their values
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFlags:
    """Settings of the whole run."""

    config: str | None = None
    """YAML file of settings to use instead of the preset, such as a run's config.yaml, or a preset
    if ALGORITHM and ENV are named; its run_dir and restore_checkpoint are ignored.
    """
    preset: str | None = None
    """Environment whose preset to use, such as gymnax/Breakout-MinAtar; None: that of ENV."""
    agent: str = "actor_critic"
    """Name of the agent."""
    seed: int = 0
    """Seed of the run; parallel seeds count up from it."""
    num_envs: int = 4
    """Number of parallel environments."""
    env_arguments: str = "{}"
    """Keyword arguments of the environment as JSON, for example
    '{"params": {"max_steps_in_episode": 200}}' for Gymnax
    or '{"vectorization": "async"}' for Gymnasium.
    """
    dry_run: bool = False
    """Check the settings, print them as YAML with their origins, and exit."""


def run(arguments: Sequence[str]) -> int:
    """Trains and returns the exit code."""
    names = _positionals(arguments)
    file = flags.peek(arguments, "--config")
    if len(names) < 2 and file is None and {"-h", "--help"} & set(arguments):
        print(usage(), end="")
        return 0
    preset, agent = flags.peek(arguments, "--preset"), flags.peek(arguments, "--agent")
    base = _base(names, file, preset, agent)
    has_seed = base.config.seed is not None or flags.peek(arguments, "--seed") is not None
    require(
        has_seed,
        f"{file} belongs to a run that was started from a key, not from a seed",
        "choose a seed with --seed N",
    )
    typed = arguments[len(names) :]
    config, dry_run = _override(base.config, typed, command=" ".join([COMMAND, *names]))
    if isinstance(config.hyperparameters, (PPOConfig, PQNConfig)):
        check_minibatches(config.hyperparameters, config.env.num_envs)
    check_logger(config.trainer.logger_config, RUNS)
    if dry_run:
        _check_sizes(config)
        own_env.register(_typed_env(names))
        _check_parts(config)
        names_alone = {"algorithm": config.algorithm, "agent": config.agent, "seed": 0}
        defaults = run_config.from_dict(names_alone | {"env": {"id": config.env.id}})
        origin_of = origins(config, defaults, base.source, typed)
        print(dump(config, origin_of), end="")
        return 0
    run_dir = config.trainer.run_dir or f"{RUNS}/{_run_name(config)}"
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


def _check_sizes(config: RunConfig) -> None:
    """Raises errors about sizes that can be detected without importing JAX."""
    trainer, num_envs = config.trainer, config.env.num_envs
    length = (trainer.total_steps, trainer.num_checkpoints, trainer.epochs_per_checkpoint)
    require(
        length != (None, None, None),
        "the length of training is not set",
        "add for example --total-steps 500000",
    )
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


def _override(
    config: RunConfig, arguments: Sequence[str], *, command: str
) -> tuple[RunConfig, bool]:
    """Applies the flags in `arguments` to `config`; returns the checked config and `dry_run`."""
    parts = {
        "hyperparameters": config.hyperparameters,
        "network": config.network,
        "trainer": config.trainer,
    }
    fields: list[tuple[str, Any]] = [
        ("run", RunFlags),
        *((name, type(part)) for name, part in parts.items()),
    ]
    kind = dataclasses.make_dataclass("TrainFlags", fields, frozen=True, kw_only=True)
    run_flags = RunFlags(
        agent=config.agent or "",
        seed=config.seed or 0,
        num_envs=config.env.num_envs,
        env_arguments=json.dumps(config.env.arguments),
    )
    description = (
        f"Trains {config.algorithm} on {config.env.id}. The defaults below come from the preset or"
        " file."
    )
    parsed: Any = flags.parse(
        kind,
        arguments,
        command=command,
        description=description,
        default=kind(run=run_flags, **parts),
    )
    require(
        parsed.run.num_envs >= 1,
        f"--num-envs must be positive, got {parsed.run.num_envs}",
        "use for example --num-envs 8",
    )
    env = EnvConfig(
        id=config.env.id,
        num_envs=parsed.run.num_envs,
        arguments=flags.json_object("--env-arguments", parsed.run.env_arguments),
    )
    changed = dataclasses.replace(
        config, env=env, seed=parsed.run.seed, **{name: getattr(parsed, name) for name in parts}
    )
    return validation.validate(changed), parsed.run.dry_run


def _run_name(config: RunConfig) -> str:
    """A unique name, even for runs that start in the same second."""
    env = re.sub(r"[^A-Za-z0-9._-]+", "-", re.split("[/:]", config.env.id, maxsplit=1)[-1])
    moment = time.strftime("%Y%m%d-%H%M%S")
    return f"{config.algorithm}-{env[:60]}-s{config.seed}-{moment}-{secrets.token_hex(2)}"
