"""Directories that others may not write to, whatever the umask is."""

from pathlib import Path

MODE = 0o755


def make_directory(path: Path) -> None:
    """Makes a directory and its missing parents; their owner alone may write there.

    `Path.mkdir(parents=True)` gives the parents what the umask allows.
    """
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(mode=MODE, exist_ok=True)
