"""Where the settings of trials come from: drawn all at once, or in batches by Optuna."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlkit.errors import ConfigError
from rlkit.training.sweeps.config import SweepConfig
from rlkit.training.sweeps.results import TrialResult
from rlkit.training.sweeps.space import Range, Values
from rlkit.validation import PlainData

if TYPE_CHECKING:
    import optuna

BATCHES = 4  # by default; trials of a batch are trained together


def batches_of(
    config: SweepConfig, results: Callable[[], Mapping[tuple[int, int], TrialResult]]
) -> Iterator[list[PlainData]]:
    """The settings of each batch of trials, by name.

    `results` returns those of all trials so far. A search that learns from them asks for it after
    each batch, also after batches of an earlier process, so that it goes on as it would have.

    Raises `ConfigError` for settings that do not fit together, or if Optuna is not installed.
    """
    if config.search == "random":
        yield config.trial_settings()
        return
    assert config.trials is not None  # `check` saw to it
    space = {**config.random, **config.grid}
    study, left = _study(config.search_seed), config.trials
    size = config.batch or math.ceil(left / BATCHES)
    first = 0
    while left > 0:
        asked = [study.ask() for _ in range(min(size, left))]
        yield [
            {name: _suggest(trial, name, part) for name, part in space.items()} for trial in asked
        ]
        _tell(study, asked, [results()[0, first + place] for place in range(len(asked))])
        first, left = first + len(asked), left - len(asked)


def _study(seed: int) -> "optuna.Study":
    try:
        import optuna
    except ImportError:
        raise ConfigError(
            "--search optuna needs Optuna; install it: pip install 'rlkit-jax[search]'"
        ) from None
    optuna.logging.get_logger("optuna").setLevel(logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    return optuna.create_study(direction="maximize", sampler=sampler)


def _suggest(trial: "optuna.Trial", name: str, space: Range | Values) -> Any:
    if not isinstance(space, Range):
        return space[trial.suggest_categorical(name, range(len(space)))]
    if space.is_whole:
        return trial.suggest_int(name, int(space.low), int(space.high), log=space.log)
    return space.rounded(trial.suggest_float(name, space.low, space.high, log=space.log))


def _tell(
    study: "optuna.Study", asked: "Sequence[optuna.Trial]", results: Sequence[TrialResult]
) -> None:
    import optuna

    for trial, result in zip(asked, results, strict=True):
        if math.isfinite(result.score):
            study.tell(trial, result.score)
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
