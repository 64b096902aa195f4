"""Plots of finished or running training runs, from their `metrics.jsonl`."""

import dataclasses
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import yaml

from rlkit.errors import ConfigError, RunDirectoryError, did_you_mean, require
from rlkit.training.logs.human_units import human_count
from rlkit.training.logs.records import Record, read_records

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colorblind-safe palette, without its yellow, which is too pale on white.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", ":", "-.")
_LABELS = {
    "eval/avg_return": "average return per evaluation episode",
    "eval/avg_length": "average episode length (steps)",
}
_MOST_SEED_LINES = 10
_FORMATS = (".png", ".pdf", ".svg")
_MOST_COLUMNS = 3  # of panels


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Curve:
    """One run: P points, S seeds (S = 0 if only averages were logged). Missing values are NaN."""

    name: str
    algorithm: str | None  # None: config.yaml does not say
    env: str | None
    x: np.ndarray  # [P]
    mean: np.ndarray  # [P]
    seeds: np.ndarray  # [S, P]


def learning_curve(
    run_dirs: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    metric: str = "eval/avg_return",
    x: Literal["env_steps", "wall_seconds"] = "env_steps",
    title: str | None = None,
) -> Path:
    """Plots `metric` of each run over steps or time, averaged over seeds; returns the file's path.

    Each environment has a panel of its own. A single run also shows each seed as a thin line;
    several runs (or more than 10 seeds) show the standard error of the mean as a band. The ending
    of `output` chooses the format: png, pdf or svg. `title=None` says what was trained, as far as
    all runs agree.

    Raises `RunDirectoryError` for a directory without a run, `ConfigError` if there is nothing to
    plot or the file cannot be written.
    """
    if isinstance(run_dirs, str | os.PathLike):
        run_dirs = [run_dirs]
    require(len(run_dirs) > 0, "no run to plot", "pass at least one run directory")
    require(
        x in ("env_steps", "wall_seconds"),
        f"unknown x axis {x!r}",
        did_you_mean(x, ("env_steps", "wall_seconds")),
    )
    _require_format(Path(output))
    names = _names([Path(directory) for directory in run_dirs])
    curves = [
        _read_curve(Path(path), name, metric, x) for path, name in zip(run_dirs, names, strict=True)
    ]
    return _draw(curves, Path(output), metric=metric, x=x, title=title)


def _require_format(output: Path) -> None:
    """Raises `ConfigError` unless the ending says how to draw."""
    kind = f"a {output.suffix} file" if output.suffix else f"{output}, which has no ending"
    endings = f"{', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}"
    known = output.suffix.lower() in _FORMATS
    require(known, f"cannot draw {kind}", f"choose a name that ends in {endings}")


def _trained(directory: Path) -> tuple[str | None, str | None]:
    """(algorithm, environment id) by config.yaml; None for what it does not say."""
    try:
        settings = yaml.safe_load((directory / "config.yaml").read_text(encoding="utf-8"))
        algorithm, env = settings.get("algorithm"), settings.get("env", {}).get("id")
    except (OSError, ValueError, AttributeError, yaml.YAMLError):
        return None, None
    return (
        algorithm if isinstance(algorithm, str) else None,
        env if isinstance(env, str) else None,
    )


def _read_curve(directory: Path, name: str, metric: str, x: str) -> _Curve:
    require(
        (directory / "metrics.jsonl").is_file(),
        f"{directory} does not contain a run",
        "pass the run_dir of a training run, a directory with a metrics.jsonl",
        RunDirectoryError,
    )
    records = read_records(directory / "metrics.jsonl")
    matching = [record for record in records if metric in record.metrics]
    if not matching:
        known = sorted({key for record in records for key in record.metrics})
        require(
            bool(known),
            f"{directory} has no metrics yet",
            "wait for its first evaluation, or train longer",
        )
        fix = did_you_mean(metric, known)
        raise ConfigError(f"{directory} has no metric {metric!r}; {fix} It has {', '.join(known)}")
    finite = any(np.isfinite(record.metrics[metric]) for record in matching)
    require(
        finite,
        f"{directory} has no finite value of {metric!r}",
        "check whether the run diverged, or choose another metric",
    )
    return _curve(matching, name, metric, x, *_trained(directory))


def _curve(
    records: list[Record], name: str, metric: str, x: str, algorithm: str | None, env: str | None
) -> _Curve:
    """Aligns the seeds by the env_steps of their records, the only axis they share."""
    places = {
        step: place for place, step in enumerate(sorted({record.env_steps for record in records}))
    }
    seeds = {
        seed: row
        for row, seed in enumerate(
            sorted({record.seed for record in records if record.seed is not None})
        )
    }
    values = np.full((len(seeds), len(places)), np.nan)
    averages = np.full(len(places), np.nan)
    times: dict[int, list[float]] = defaultdict(list)
    for record in records:
        place, value = places[record.env_steps], record.metrics[metric]
        value = value if np.isfinite(value) else np.nan
        times[place].append(record.wall_seconds)
        if record.seed is None:
            averages[place] = value
        else:
            values[seeds[record.seed], place] = value
    # If the average was not logged: NaN if any seed is missing, since a mean over fewer seeds would
    # jump.
    mean = np.where(np.isnan(averages), values.mean(axis=0), averages) if seeds else averages
    seconds = np.array([np.mean(times[place]) for place in range(len(places))])
    axis = np.array(list(places), float) if x == "env_steps" else seconds
    return _Curve(name=name, algorithm=algorithm, env=env, x=axis, mean=mean, seeds=values)


def _draw(curves: list[_Curve], output: Path, *, metric: str, x: str, title: str | None) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels: dict[str | None, list[_Curve]] = defaultdict(list)
    for curve in curves:
        panels[curve.env].append(curve)
    columns = min(len(panels), _MOST_COLUMNS)
    rows = -(-len(panels) // columns)
    size = (6.8, 4.2) if len(panels) == 1 else (4.6 * columns, 3.6 * rows)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    title = _about(curves) if title is None else title
    captions: list[str] = []
    known = list(dict.fromkeys(curve.algorithm for curve in curves))
    for index, (env, shown) in enumerate(panels.items()):
        axes = figure.add_subplot(rows, columns, index + 1)
        places = _places(shown, known)
        note = _draw_panel(axes, shown, places, metric=metric, x=x, alone=len(curves) == 1)
        if len(panels) == 1:
            axes.set_title(title, loc="left", fontsize=12)
            axes.set_title(note, loc="right", fontsize=8, color="0.35")
        else:
            axes.set_title(env or "environment not recorded", loc="left", fontsize=10)
            captions += [note] if note and note not in captions else []
    if len(panels) > 1:
        figure.suptitle(title, fontsize=12)
        figure.supxlabel("\n".join(captions), x=1.0, ha="right", fontsize=8, color="0.35")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(output, format=output.suffix[1:].lower(), dpi=150)
    except OSError as error:
        raise ConfigError(
            f"cannot write {output}: {error.strerror or error}; choose another output file"
        ) from None
    return output


def _about(curves: list[_Curve]) -> str:
    """What all of these runs have in common: "ppo on gymnax/CartPole-v1", or a part of it."""
    algorithms, envs = {curve.algorithm for curve in curves}, {curve.env for curve in curves}
    algorithm = algorithms.pop() if len(algorithms) == 1 else None
    env = envs.pop() if len(envs) == 1 else None
    return f"{algorithm} on {env}" if algorithm and env else algorithm or env or ""


def _places(curves: list[_Curve], algorithms: list[str | None]) -> list[int]:
    """The place of each run's colour: that of its algorithm, if every run has another one."""
    own = [curve.algorithm for curve in curves]
    if None in own or len(set(own)) < len(own):
        return list(range(len(curves)))
    return [algorithms.index(algorithm) for algorithm in own]


def _draw_panel(
    axes: "Axes", curves: list[_Curve], places: list[int], *, metric: str, x: str, alone: bool
) -> str:
    """Plots the runs in one environment; returns a caption for their seeds.

    `places` are those of their colours. `alone`: there is no other run in the picture.
    """
    divisor, x_label = _x_scale(curves, x)
    notes = [
        _draw_curve(axes, curve, place, divisor, alone=alone)
        for curve, place in zip(curves, places, strict=True)
    ]
    _decorate(axes, x, x_label, _LABELS.get(metric, metric))
    if not alone:
        outside: dict[str, Any] = (
            {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
            if len(curves) > 5
            else {"loc": "best"}
        )
        axes.legend(fontsize=9, framealpha=0.85, edgecolor="0.85", **outside)
        return "band: ± standard error over seeds" if any(notes) else ""
    return notes[0]


def _draw_curve(axes: "Axes", curve: _Curve, index: int, divisor: float, *, alone: bool) -> str:
    """Plots one run; returns a caption for its seeds."""
    color = _COLORS[index % len(_COLORS)]
    dashes = _DASHES[index // len(_COLORS) % len(_DASHES)]
    x, seeds = curve.x / divisor, len(curve.seeds)
    drawn = np.isfinite(curve.mean)
    lone = "o" if drawn.sum() == 1 else None
    axes.plot(
        x[drawn],
        curve.mean[drawn],
        dashes,
        color=color,
        lw=2,
        label=curve.name,
        marker=lone,
        zorder=3,
    )
    if seeds < 2:
        return ""
    if alone and seeds <= _MOST_SEED_LINES:
        for values in curve.seeds:
            shown = np.isfinite(values)
            axes.plot(x[shown], values[shown], color=color, lw=0.8, alpha=0.4, zorder=2)
        return f"mean of {seeds} seeds; thin: each seed"
    error = curve.seeds.std(axis=0, ddof=1) / np.sqrt(seeds)
    axes.fill_between(
        x, curve.mean - error, curve.mean + error, color=color, alpha=0.2, lw=0, zorder=2
    )
    return f"mean of {seeds} seeds; band: ± standard error"


def _decorate(axes: "Axes", x: str, x_label: str, y_label: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10], integer=x == "env_steps"))
    if x == "env_steps":
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: human_count(value)))
    low, high = axes.get_ylim()
    if max(abs(low), abs(high)) >= 10_000:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: human_count(value)))
    axes.grid(color="0.9", lw=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.02)
    left, right = axes.dataLim.intervalx
    if left == right:  # a single point would otherwise get an axis with tiny fractions
        axes.set_xlim(left - 1, right + 1)
    axes.spines[["top", "right"]].set_visible(False)


def _x_scale(curves: list[_Curve], x: str) -> tuple[float, str]:
    if x == "env_steps":
        return 1.0, "environment steps"
    longest = max(float(curve.x.max()) for curve in curves)
    if longest > 7200:
        return 3600.0, "wall time (h)"
    return (60.0, "wall time (min)") if longest > 300 else (1.0, "wall time (s)")


def _names(directories: list[Path]) -> list[str]:
    """The shortest path suffixes that distinguish the runs."""
    parts = [directory.resolve().parts for directory in directories]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(set(parts)):
            return names
    return [str(directory) for directory in directories]
