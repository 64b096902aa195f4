"""A sweep as Weights & Biases describes one, for `wandb agent`. No JAX."""

import os
from collections.abc import Sequence
from pathlib import Path

from rlkit.errors import ConfigError
from rlkit.training.plain_yaml import dump_yaml
from rlkit.training.sweeps.config import SweepConfig
from rlkit.training.sweeps.space import Range, Values
from rlkit.validation import PlainData


def write_wandb_sweep(
    config: SweepConfig, path: str | os.PathLike[str], arguments: Sequence[str]
) -> str:
    """Writes the file, and returns how to start it.

    `arguments` are those of `rlkit train` that all trials share. Raises `ConfigError` if the file
    exists.
    """
    target = Path(path)
    try:
        with open(target, "x", encoding="utf-8") as file:
            file.write(dump_yaml(wandb_sweep(config, arguments)))
    except OSError as error:
        reason = "it already exists" if isinstance(error, FileExistsError) else error.strerror
        raise ConfigError(f"cannot write {path}: {reason}; choose another file") from None
    return f"start it with `wandb sweep {path}`, then `wandb agent` with the name that it prints"


def wandb_sweep(config: SweepConfig, arguments: Sequence[str]) -> PlainData:
    """The sweep as plain data: a grid if nothing is drawn, else random search."""
    spaces = {**config.grid, **config.random}
    logged = [] if any(each.startswith("--wandb") for each in arguments) else ["--wandb"]
    about: PlainData = {
        "program": "rlkit",
        "method": "random" if config.random else "grid",
        "metric": {"name": "eval/avg_return", "goal": "maximize"},
        "parameters": {name: _parameter(space) for name, space in spaces.items()},
        "command": ["${env}", "rlkit", "train", *arguments, *logged, "${args}"],
    }
    return about | ({} if config.trials is None else {"run_cap": config.trials})


def _parameter(space: Range | Values) -> PlainData:
    if not isinstance(space, Range):
        return {"values": [list(x) if isinstance(x, tuple) else x for x in space]}
    bounds: PlainData = {"min": space.low, "max": space.high}
    if not space.log:
        return {"distribution": "int_uniform" if space.is_whole else "uniform"} | bounds
    if space.is_whole:  # rounded to multiples of q
        return {"distribution": "q_log_uniform_values", "q": 1} | bounds
    return {"distribution": "log_uniform_values"} | bounds
