"""`Plan`: the trials of a sweep, which of them share a program, and when they are compared."""

import dataclasses
import math
from collections.abc import Sequence

from rlkit.errors import require
from rlkit.training.from_config import plan_run
from rlkit.training.run_config import RunConfig
from rlkit.training.sweeps.config import SweepConfig
from rlkit.training.sweeps.population import check_population
from rlkit.training.sweeps.shapes import Group, group_trials, require_seed
from rlkit.validation import PlainData


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Trials by their numbers, their groups, and the rungs."""

    config: SweepConfig
    changes: dict[int, PlainData]
    configs: dict[int, RunConfig]
    groups: list[Group]
    rungs: list[int]  # outer iterations at the end of each; the last is that of the run


def plan_trials(
    config: SweepConfig, changes: Sequence[PlainData], *, first: int = 0, name: str = "sweep"
) -> Plan:
    """The plan of trials that make these changes, numbered from `first` on.

    `name` is that of the sweep in Weights & Biases. Raises `ConfigError` if one cannot be trained.
    """
    configs = [
        _named(config.trial(each), f"{name}-{first + index:03d}", name)
        for index, each in enumerate(changes)
    ]
    require_seed(configs[0])
    require(
        config.run.trainer.shard != "both",
        'shard="both" divides a program of several trials otherwise than a trial alone',
        'use shard="seeds", which gives each device other trials, or "data"',
    )
    lengths = [plan_run(each).num_checkpoints for each in configs]
    groups = group_trials(configs, changes, may_join=not config.run.trainer.deterministic)
    rungs = _rungs(config, len(configs), lengths)
    if config.exploit_every is not None:
        check_population(config, groups, rungs[-1])
    numbers = range(first, first + len(configs))
    return Plan(
        config=config,
        changes=dict(zip(numbers, changes, strict=True)),
        configs=dict(zip(numbers, configs, strict=True)),
        groups=[
            dataclasses.replace(group, trials=tuple(first + place for place in group.trials))
            for group in groups
        ],
        rungs=rungs,
    )


def _named(config: RunConfig, name: str, group: str) -> RunConfig:
    """The run with names for Weights & Biases, unless it has its own."""
    logs = config.trainer.logger_config
    if logs is None or logs.wandb is None:
        return config
    named = dataclasses.replace(
        logs,
        wandb_name=name if logs.wandb_name is None else f"{logs.wandb_name}-{name[-3:]}",
        wandb_group=logs.wandb_group or group,
    )
    return dataclasses.replace(
        config, trainer=dataclasses.replace(config.trainer, logger_config=named)
    )


def _rungs(config: SweepConfig, num_trials: int, lengths: Sequence[int]) -> list[int]:
    """The outer iterations after which trials are compared.

    With successive halving by a factor f, each rung is f times as long as the one before, and there
    are as many as leave a single trial (Jamieson & Talwalkar 2016).
    """
    length = lengths[0]
    if config.halving is None:
        return [max(lengths)]
    factor = config.halving
    require(
        set(lengths) == {length},
        "successive halving compares trials after the same outer iterations, but these have"
        f" {min(lengths)} to {max(lengths)}",
        "vary only what leaves their number alone",
    )
    require(
        length >= factor,
        f"with halving={factor}, a run of {length} outer iterations has no rung before its end",
        f"raise num_checkpoints (--num-checkpoints {factor * factor})",
    )
    count = max(math.ceil(math.log(num_trials, factor) - 1e-9), 1)
    ends = {-(-length // factor**place) for place in range(count + 1)}
    return sorted(ends)[-(count + 1) :]
