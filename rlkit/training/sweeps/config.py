"""`SweepConfig`: a whole sweep as plain data, read from and written to YAML. No JAX."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from annotated_types import Ge

from rlkit import validation
from rlkit.errors import ConfigError, did_you_mean, require
from rlkit.training import run_config
from rlkit.training.config import TrainerConfig
from rlkit.training.plain_yaml import dump_yaml
from rlkit.training.run_config import RunConfig, Seed
from rlkit.training.sweeps.space import Range, Values, draw_trials, from_plain, to_plain
from rlkit.validation import PlainData, PositiveInt

Rank = Literal["final", "area"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """What a sweep tries: `rlkit.run_sweep(sweep_config, directory)` trains its trials."""

    run: RunConfig
    """The settings that all trials share; its `trainer.num_seeds` seeds are those of each trial."""
    grid: Mapping[str, Values] = dataclasses.field(default_factory=dict)
    """Settings of which every combination is tried: {"learning_rate": (1e-4, 3e-4)}."""
    random: Mapping[str, Range | Values] = dataclasses.field(default_factory=dict)
    """Settings drawn anew for each trial, from a `Range` or a tuple of values."""
    trials: PositiveInt | None = None
    """Number of trials; None: the combinations of the grid."""
    search_seed: Seed = 0
    """Seed of the draws; those of training are in `run`."""
    rank: Rank = "final"
    """What ranks trials, averaged over seeds. final: the mean return of the last evaluation;
    area: that of all evaluations after training began.
    """
    halving: Annotated[int, Ge(2)] | None = None
    """Keep one trial in so many at each of several rungs (successive halving); None: train all."""
    search: Literal["random", "optuna"] = "random"
    """Who chooses the settings of trials: the dice, all at once, or Optuna's TPE, in batches."""
    batch: PositiveInt | None = None
    """Trials that Optuna chooses at once, which are trained together; None: a quarter of all."""
    exploit_every: PositiveInt | None = None
    """Outer iterations after which the worst quarter of trials continues from copies of the best,
    with other hyperparameters (population-based training), again and again; None: never.
    """
    group_size: PositiveInt | None = None
    """Most trials that one program trains, which is what a launcher places on a machine; None: as
    many as fit into half of the memory of `devices` devices like those of the one that plans.
    """

    def __post_init__(self) -> None:
        for name in ("grid", "random"):
            given = getattr(self, name)
            plain = to_plain(given) if isinstance(given, Mapping) else given
            object.__setattr__(self, name, from_plain(plain, where=name))
        ranges = [name for name, part in self.grid.items() if isinstance(part, Range)]
        require(not ranges, f"{', '.join(ranges)} is a range in the grid", "move it to random")
        random = {name: _with_fractions(self.run, name, part) for name, part in self.random.items()}
        object.__setattr__(self, "random", random)

    def trial_settings(self) -> list[PlainData]:
        """What each trial changes, by name. Raises `ConfigError`."""
        return draw_trials(self.grid, self.random, self.trials, self.search_seed)

    def trial(self, changes: Mapping[str, Any]) -> RunConfig:
        """The run of a trial. Raises `ConfigError` for an unknown name or a bad value."""
        return with_changes(self.run, changes)


def _with_fractions(config: RunConfig, name: str, part: Range | Values) -> Range | Values:
    """`part`; a range of whole limits draws fractions if the setting may have them."""
    if not isinstance(part, Range):
        return part
    groups = (getattr(config, group, None) for group in ("hyperparameters", "network"))
    known = [validation.field_annotations(type(x)) for x in groups if dataclasses.is_dataclass(x)]
    if not any(_has_fractions(annotations.get(name)) for annotations in known):
        return part
    return dataclasses.replace(part, low=float(part.low), high=float(part.high))


def _has_fractions(annotation: object) -> bool:
    return annotation is float or any(_has_fractions(x) for x in get_args(annotation))


def with_changes(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    """`config` with other hyperparameters, settings of the network, or number of environments."""
    values = run_config.to_dict(config)
    for name, value in changes.items():
        part = _part_with(config, name)
        is_list = isinstance(values[part].get(name), list | tuple)
        require(
            not is_list or isinstance(value, list | tuple),
            f"{name} is a list, got {value}",
            f"write each value in brackets: {name}=[{value}],[...]",
        )
        values[part] = values[part] | {name: value}
    try:
        return run_config.from_dict(values)
    except ConfigError as error:
        told = ", ".join(f"{name}={value}" for name, value in changes.items())
        raise ConfigError(f"{error} (in the trial {told})") from None


def _part_with(config: RunConfig, name: str) -> str:
    """The part of the settings that has the field `name`."""
    if name == "num_envs":
        return "env"
    fields = {
        part: [field.name for field in dataclasses.fields(getattr(config, part))]
        for part in ("hyperparameters", "network")
    }
    for part, names in fields.items():
        if name in names:
            return part
    known = ["num_envs", *fields["hyperparameters"], *fields["network"]]
    of_run = [field.name for field in dataclasses.fields(TrainerConfig)]
    if name in ("seed", "num_seeds"):
        fix = "each trial trains as many seeds as --num-seeds says, from --seed on"
    elif name in ("run_dir", "restore_checkpoint", "logger_config", "checkpointer_config"):
        fix = "each trial has its own, which the sweep sets"
    elif name in of_run:
        fix = f"it is a setting of all runs: --{name.replace('_', '-')}"
    elif name in ("env", "env_arguments"):
        fix = "it is one for all trials: start a sweep for each"
    else:
        fix = did_you_mean({"lr": "learning_rate"}.get(name, name), known)
    raise ConfigError(f"a sweep of {config.algorithm} cannot vary {name!r}; {fix}")


def to_dict(config: SweepConfig) -> PlainData:
    """The sweep as plain data."""
    own = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.name not in ("run", "grid", "random")
    }
    spaces = {"grid": to_plain(config.grid), "random": to_plain(config.random)}
    return {"run": run_config.to_dict(config.run), **spaces, **own}


def from_dict(values: object) -> SweepConfig:
    """The opposite of `to_dict`. Raises `ConfigError` for invalid data."""
    if not isinstance(values, dict) or "run" not in values:
        raise ConfigError("a sweep needs `run:` with the settings of its runs; add them")
    values = dict(values)
    run = run_config.from_dict(values.pop("run"))
    spaces = {
        name: from_plain(values.pop(name), where=name)
        for name in ("grid", "random")
        if name in values
    }
    known = {field.name for field in dataclasses.fields(SweepConfig)}
    for name in values:
        require(name in known, f"a sweep has no setting {name!r}", did_you_mean(name, known))
    return check(SweepConfig(run=run, **spaces, **values))


def check(config: SweepConfig) -> SweepConfig:
    """The sweep, whose own settings are valid, with Python's numbers. Raises `ConfigError`."""
    annotations = validation.field_annotations(SweepConfig)
    own = {
        name: getattr(config, name) for name in annotations if name not in ("run", "grid", "random")
    }
    kind = dataclasses.make_dataclass(
        "SweepConfig", [(name, annotations[name]) for name in own], frozen=True, kw_only=True
    )
    plain = vars(validation.validate(kind(**own)))
    config = dataclasses.replace(config, run=validation.validate(config.run), **plain)
    twice = sorted(config.grid.keys() & config.random.keys())
    fix = "leave it in one of the two"
    require(not twice, f"{', '.join(twice)} is in the grid and drawn at random", fix)
    _check_rankable(config.run.trainer)
    _check_search(config)
    if config.exploit_every is not None:
        _check_population(config, config.exploit_every)
    phases = () if config.run.curriculum is None else config.run.curriculum.phases
    require(
        all(phase.advance_at is None for phase in phases),
        "trials are compared after the same training, but a phase of this curriculum ends when its"
        " return is reached",
        "leave out advance_at, or train the runs one by one (rlkit train)",
    )
    return config


def check_shard(config: SweepConfig) -> None:
    """Raises `ConfigError` if devices share what one program trains otherwise than single trials.

    For trials that rlkit trains together; an agent of W&B trains each alone.
    """
    require(
        config.run.trainer.shard != "both",
        'shard="both" divides a program of several trials otherwise than a trial alone',
        'use shard="seeds", which gives each device other trials, or "data"',
    )


def _check_rankable(trainer: TrainerConfig) -> None:
    """Raises `ConfigError` for settings by which a trial leaves no score, or no state to go on."""
    logs, checkpoints = trainer.logger_config, trainer.checkpointer_config
    needs = [
        ("enable_evaluation=False", trainer.enable_evaluation, "ranks trials by evaluations"),
        ("logger_config=None", logs is not None, "ranks trials by their logs"),
        ("checkpointer_config=None", checkpoints is not None, "continues trials from checkpoints"),
    ]
    for setting, is_met, why in needs:
        require(is_met, f"a sweep {why}, but {setting} turns them off", "leave it out")
    own = "each trial of a sweep has its own run directory for that"
    jsonl, directory = logs and logs.jsonl, checkpoints and checkpoints.directory
    require(jsonl is None, f"jsonl={jsonl}: {own}", "leave jsonl out (--jsonl)")
    require(
        trainer.restore_checkpoint is None,
        f"restore_checkpoint={trainer.restore_checkpoint}: each trial of a sweep begins anew",
        "leave it out",
    )
    require(
        directory is None,
        f"the directory of checkpoints is {directory}: {own}",
        "leave directory out of checkpointer_config",
    )


def _check_search(config: SweepConfig) -> None:
    """Raises `ConfigError` for settings that do not fit the search for settings."""
    if config.search == "random":
        require(config.batch is None, "batch is for --search optuna", "leave it out")
        return
    require(
        config.exploit_every is None,
        "a population is neither halved nor searched by Optuna",
        "leave out --search, or --exploit-every",
    )
    require(
        config.trials is not None and config.halving is None,
        "Optuna needs the number of trials, all of which are trained to the end",
        "add --trials 32, and leave out --halving",
    )
    varied = {**config.random, **config.grid}
    require(bool(varied), "the sweep varies nothing", "add --random NAME=LOW..HIGH")
    _check_values(config)


def _check_values(config: SweepConfig) -> None:
    """Raises `ConfigError` for values that a trial cannot have, where trials are drawn later.

    Each is tried beside the first ones of the others, since settings depend on each other.
    """
    tried = {
        name: (part.low, part.high) if isinstance(part, Range) else part
        for name, part in {**config.random, **config.grid}.items()
    }
    first = {name: values[0] for name, values in tried.items()}
    for name, values in tried.items():
        for value in values:
            config.trial(first | {name: value})


def _check_population(config: SweepConfig, every: int) -> None:
    """Raises `ConfigError` if trials cannot learn from each other, as far as settings tell."""
    require(
        config.halving is None,
        "a population is neither halved nor searched by Optuna",
        "leave out --halving, or --exploit-every",
    )
    known = ranges_in(config)
    others = [name for name in (*config.grid, *config.random) if name not in known]
    require(
        not others,
        f"a population changes numbers within a range, but {', '.join(others)} has none",
        f"use --random {others[0] if others else 'gamma'}=LOW..HIGH",
    )
    _check_values(config)
    trainer = config.run.trainer
    require(
        trainer.num_seeds == 1,
        f"each of {trainer.num_seeds} seeds would be a population of its own",
        "leave out --num-seeds, and start a sweep for each --seed",
    )
    require(
        every % trainer.eval_every == 0,
        "trials copy those with the best evaluation, and there is none at that time",
        f"use --exploit-every {trainer.eval_every}, or a multiple of it",
    )


def ranges_in(config: SweepConfig) -> dict[str, Range]:
    """The settings that are drawn from a range."""
    return {name: part for name, part in config.random.items() if isinstance(part, Range)}


def load(path: str | os.PathLike[str]) -> SweepConfig:
    """Reads YAML. Raises `ConfigError`, naming the file."""
    return from_dict(run_config.read_yaml(os.fspath(path)))


def dump(config: SweepConfig) -> str:
    """The sweep as YAML text."""
    return dump_yaml(to_dict(config))
