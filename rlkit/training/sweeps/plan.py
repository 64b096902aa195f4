"""`Plan`: the trials of a sweep, which of them share a program, and when they are compared."""

import dataclasses
import json
import shlex
from collections.abc import Sequence

from rlkit.errors import RunDirectoryError, require
from rlkit.training.run_config import RunConfig
from rlkit.training.sweeps.config import SweepConfig, check_shard
from rlkit.training.sweeps.directory import SweepFiles
from rlkit.training.sweeps.population import check_population
from rlkit.training.sweeps.shapes import Group, group_trials, length_of, require_seed
from rlkit.validation import PlainData


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Trials by their numbers, their groups, and the rungs."""

    config: SweepConfig
    changes: dict[int, PlainData]
    configs: dict[int, RunConfig]
    groups: list[Group]
    rungs: list[int]  # outer iterations at the end of each; the last is that of the run

    @property
    def first(self) -> int:
        """The number of the first trial."""
        return min(self.configs)


def planned(files: SweepFiles, changes: Sequence[PlainData], first: int) -> Plan:
    """The plan of a batch of trials, as it was written before, or made and written now.

    Groups depend on the devices of the machine that plans: all that train them, and those that
    continue the sweep, read them. Raises `ConfigError` if a trial cannot be trained.
    """
    if (text := files.store.read(files.plan(first))) is not None:
        return read_plan(files, text)
    plan = plan_trials(files.config, changes, first=first, name=files.store.name)
    plain = {
        "first": first,
        "changes": list(plan.changes.values()),
        "groups": [dataclasses.asdict(group) for group in plan.groups],
        "rungs": plan.rungs,
    }
    files.store.write(files.plan(first), json.dumps(plain, indent=1) + "\n")
    return plan


def plan_of(files: SweepFiles, trial: int) -> Plan:
    """The written plan of the batch that has a trial. Raises `RunDirectoryError` if none has."""
    texts = (files.store.read(files.plan(first)) for first in reversed(files.planned_firsts()))
    plans = (read_plan(files, text) for text in texts if text is not None)
    found = next((plan for plan in plans if trial in plan.configs), None)
    typed = shlex.quote(str(files.place))
    require(
        found is not None,
        f"no trial {trial} is planned in {files.place}, or the sweep is finished",
        f"name one of its trials; `rlkit resume {typed}` plans and trains what is left",
        RunDirectoryError,
    )
    assert found is not None
    return found


def read_plan(files: SweepFiles, text: str) -> Plan:
    """The plan in a text that `planned` wrote."""
    plain = json.loads(text)
    changes = dict(enumerate(plain["changes"], start=plain["first"]))
    return Plan(
        config=files.config,
        changes=changes,
        configs={
            trial: trial_config(files.config, each, trial, files.store.name)
            for trial, each in changes.items()
        },
        groups=[
            Group(trials=tuple(group["trials"]), traced=tuple(group["traced"]))
            for group in plain["groups"]
        ],
        rungs=plain["rungs"],
    )


def plan_trials(
    config: SweepConfig, changes: Sequence[PlainData], *, first: int = 0, name: str = "sweep"
) -> Plan:
    """The plan of trials that make these changes, numbered from `first` on.

    `name` is that of the sweep in Weights & Biases. Raises `ConfigError` if one cannot be trained.
    """
    configs = [
        trial_config(config, each, first + index, name) for index, each in enumerate(changes)
    ]
    require_seed(configs[0])
    check_shard(config)
    lengths = [length_of(each) for each in configs]
    may_join = not config.run.trainer.deterministic
    groups = group_trials(configs, changes, may_join=may_join, most=config.group_size)
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


def trial_config(config: SweepConfig, changes: PlainData, trial: int, name: str) -> RunConfig:
    """The run of a trial, with names for Weights & Biases, unless it has its own.

    `name` is that of the sweep.
    """
    found = config.trial(changes)
    logs = found.trainer.logger_config
    if logs is None or logs.wandb is None:
        return found
    named = dataclasses.replace(
        logs,
        wandb_name=f"{logs.wandb_name or name}-{trial:03d}",
        wandb_group=logs.wandb_group or name,
    )
    return dataclasses.replace(
        found, trainer=dataclasses.replace(found.trainer, logger_config=named)
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
    count, left = 1, num_trials // factor
    while left > 1:
        count, left = count + 1, left // factor
    rungs = sorted({-(-length // factor**place) for place in range(count + 1)})
    every = config.run.trainer.eval_every
    early = next((end for end in rungs[:-1] if end % every), None)
    require(
        early is None,
        f"trials are compared after {early} outer iterations, which eval_every={every} does not"
        " evaluate",
        "use --eval-every 1",
    )
    return rungs
