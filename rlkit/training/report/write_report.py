"""`write_report`: runs as one HTML page, which opens without a network."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rlkit.errors import did_you_mean, require
from rlkit.training.directories import write_output
from rlkit.training.logs.curve_arguments import check_curves, require_apart, usual_band
from rlkit.training.logs.curves import Band, Center, Group
from rlkit.training.logs.loaded_run import load_run
from rlkit.training.logs.loaded_runs import LoadedRuns
from rlkit.training.report.entries import Entry, Look, entries_of, metrics_in
from rlkit.training.report.page import page


def write_report(
    run_dirs: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    path: str | os.PathLike[str] = "report.html",
    *,
    metrics: Sequence[str] = (),
    group: Group = "run",
    center: Center = "mean",
    band: Band | Literal["auto"] = "auto",
    smooth: int = 1,
    title: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Writes finished or running runs as one HTML page; returns its path.

    The page has a table of results, curves with values under the pointer, settings with what
    differs between the runs, videos, versions, warnings and the log. It fetches nothing, so it can
    be opened, sent and kept as it is. Values of settings whose names look like secrets are masked.

    Args:
        metrics: names of metrics to draw, in order; (): all of them, those that people look at
            first before the others.
        group: which runs become one row and one curve, as in `plot_runs`.
        center: what stands for several seeds.
        band: what surrounds it; auto: the standard error of a mean, the 95 % bootstrap interval of
            anything else. The table always has the interval.
        smooth: each value of a curve is the mean of so many logged ones, the last of which is at
            its place.
        title: None says what was trained, as far as all runs agree.
        overwrite: replaces the file if it exists.

    Raises `RunDirectoryError` for a directory without a run, `ConfigError` for unknown arguments, a
    metric that no run has, a file that exists, or one that cannot be written.
    """
    run_dirs = [run_dirs] if isinstance(run_dirs, str | os.PathLike) else run_dirs
    require(len(run_dirs) > 0, "no run to report", "pass at least one run directory")
    check_curves(group=group, center=center, band=band, smooth=smooth)
    path = check_report_file(path, overwrite=overwrite)
    runs = LoadedRuns(load_run(directory) for directory in run_dirs)
    require_apart(runs)
    known = metrics_in(runs)
    unknown = next((name for name in metrics if name not in known), None)
    fix = did_you_mean(str(unknown), known) if known else "wait for the first evaluation"
    require(unknown is None, f"no run has the metric {unknown!r}", fix)
    entries = entries_of(runs, group)
    chosen = usual_band(center) if band == "auto" else band
    look = Look(center=center, band=chosen, smooth=smooth)
    return write_output(path, page(entries, look, metrics, title or _title(entries)))


def check_report_file(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """The path to write. Raises `ConfigError` if no report can be written there."""
    path = Path(path).expanduser()
    require(
        not path.is_dir(), f"{path} is a directory", f"name a file in it: {path / 'report.html'}"
    )
    is_page = path.suffix.lower() in (".html", ".htm")
    fix = f"write {path.with_suffix('.html').name}"
    require(is_page, f"a report is an .html file, got {path.name!r}", fix)
    is_free = overwrite or not os.path.lexists(path)
    fix = "choose another name, or overwrite it (--overwrite, overwrite=True)"
    require(is_free, f"{path} already exists", fix)
    return path


def _title(entries: Sequence[Entry]) -> str:
    """What all entries have in common: "ppo on gymnax/CartPole-v1", or a part of it."""
    if len(entries) == 1 and len(entries[0].runs) == 1:
        return f"{entries[0].name}: {_common(entries)}"
    return _common(entries)


def _common(entries: Sequence[Entry]) -> str:
    algorithms, envs = ({getattr(entry, x) for entry in entries} for x in ("algorithm", "env"))
    algorithm = algorithms.pop() if len(algorithms) == 1 else None
    env = envs.pop() if len(envs) == 1 else None
    if algorithm and env:
        return f"{algorithm} on {env}"
    return algorithm or env or "training runs"
