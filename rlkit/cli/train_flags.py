"""The flags of `rlkit train`: settings of the run, the algorithm, the agent and the trainer."""

import collections
import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from rlkit.agents.registry import agent_entry
from rlkit.algorithms.registry import ALGORITHMS
from rlkit.cli import flags
from rlkit.envs.ids import DEFAULT_NUM_ENVS
from rlkit.errors import require
from rlkit.training.config import CheckpointerConfig, LoggerConfig, TrainerConfig
from rlkit.training.run_config import EnvConfig, RunConfig

EXAMPLES = """examples:
  {command} --total-steps 1M --num-seeds 4
  {command} --hidden-sizes 128 128 --dry-run"""
FIRST = (  # what `--help` shows
    "total_steps",
    "num_seeds",
    "evaluation_episodes",
    "run_dir",
    "seed",
    "num_envs",
    "env_arguments",
    "agent",
    "config",
    "curriculum",
    "preset",
    "dry_run",
    "learning_rate",
    "gamma",
    "hidden_sizes",
    "wandb",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFlags:
    """Settings of the whole run."""

    seed: int = 0
    """Seed of the run; parallel seeds count up from it."""
    num_envs: int = DEFAULT_NUM_ENVS
    """Number of parallel environments."""
    env_arguments: str = "{}"
    """Keyword arguments of the environment as JSON, for example
    '{"params": {"max_steps_in_episode": 200}}' for Gymnax
    or '{"vectorization": "async"}' for Gymnasium.
    """
    agent: str = "actor_critic"
    """Name of the agent (`rlkit list agents`)."""
    config: str | None = None
    """YAML file of settings to use instead of the preset, such as a run's config.yaml.
    Its run_dir and restore_checkpoint are ignored.
    """
    curriculum: str | None = None
    """YAML file of phases, one after the other (docs/curricula.md)."""
    preset: str | None = None
    """Environment whose preset to use, such as gymnax/Breakout-MinAtar; None: that of ENV."""
    dry_run: bool = False
    """Check the settings, print them as YAML with their origins, and exit."""


def override(
    config: RunConfig,
    arguments: Sequence[str],
    *,
    command: str,
    first: Sequence[str] = FIRST,
    description: str = "Trains {algorithm}; defaults are those of its preset or file.",
    epilogue: str = EXAMPLES,
    stray: str = "",
    **more: Any,
) -> tuple[RunConfig, Any]:
    """Applies the flags in `arguments` to `config`; returns the checked config, and all flags.

    `more` are parts of flags of the command's own, by name, with their defaults. `first` are those
    that `--help` shows, between a description and an epilogue. `stray` is the error for a word
    that is no value of a flag, if it is a special one.
    """
    parts = {
        "hyperparameters": config.hyperparameters,
        "network": config.network,
        "trainer": config.trainer,
    }
    fields: list[tuple[str, Any]] = [
        ("run", RunFlags),
        *((name, type(part)) for name, part in (parts | more).items()),
    ]
    kind = dataclasses.make_dataclass("TrainFlags", fields, frozen=True, kw_only=True)
    _require_parts_of(config.trainer, arguments)
    run_flags = RunFlags(
        agent=config.agent or "",
        seed=config.seed or 0,
        num_envs=config.env.num_envs,
        env_arguments=json.dumps(config.env.arguments),
    )
    parsed: Any = flags.parse(
        kind,
        arguments,
        command=command,
        description=description.format(algorithm=config.algorithm),
        default=kind(run=run_flags, **parts, **more),
        first=first,
        epilogue=epilogue.format(command=command),
        stray=stray,
        elsewhere=owners,
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
    return flags.validate(changed, kind), parsed


def owners() -> dict[str, list[str]]:
    """By flag of an algorithm or its agent, the algorithms of rlkit that have it."""
    owners: dict[str, list[str]] = collections.defaultdict(list)
    for name, entry in ALGORITHMS.items():
        for kind in (entry.config, agent_entry(entry.agent).config):
            for flag in flags.flags(kind):
                owners[flag].append(name)
    return owners


def _require_parts_of(trainer: TrainerConfig, arguments: Sequence[str]) -> None:
    """Raises `ConfigError` for a flag of a part that the settings switch off."""
    for name, kind in (
        ("logger_config", LoggerConfig),
        ("checkpointer_config", CheckpointerConfig),
    ):
        if getattr(trainer, name) is None:
            known = set(flags.flags(kind))
            names = [each.partition("=")[0].replace("_", "-") for each in arguments]
            typed = next((each for each in names if each in known), None)
            require(
                typed is None,
                f"{typed} has no effect, because {name} is null in the settings",
                f"remove `{name}: null` from the file",
            )
