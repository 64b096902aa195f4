"""Which trials of a sweep can share a program, and how many of them fit into memory at once."""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.registry import make_algorithm
from rlkit.errors import ConfigError, require
from rlkit.training import run_config
from rlkit.training.config import TrainerConfig
from rlkit.training.core import swept_module
from rlkit.training.core.module import RLModule
from rlkit.training.core.swept_module import SweptModule
from rlkit.training.files.memory_size import check_memory
from rlkit.training.files.replay_size import check_replay, memory_of_several
from rlkit.training.from_config import checked_parts, make_parts
from rlkit.training.run_config import RunConfig
from rlkit.training.run_parts import RunParts, parts_from_env, with_settings
from rlkit.validation import PlainData

# of the memory: the estimate leaves out XLA's temporary arrays
SHARE = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Trials that one program trains, by their numbers in the sweep; of a single one, its own."""

    trials: tuple[int, ...]
    traced: tuple[str, ...] = ()
    """Hyperparameters in which they differ; () for a trial of its own."""

    @property
    def first(self) -> int:
        """Its first trial, by whose number it is called."""
        return self.trials[0]


def group_trials(
    configs: Sequence[RunConfig],
    changes: Sequence[PlainData],
    *,
    may_join: bool = True,
    most: int | None = None,
) -> list[Group]:
    """The groups of trials in which nothing but traced hyperparameters differs.

    Only trials on jittable environments are grouped, and unless they `may_join` none are. A group
    that does not fit into memory at once, or has more trials than `most`, is split into several of
    about the same size. Raises `ConfigError` for a trial whose parts do not fit together.
    """
    order: dict[str, list[int]] = {}
    traced = traceable(configs, changes) if may_join else ()
    for index, config in enumerate(configs):
        order.setdefault(_shape(config, traced), []).append(index)
    groups = []
    for members in order.values():
        if not traced or len(members) == 1 or not _is_jittable(configs[members[0]]):
            groups += [Group(trials=(index,)) for index in members]
            continue
        num_groups = _num_groups([configs[index] for index in members], traced, most)
        parts = np.array_split(members, num_groups)
        groups += [Group(trials=tuple(part.tolist()), traced=traced) for part in parts]
    return groups


def traceable(configs: Sequence[RunConfig], changes: Sequence[PlainData]) -> tuple[str, ...]:
    """The names of varied hyperparameters whose numbers may be inputs of a program.

    Found by tracing an iteration with them, which computes and compiles nothing. The others change
    shapes, or what is computed.
    """
    varied = dict.fromkeys(name for change in changes for name in change)
    numbers = [name for name in varied if all(_is_float(config, name) for config in configs)]
    config = configs[0]
    if not numbers or config.curriculum is not None or not _is_jittable(config):
        return ()  # the phases of a trial are programs of its own

    def swept(names: Sequence[str]) -> SweptModule:
        module = joint_parts([config], names).module  # jittable, so there is nothing to close
        assert isinstance(module, SweptModule)
        return module

    return tuple(swept_module.traceable(numbers, swept))


def joint_parts(configs: Sequence[RunConfig], traced: Sequence[str]) -> RunParts:
    """What a program trains for all seeds of these trials, one trial after the other.

    It has a seed axis for num_trials x num_seeds lanes. The parts hold the environments, which the
    caller closes.
    """
    first, num_seeds = configs[0], configs[0].trainer.num_seeds
    values = {
        name: np.repeat(
            np.array([getattr(c.hyperparameters, name) for c in configs], np.float32), num_seeds
        )
        for name in traced
    }
    env, agent, algorithm = make_parts(first)
    trainer = dataclasses.replace(first.trainer, num_seeds=len(configs) * num_seeds)
    parts = parts_from_env(env, None, agent, algorithm, trainer)
    assert isinstance(parts.module, RLModule)
    module = SweptModule.of(parts.module, values, _maker(first))
    own = (*parts.own_envs, env)
    return dataclasses.replace(parts, module=module, own_envs=own)


def _maker(config: RunConfig) -> Callable[[Mapping[str, Any]], Algorithm]:
    """Makes the algorithm of `config` with other hyperparameters, which may be tracers."""

    def make(values: Mapping[str, Any]) -> Algorithm:
        hyperparameters = dataclasses.replace(config.hyperparameters, **values)
        algorithm = make_algorithm(config.algorithm, hyperparameters)
        return with_settings(algorithm, config.trainer)

    return make


def _is_float(config: RunConfig, name: str) -> bool:
    return isinstance(getattr(config.hyperparameters, name, None), float)


def _is_jittable(config: RunConfig) -> bool:
    env = make_parts(config)[0]
    try:
        return env.is_jittable
    finally:
        env.close()


def _shape(config: RunConfig, traced: Sequence[str]) -> str:
    """Equal for configs that differ in traced numbers alone."""
    values = run_config.to_dict(config)
    own = values["hyperparameters"]
    values["hyperparameters"] = {n: "traced" if n in traced else x for n, x in own.items()}
    if (logs := values["trainer"]["logger_config"]) is not None:
        values["trainer"] |= {"logger_config": logs | {"wandb_name": None}}  # each has its own
    return json.dumps(values, sort_keys=True)


def _num_groups(configs: Sequence[RunConfig], traced: Sequence[str], most: int | None) -> int:
    """How many programs train the trials, at least. Raises `ConfigError` if one alone is too large.

    Their sizes differ by one at most. How many devices have equal shares depends on the size.
    """
    parts, trainer, count = joint_parts(configs[:1], traced), configs[0].trainer, len(configs)

    @functools.cache
    def fits(size: int) -> bool:
        try:
            _check_fits(parts, trainer, size, SHARE)
        except ConfigError:
            return False
        return most is None or size <= most

    try:
        _check_fits(parts, trainer, 1)
        numbers = range(1, count)
        return next((x for x in numbers if fits(-(-count // x)) and fits(count // x)), count)
    finally:
        for env in parts.own_envs:
            env.close()


def length_of(config: RunConfig) -> int:
    """The outer iterations of a trial.

    Raises `ConfigError` if its parts do not fit together.
    """
    shared = dataclasses.replace(config, trainer=with_equal_shares(config.trainer))
    with checked_parts(shared) as parts:
        return parts.plan.num_checkpoints


def _check_fits(parts: RunParts, trainer: TrainerConfig, size: int, share: float = 1.0) -> None:
    """Raises `ConfigError` unless so many trials fit into a share of the memory of the devices."""
    trainer = with_equal_shares(dataclasses.replace(trainer, num_seeds=size * trainer.num_seeds))
    memory, num_seeds = memory_of_several(trainer.devices), trainer.num_seeds
    available = None if memory is None else int(memory * share)
    replay_bytes = check_replay(parts.module, num_seeds, available)
    check_memory(
        parts.module,
        parts.plan,
        num_seeds=num_seeds,
        seeds_at_once=num_seeds,
        replay_bytes=replay_bytes,
        available=available,
        copies=trainer.devices if trainer.shard == "data" else 1,
    )


def with_equal_shares(config: TrainerConfig) -> TrainerConfig:
    """The settings with as many devices as can have equal shares of the seeds, if they share them.

    How many seeds a program trains changes from rung to rung.
    """
    if config.shard == "data":
        return config
    counts = range(config.devices, 0, -1)
    return dataclasses.replace(
        config, devices=next(count for count in counts if config.num_seeds % count == 0)
    )


def require_seed(config: RunConfig) -> int:
    """The seed of a run. Raises `ConfigError` without one."""
    require(config.seed is not None, "the settings name no seed", "set seed=0")
    assert config.seed is not None
    return config.seed
