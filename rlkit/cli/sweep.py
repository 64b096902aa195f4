"""`rlkit sweep`: many trials of one run, with other hyperparameters."""

import dataclasses
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Ge

from rlkit.cli import flags, help, launcher_flags, own_env, train_flags
from rlkit.cli.launcher_flags import LauncherFlags
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
from rlkit.cli.running import StopSignals, pin_threads
from rlkit.envs.registry import is_class_id
from rlkit.errors import RlkitError, require
from rlkit.training.directories import is_address
from rlkit.training.run_config import RunConfig
from rlkit.training.sweeps.config import SweepConfig, check, check_shard
from rlkit.training.sweeps.directory import holds_sweep, read_sweep
from rlkit.training.sweeps.space import parse_grid, parse_random
from rlkit.training.sweeps.stores.store import open_store
from rlkit.training.sweeps.wandb_sweep import write_wandb_sweep
from rlkit.validation import PositiveInt

if TYPE_CHECKING:
    from rlkit.training.sweeps.sweep import Sweep

COMMAND = "rlkit sweep"
LISTS = {
    "--grid": "learning_rate=1e-4,3e-4",
    "--random": "gamma=0.9..0.99",
    **launcher_flags.LISTS,
}
EXAMPLES = """examples:
  {command} --grid gamma=0.9,0.99 num_steps=32,128
  {command} --random gamma=0.9..0.99 --trials 8
  {command} --grid gamma=0.9,0.95,0.99 --halving 3"""
USAGE = f"""usage: {COMMAND} ALGORITHM ENV [--grid NAME=VALUE,VALUE ...]
                   [--random NAME=LOW..HIGH ... --trials N]

Trains many trials of one run. Those that differ in numbers alone are one
compiled program on jittable environments; what changes shapes takes turns.

  --grid NAME=VALUE,VALUE ...   every combination of these values
  --random NAME=LOW..HIGH ...   drawn anew for each trial; NAME=LOW..HIGH:log draws
                                the logarithm, NAME=VALUE,VALUE one of the values;
                                whole numbers if the setting is a whole number
  --trials N                    how many trials (default: the grid once)
  --num-seeds N                 seeds of each trial
  --launcher ray                on all machines of a Ray cluster (--address auto), a
                                group of trials on each; slurm: as Slurm jobs
  --group-size N                most trials of a group (default: what memory allows)
  --run-dir DIRECTORY           or an address, which all machines see: s3://bucket/name

All flags of `rlkit train` set what the trials share. The directory holds
results.csv, a picture, best.yaml for `rlkit train --config`, and each trial as a
run. `rlkit resume DIRECTORY` continues a sweep that was stopped.

examples:
  {COMMAND} ppo gymnax/CartPole-v1 --grid gamma=0.9,0.99 num_steps=32,128
  {COMMAND} ppo gymnax/CartPole-v1 --random gamma=0.9..0.99 --trials 16
  {COMMAND} ppo gymnax/CartPole-v1 --grid gamma=0.9,0.99 --launcher ray

`{COMMAND} ppo gymnax/CartPole-v1 --help` shows the first settings with their
values, `--help-all` all of them.
"""
FIRST = (
    "grid",
    "random",
    "trials",
    "search_seed",
    "rank",
    "halving",
    "search",
    "exploit_every",
    "wandb_sweep",
    "group_size",
    "launcher",
    *(name for name in train_flags.FIRST if name not in ("learning_rate", "gamma")),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepFlags:
    """What is tried."""

    grid: tuple[str, ...] = ()
    """Settings of which every combination is tried, such as learning_rate=1e-4,3e-4 or
    hidden_sizes=[64,64],[128,128].
    """
    random: tuple[str, ...] = ()
    """Settings drawn anew for each trial: gamma=0.95..0.999, learning_rate=1e-5..1e-2:log (its
    logarithm is drawn), optimizer=adam,lion (one of them).
    """
    trials: PositiveInt | None = None
    """Number of trials; None: the combinations of the grid."""
    search_seed: int = 0
    """Seed of the draws; --seed is that of training, the same for each trial."""
    rank: Literal["final", "area"] = "final"
    """What ranks trials: the return of the last evaluation, or the mean over all evaluations."""
    halving: Annotated[int, Ge(2)] | None = None
    """Successive halving: at each rung keep one trial in so many, and train those as many times
    longer; None: train all to the end.
    """
    search: Literal["random", "optuna"] = "random"
    """Who chooses the settings: the dice, all at once, or Optuna's TPE, in batches."""
    batch: PositiveInt | None = None
    """Trials that Optuna chooses at once, which are trained together; None: a quarter of all."""
    exploit_every: PositiveInt | None = None
    """Population-based training: after so many outer iterations, again and again, the worst quarter
    of trials continues from copies of the best, with other hyperparameters; None: never.
    """
    group_size: PositiveInt | None = None
    """Most trials that one program trains, which is what a launcher places on a machine; None: as
    many as fit into memory.
    """
    wandb_sweep: str | None = None
    """Write a sweep for `wandb agent` to this YAML file, and train nothing."""


def run(arguments: Sequence[str]) -> int:
    """Trains the trials and returns the exit code."""
    file = flags.peek(arguments, "--config")
    if len(positionals(arguments)) < 2 and file is None and help.is_asked(arguments):
        print(USAGE, end="")
        return 0
    names, base = read_base(arguments, command=COMMAND)
    typed = flags.joined(arguments[len(names) :], LISTS)
    command = " ".join([COMMAND, *(names or ["--config", str(file)])])
    stray = "" if names else names_come_first(COMMAND, names)
    shared, chosen = train_flags.override(
        base.config,
        typed,
        command=command,
        first=FIRST,
        description="Trains {algorithm} with other settings in each trial.",
        epilogue=EXAMPLES,
        stray=stray,
        sweep=SweepFlags(),
        where=LauncherFlags(),
    )
    own_flags = {*flags.flags(SweepFlags), *flags.flags(LauncherFlags)}
    of_training = _without(typed, own_flags)
    launcher_flags.check_launcher(chosen.where)
    check_settings(shared, of_training)
    check_sizes(shared)
    asked: SweepFlags = chosen.sweep
    directory = shared.trainer.run_dir or f"{RUNS}/sweep-{run_name(shared)}"
    shared = dataclasses.replace(shared, trainer=dataclasses.replace(shared.trainer, run_dir=None))
    own = {name: x for name, x in vars(asked).items() if name not in ("grid", "random")}
    del own["wandb_sweep"]
    spaces = {"grid": parse_grid(asked.grid), "random": parse_random(asked.random)}
    config = check(SweepConfig(run=shared, **spaces, **own))
    trials = [] if asked.search == "optuna" else config.trial_settings()
    for changes in trials:
        check_settings(config.trial(changes), of_training)
    if asked.wandb_sweep is not None:
        _check_wandb_sweep(asked, chosen.where, of_training)
    if chosen.run.dry_run:
        own_env.register(typed_env(names))
        trial = config.trial(trials[0]) if trials else config.run
        if asked.wandb_sweep is None:
            check_shard(config)
            trial = _with_other_trials(trial)
        check_parts(trial)
        for index, changes in enumerate(trials):
            print(f"{index:03d}  " + "  ".join(f"{name}={x}" for name, x in changes.items()))
        if asked.search == "optuna":
            print(f"Optuna chooses the settings of the {config.trials} trials as results come in")
        return 0
    if asked.wandb_sweep is not None:
        print(write_wandb_sweep(config, asked.wandb_sweep, [*names, *of_training]))
        return 0
    require(
        open_store(directory).is_shared,
        f"what is in {directory} ends with this command",
        "choose a --run-dir on a disk, or an address such as s3://bucket/my-sweep",
    )
    require(
        not holds_sweep(directory),
        f"{directory} already holds a sweep",
        f"continue it with `rlkit resume {shlex.quote(directory)}`, or choose another --run-dir",
    )
    own_env.register(typed_env(names))
    return _train(config, directory, chosen.where, typed_env(names))


def _with_other_trials(trial: RunConfig) -> RunConfig:
    """The trial on as many devices as its own seeds fill: those of all trials share the devices."""
    from rlkit.training.sweeps.shapes import with_equal_shares

    return dataclasses.replace(trial, trainer=with_equal_shares(trial.trainer))


def _check_wandb_sweep(asked: SweepFlags, where: LauncherFlags, of_training: Sequence[str]) -> None:
    """Raises `ConfigError` for settings of a sweep that `wandb agent` does not know."""
    names = ("search_seed", "rank", "halving", "search", "batch", "exploit_every", "group_size")
    for name in names:
        require(
            getattr(asked, name) == getattr(SweepFlags(), name),
            f"--{name.replace('_', '-')} has no effect with --wandb-sweep: the agents choose the"
            " trials",
            "leave it out",
        )
    require(
        where == LauncherFlags(),
        "launchers have no effect with --wandb-sweep: you start the agents",
        "leave out --launcher and its flags",
    )
    typed = {each.partition("=")[0].replace("_", "-") for each in of_training}
    require(
        "--run-dir" not in typed,
        "with --wandb-sweep, each run of an agent has a directory of its own",
        "leave out --run-dir",
    )


def resume(directory: str, env: str | None, where: LauncherFlags) -> int:
    """Continues a sweep and returns the exit code."""
    launcher_flags.check_launcher(where)
    config = read_sweep(open_store(directory))
    own_env.check_run(config.run.env.id, typed=env, run_dir=directory)
    own_env.register(env)
    return _train(config, directory, where, env)


def _train(config: SweepConfig, directory: str, where: LauncherFlags, env: str | None) -> int:
    if config.run.trainer.deterministic:
        pin_threads()
    from rlkit.training.compile.compilation_cache import enable_compilation_cache
    from rlkit.training.sweeps.sweep import run_sweep

    launcher = launcher_flags.make_launcher(where, env if is_class_id(env) else None)
    with StopSignals() as signals:
        enable_compilation_cache()
        sweep = run_sweep(config, directory, launcher=launcher, watch=signals.watch)
    if sweep.is_finished or signals.received is not None:
        print(_report(sweep, directory))
    return signals.exit_code()


def _report(sweep: "Sweep", directory: str) -> str:
    directory, run = directory.rstrip("/"), sweep.config.run
    env = own_env.flag(run.env.id)
    lines = ["", sweep.table(), "", f"results      {directory}/results.csv"]
    typed = shlex.quote(directory)
    if not sweep.is_finished:
        return "\n".join([*lines, f"continue     rlkit resume {typed}{env}"])
    try:
        best = sweep.best
    except RlkitError as error:
        return "\n".join([*lines, str(error)])
    if is_address(directory):
        copy = f"runs/{directory.rpartition('/')[2]}"
        lines.append(f"copy it      rlkit copy {typed} {shlex.quote(copy)}")
        directory, typed = copy, shlex.quote(copy)
    lines += [
        f"picture      {directory}/results.png",
        f"curves       rlkit plot {typed}/trials/*",
        f"best trial   rlkit evaluate {typed}/trials/{best.trial:03d}{env}",
        # With other seeds than its own, which were lucky.
        f"train it     rlkit train {f'{run.algorithm} {run.env.id} ' if env else ''}--config"
        f" {typed}/best.yaml --seed 100 --num-seeds 10",
    ]
    return "\n".join(lines)


def _without(arguments: Sequence[str], names: set[str]) -> list[str]:
    """The arguments without those flags and their values."""
    kept: list[str] = []
    skips = False
    for argument in arguments:
        if argument.startswith("--"):
            skips = argument.partition("=")[0].replace("_", "-") in names
        if not skips:
            kept.append(argument)
    return kept
