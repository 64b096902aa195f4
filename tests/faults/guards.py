"""What guards against NaN and what checksums cost, as shares of the time of training.

    python tests/faults/guards.py --all

Guards: the same program with and without them, in turns, by the medians of CPU time on one thread.
Checksums: the CPU time of those of one save, per outer iteration of the default length.
"""

import contextlib
import random
import statistics
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from attacked_runs import ROOT  # noqa: F401  (first: it sets the path)
from record import Record, Row, attack

SAMPLE, FIGURE = 3, 31  # rounds
STEPS = {"ppo": ("gymnax/CartPole-v1", 25_000), "sac": ("gymnax/Pendulum-v1", 1_000)}


def main(dice: random.Random, directory: Path, is_sample: bool) -> dict[str, Any]:
    """The shares in percent, by algorithm; the largest of them count."""
    rounds, guards, checksums = SAMPLE if is_sample else FIGURE, {}, {}
    for algorithm in STEPS:
        with _without_guards():
            bare = _trainer(algorithm)
            bare.train_epoch()
        guarded = _trainer(algorithm)
        guarded.train_epoch()
        seconds: dict[Any, list[float]] = {guarded: [], bare: []}
        for number in range(rounds):
            for trainer in (guarded, bare) if number % 2 else (bare, guarded):
                seconds[trainer].append(_timed(trainer.train_epoch))
        usual, without = (statistics.median(seconds[trainer]) for trainer in (guarded, bare))
        guards[algorithm] = round(100 * (usual / without - 1), 2)
        make = _checksums(guarded)
        saving = statistics.median(_timed(make) for _ in range(rounds))
        checksums[algorithm] = round(100 * saving / usual, 2)
    found = {"rounds": rounds, "guards_percent": guards, "checksums_percent": checksums}
    return found | {"steps_per_save": {k: steps for k, (_, steps) in STEPS.items()}, "failures": []}


def _trainer(algorithm: str) -> Any:
    """A trainer with the default settings of the algorithm, and one outer iteration to time."""
    from rlkit.training.from_config import build
    from rlkit.training.run_config import from_dict

    env, steps = STEPS[algorithm]
    settings: dict[str, Any] = {"algorithm": algorithm, "env": {"id": env}}
    if algorithm == "ppo":
        both = {"normalize_observations": True, "normalize_rewards": True}
        settings["hyperparameters"] = both
    length = {"total_steps": 20 * steps, "num_checkpoints": 20, "enable_evaluation": False}
    settings["trainer"] = length | {"logger_config": None, "checkpointer_config": None}
    trainer = build(from_dict(settings))
    trainer.init(0)
    return trainer


@contextlib.contextmanager
def _without_guards() -> Iterator[None]:
    """What is compiled in the block takes every update and every statistic, and counts nothing."""
    import optax

    def update(
        is_valid: Any,
        optimizer: Any,
        gradients: Any,
        params: Any,
        state: Any,
        *packing: Any,
        **extra: Any,
    ) -> Any:
        change, state = optax.with_extra_args_support(optimizer).update(
            gradients, state, params, **extra
        )
        pack = packing[0]
        new = optax.apply_updates(pack.pack(params), pack.pack(change))
        return pack.unpack(new), state

    def and_valid(is_valid: Any, *arguments: Any, **extra: Any) -> Any:
        return *update(is_valid, *arguments, **extra), is_valid

    with contextlib.ExitStack() as patches:
        for name, function in {
            "rlkit.algorithms.gradient_step.updated_if": update,
            "rlkit.algorithms.gradient_step._updated_if_finite": and_valid,
            "rlkit.algorithms.rollout_statistics.finite_or": lambda new, old: new,
            "rlkit.training.core.module.count_unsound": lambda rollout, action_space: {},
        }.items():
            patches.enter_context(mock.patch(name, function))
        yield


def _checksums(trainer: Any) -> Callable[[], None]:
    """The function that makes the checksums of a save, of leaves that are on the host already."""
    from rlkit.training.files.checkpoint_items import to_items
    from rlkit.training.files.checkpoint_leaves import array_bytes, fetch

    found = [leaf for _, leaves in fetch(to_items(trainer.state)).values() for leaf in leaves]

    def make() -> None:
        for leaf in found:
            zlib.crc32(array_bytes(leaf))

    return make


def _timed(function: Callable[[], object]) -> float:
    """CPU seconds of this process."""
    begun = time.process_time()
    function()
    return time.process_time() - begun


def rows(record: Record) -> list[Row]:
    """The rows of the table: what is attacked, how often, and what came of it."""
    guards, checksums = (
        ", ".join(f"{share:.1f} % ({name.upper()})" for name, share in record[kind].items())
        for kind in ("guards_percent", "checksums_percent")
    )
    what = "cost of guards against NaN and of checksums, of the training time"
    return [(what, f"{record['rounds']} rounds", f"guards {guards}; checksums {checksums}")]


if __name__ == "__main__":
    attack("guards", main)
