"""Phases that differ in numbers alone: one program, which takes the numbers from its state."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlkit.algorithms.base import Algorithm
from rlkit.algorithms.registry import make_algorithm
from rlkit.training.config import TrainerConfig
from rlkit.training.core.module import RLModule
from rlkit.training.core.swept_module import SweptModule, traceable
from rlkit.training.run_parts import RunParts, with_settings

Make = Callable[[Mapping[str, Any]], Algorithm]


def with_shared_programs(phases: Sequence[RunParts], config: TrainerConfig) -> list[RunParts]:
    """The phases, with the hyperparameters in their state that can be, and that a phase changes.

    Those on the host stay as they are, and those whose algorithms have parts built in Python.
    """
    modules = [phase.module for phase in phases if isinstance(phase.module, RLModule)]
    configs = [_config(module) for module in modules]
    if not phases[0].is_compiled or None in configs:
        return list(phases)
    makes = _Makes(config)

    def swept(module: RLModule, names: Sequence[str]) -> SweptModule:
        own = _config(module)
        values = {name: np.full(config.num_seeds, getattr(own, name), np.float32) for name in names}
        return SweptModule.of(module, values, makes.of(module, names))

    names = traceable(_differing(configs), lambda names: swept(modules[0], names))
    if not names:
        return list(phases)
    return [
        dataclasses.replace(phase, module=swept(module, names))
        for phase, module in zip(phases, modules, strict=True)
    ]


class _Makes:
    """What makes the algorithms of phases; the same function if nothing but numbers differs."""

    def __init__(self, config: TrainerConfig):
        self._config = config
        self._known: list[tuple[object, Make]] = []

    def of(self, module: RLModule, names: Sequence[str]) -> Make:
        """The function for the algorithm of `module`, with other numbers for `names`."""
        assert module.algorithm.spec is not None
        kind, config = module.algorithm.spec[0], _config(module)
        fields = [field.name for field in dataclasses.fields(config)]
        shape = kind, {name: getattr(config, name) for name in fields if name not in names}
        for known, make in self._known:
            if known == shape:
                return make

        def with_values(values: Mapping[str, Any]) -> Algorithm:
            algorithm = make_algorithm(kind, dataclasses.replace(config, **values))
            return with_settings(algorithm, self._config)

        self._known.append((shape, with_values))
        return with_values


def _config(module: RLModule) -> Any:
    """The config of its algorithm; None if that cannot be made from one."""
    algorithm = module.algorithm
    return None if algorithm.spec is None or algorithm.custom else algorithm.spec[1]


def _differing(configs: Sequence[Any]) -> list[str]:
    """Names of numbers in which the configs differ."""
    first = configs[0]
    if any(type(config) is not type(first) for config in configs):
        return []

    def differs(name: str) -> bool:
        values = [getattr(config, name) for config in configs]
        return all(isinstance(x, float) for x in values) and len(set(values)) > 1

    return [field.name for field in dataclasses.fields(first) if differs(field.name)]
