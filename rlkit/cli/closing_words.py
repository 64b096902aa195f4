"""What `train`, `resume` and `evaluate` say at the end: scores, speed, the next commands."""

import json
import pathlib
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rlkit.training.logs.human_units import human_seconds
from rlkit.training.logs.statistics import standard_deviation

if TYPE_CHECKING:
    from rlkit.types import Measurements


def closing_words(
    history: Sequence["Measurements"],
    run_dir: str,
    env_flag: str = "",
    *,
    outside: Sequence[str] = (),
    is_stopped: bool = False,
) -> str:
    """The last evaluation, the speed, and the next commands to run.

    `history` has one evaluation per outer iteration and may be empty. `env_flag` is added to the
    commands; it starts with a space. `outside`: what of the run is not in `run_dir`. `is_stopped`:
    a signal ended the run early.
    """
    lines = ["", *_speed(run_dir)]
    evaluated = [evaluation for evaluation in history if "return" in evaluation]
    if evaluated:
        lines += [
            "",
            *_scores(
                np.atleast_2d(evaluated[-1]["return"]), np.atleast_2d(evaluated[-1]["length"])
            ),
        ]
    lines += ["", f"results      {run_dir}"]
    if (pathlib.Path(run_dir).expanduser() / "learning_curve.png").is_file():
        lines.append(f"plot         {run_dir}/learning_curve.png")
    typed = f"{shlex.quote(run_dir)}{env_flag}"
    lines.append(f"evaluate     rlkit evaluate {typed}")
    resume = f"rlkit resume {typed}"
    if outside:
        resume += f" --outside {shlex.join(outside)}"
    lines.append(
        f"continue     {resume}" if is_stopped else f"train on     {resume} --total-steps N"
    )
    return "\n".join(lines)


def mean_and_spread(values: np.ndarray) -> str:
    """Mean ± standard deviation of the finite values, padded for a column."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return "      nan          "
    return f"{finite.mean():9.2f} ± {standard_deviation(finite):<7.2f}"


def _scores(returns: np.ndarray, lengths: np.ndarray) -> list[str]:
    """A row for each seed (over its episodes) and one for all seeds (over their means); [S, E]."""
    several = "; all: over seeds" if len(returns) > 1 else ""
    lines = [
        "final evaluation, deterministic actions",
        f"mean ± standard deviation over {returns.shape[1]} episodes{several}",
        "seed index        return              length",
    ]
    rows = zip(returns, lengths, strict=True)
    lines += [
        f"{seed:<12}{mean_and_spread(scores)}{mean_and_spread(steps)}"
        for seed, (scores, steps) in enumerate(rows)
    ]
    if len(returns) > 1:
        lines.append(
            f"{'all':<12}{mean_and_spread(returns.mean(axis=1))}{mean_and_spread(lengths.mean(axis=1))}"
        )
    return [line.rstrip() for line in lines]


def _speed(run_dir: str) -> list[str]:
    """The run's size, and the speed of its last part without compiling, from its summary."""
    try:
        path = pathlib.Path(run_dir).expanduser() / "summary.json"
        summary = json.loads(path.read_text(encoding="utf-8"))
        steps, seeds = summary["env_steps"], summary["num_seeds"]
        seconds, compiling = summary["wall_seconds"], summary["compile_seconds"]
        speed = summary["env_steps_per_second"]
    except (OSError, ValueError, KeyError):
        return []
    size, over = (f"{seeds} x {steps:,}", " over all seeds") if seeds > 1 else (f"{steps:,}", "")
    if speed == 0:  # nothing was left to train
        return [f"{size} steps"]
    part = summary.get("part_seconds", seconds)
    is_resumed = seconds - part > 0.5  # rounded numbers of a run in one part differ as well
    of_what = f"; of this part's {human_seconds(part)}," if is_resumed else ", of which"
    return [
        f"{size} steps in {human_seconds(seconds)}{of_what} compiling took"
        f" {human_seconds(compiling)}; then {speed:,.0f} steps per second{over}"
    ]
