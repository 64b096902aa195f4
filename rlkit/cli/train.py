"""`rlkit train`: settings from a preset or file, overridden by flags, then training."""

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlkit.algorithms.registry import list_algorithms
from rlkit.cli import flags, help, own_env, train_flags
from rlkit.cli.dry_run import dump, origins
from rlkit.cli.process_flags import ProcessFlags, join_processes
from rlkit.cli.run_settings import (
    RUNS,
    check_parts,
    check_settings,
    check_sizes,
    names_come_first,
    positionals,
    read_base,
    run_name,
    typed_env,
)
from rlkit.cli.running import check_run_dir, pin_threads, train_to_end
from rlkit.training import run_config
from rlkit.training.config import TrainerConfig
from rlkit.training.curriculum import Curriculum, Phase
from rlkit.training.run_config import RunConfig

if TYPE_CHECKING:
    from rlkit.training.trainer import Trainer

COMMAND = "rlkit train"


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
  {COMMAND} ppo gymnax/CartPole-v1 --curriculum phases.yaml
  {COMMAND} ppo gymnax/Breakout-MinAtar --num-envs 512 --devices 8
  {COMMAND} ppo gymnax/CartPole-v1 --dry-run > mine.yaml

`{COMMAND} ppo gymnax/CartPole-v1 --help` shows the first settings with their
values, `--help-all` all of them, `--dry-run` where each comes from.
"""


def run(arguments: Sequence[str]) -> int:
    """Trains and returns the exit code."""
    file = flags.peek(arguments, "--config")
    if len(positionals(arguments)) < 2 and file is None and help.is_asked(arguments):
        print(usage(), end="")
        return 0
    names, base = read_base(arguments, command=COMMAND)
    typed = arguments[len(names) :]
    command = " ".join([COMMAND, *(names or ["--config", str(file)])])
    stray = "" if names else names_come_first(COMMAND, names)
    config, chosen = train_flags.override(
        base.config, typed, command=command, stray=stray, processes=ProcessFlags()
    )
    check_settings(config, typed)
    source = config.trainer.warm_start if _starts_warm(config.trainer) else None
    if source is not None:
        run_config.read_settings(source)
    if chosen.run.dry_run:
        check_sizes(config)
        own_env.register(typed_env(names))
        started = dataclasses.replace(config.trainer, warm_start=source)
        check_parts(dataclasses.replace(config, trainer=started))
        if config.trainer.run_dir is not None or config.trainer.restore_checkpoint is not None:
            check_run_dir(_with_directory(config).trainer)
        names_alone = {"algorithm": config.algorithm, "agent": config.agent, "seed": 0}
        defaults = run_config.from_dict(names_alone | {"env": {"id": config.env.id}})
        if config.curriculum is not None:  # of which only the phases have no default
            plain = Curriculum(phases=(Phase(steps=1),))
            defaults = dataclasses.replace(defaults, curriculum=plain)
        origin_of = origins(config, defaults, base.source, typed)
        print(dump(config, origin_of), end="")
        return 0
    config = _with_directory(config)
    run_dir = config.trainer.run_dir
    assert run_dir is not None
    if config.trainer.deterministic:
        pin_threads()
    if join_processes(chosen.processes):
        check_run_dir(config.trainer)
    check_sizes(config)
    own_env.register(typed_env(names))
    return train_to_end(
        lambda: _build(config), run_dir=run_dir, env=config.env.id, seed=config.seed
    )


def _with_directory(config: RunConfig) -> RunConfig:
    """The same run, in a new directory unless it names one."""
    if config.trainer.run_dir is not None:
        return config
    trainer = dataclasses.replace(config.trainer, run_dir=f"{RUNS}/{run_name(config)}")
    return dataclasses.replace(config, trainer=trainer)


def _starts_warm(config: TrainerConfig) -> bool:
    """Whether the run starts from another one's policy: no checkpoint of its own is restored."""
    run_dir, restores = config.run_dir, config.restore_checkpoint is not None
    if config.restore_checkpoint == "auto" and run_dir is not None:
        restores = os.path.isdir(config.checkpoint_directory(run_dir))
    return config.warm_start is not None and not restores


def _build(config: RunConfig) -> "Trainer":
    from rlkit.training.from_config import build

    return build(config)
