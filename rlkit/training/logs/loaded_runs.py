"""`load_runs`: several runs, by their directories or by patterns. Imports no JAX."""

import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rlkit.errors import RunDirectoryError, require
from rlkit.training.logs.loaded_run import LoadedRun, holds_run, load_run, to_frame

if TYPE_CHECKING:
    import pandas as pd

_ABOUT = ("run", "algorithm", "env")  # columns of a frame that tell runs apart


class LoadedRuns(tuple[LoadedRun, ...]):
    """A tuple of runs; made by `load_runs`, or of a selection: `LoadedRuns(runs[:2])`."""

    @property
    def names(self) -> list[str]:
        """The name of each run in a frame: the shortest end of its path that is its alone."""
        parts = [run.directory.resolve().parts for run in self]
        for length in range(1, max(map(len, parts), default=0) + 1):
            names = ["/".join(part[-length:]) for part in parts]
            if len(set(names)) == len(set(parts)):
                return names
        return [str(run.directory) for run in self]

    def frame(self) -> "pd.DataFrame":
        """The rows of `LoadedRun.frame` of all runs, one run after the other.

        The first columns say which run it is (`names`), its algorithm and its env.
        """
        rows = []
        for name, run in zip(self.names, self, strict=True):
            about = dict(zip(_ABOUT, (name, run.algorithm, run.env), strict=True))
            rows += [about | row for row in run.rows()]
        return to_frame(rows, _ABOUT)


def load_runs(*patterns: str | os.PathLike[str]) -> LoadedRuns:
    """The runs in directories, or in all directories that match a pattern such as `runs/*`.

    `**` matches folders within folders. What a pattern matches is sorted by name, and skipped if it
    holds no run; a run that is found twice comes once. Raises `RunDirectoryError` if there is no
    run, or for a directory without one that was named itself, and the errors of `load_run`.
    """
    require(bool(patterns), "no run to load", "pass directories or patterns: load_runs('runs/*')")
    fix = "pass them one by one: load_runs(*directories)"
    for pattern in patterns:
        require(
            isinstance(pattern, str | os.PathLike), f"{pattern!r} is not a path or pattern", fix
        )
    paths = {path.resolve(): path for pattern in patterns for path in _matching(pattern)}
    require(
        bool(paths),
        f"no run matches {' or '.join(map(repr, map(str, patterns)))} in {os.getcwd()}",
        "pass run directories, or a pattern that matches some",
        RunDirectoryError,
    )
    return LoadedRuns(load_run(path) for path in paths.values())


def _matching(pattern: str | os.PathLike[str]) -> Iterator[Path]:
    path = Path(pattern).expanduser()
    if path.exists() or not glob.has_magic(str(path)):
        yield path
    else:
        found = sorted(glob.glob(str(path), recursive=True))
        yield from (each for each in map(Path, found) if holds_run(each))
