"""Directories and files that others may not write to, whatever the umask is."""

import errno
import os
import secrets
import shlex
import stat
from pathlib import Path

from rlkit.errors import ConfigError, DiskError, RunDirectoryError, did_you_mean, require

MODE = 0o755
SWEEP = "sweep.yaml"  # makes a directory that of a sweep


def absolute_path(path: str | os.PathLike[str]) -> Path:
    """The path from the root; `~` is the user's home directory."""
    return Path(os.path.abspath(os.path.expanduser(path)))


def is_address(path: str | os.PathLike[str]) -> bool:
    """Whether it is an address, such as gs://bucket/my-sweep, and not a path."""
    return "://" in os.fspath(path)


def require_no_address(path: str | os.PathLike[str]) -> None:
    """Raises `RunDirectoryError` for the address of an object store, such as gs://bucket/run.

    Runs lock their directory, and replace files in it: a bucket knows neither.
    """
    require(
        not is_address(path),
        f"{os.fspath(path)} is an address, but runs are written to directories",
        "name a directory, for several machines one that all of them see, and copy it afterwards;"
        " a sweep may be written to an address (rlkit sweep)",
        RunDirectoryError,
    )


def require_copied(path: str | os.PathLike[str]) -> None:
    """Raises `RunDirectoryError` for an address where something is read that needs a directory."""
    text = os.fspath(path).rstrip("/")
    name = text.rpartition("/")[2]
    require(
        not is_address(text),
        f"{text} is an address, and runs are read from directories",
        f"copy it first: rlkit copy {shlex.quote(text)} {shlex.quote(f'runs/{name}')}",
        RunDirectoryError,
    )


def private_directory(path: str) -> str | None:
    """Makes a directory that is its owner's alone; returns what is wrong with it, if anything."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.makedirs(path, mode=0o700, exist_ok=True)
        found = os.stat(path)
    except OSError as error:
        return f"cannot use {path} ({error.strerror})"
    if found.st_uid != os.getuid():
        return f"{path} belongs to another user"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{path} is writable by others (`chmod 700` fixes that)"
    return None if os.access(path, os.W_OK | os.X_OK) else f"{path} is not writable"


def make_directory(path: Path) -> None:
    """Makes a directory and its missing parents; their owner alone may write there.

    `Path.mkdir(parents=True)` gives the parents what the umask allows.
    """
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(mode=MODE, exist_ok=True)


def owner_writes(path: str, flags: int) -> int:
    """An opener for `open`: only the owner of a new file may change it, whatever the umask is."""
    return os.open(path, flags, 0o644)


def near_run(path: str | os.PathLike[str]) -> str:
    """What to name in place of the path of a run that holds none; "" if nothing is alike."""
    wanted = Path(path).expanduser()
    if (wanted / SWEEP).is_file():
        one, every = f"{wanted}/trials/000", f"{wanted}/trials/*"
        return f"it holds a sweep: name one of its trials, such as {one}, or all of them, {every}"
    if wanted.exists():
        above = [each for each in absolute_path(path).parents[:2] if _looks_like_run(each)]
        return f"name the run that it is a part of: {_from_here(above[0])}" if above else ""
    if not wanted.parent.is_dir():
        return ""
    runs = [str(found.parent) for found in wanted.parent.glob("*/config.yaml")]
    hint = did_you_mean(str(wanted), runs, cutoff=0.6)
    return hint if hint.startswith("did you mean") else ""


def _from_here(path: Path) -> Path:
    """The path as short as it can be typed here."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _looks_like_run(path: Path) -> bool:
    """Whether there is what a run writes beside its settings; others have a config.yaml as well."""
    has_rows = any((path / name).exists() for name in ("metrics.jsonl", "checkpoints"))
    return has_rows and (path / "config.yaml").is_file()


def write_error(error: OSError) -> type[RunDirectoryError]:
    """What to raise for a failed write: a disk that is full or broken is no wrong setting."""
    is_disk = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
    return DiskError if is_disk else RunDirectoryError


def write_output(path: Path, content: bytes) -> Path:
    """Writes a file that was asked for, whole or not at all; an older one is replaced.

    Raises `ConfigError` if it cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        make_directory(target.parent)
        _replace(target, content, stat.S_IMODE(target.stat().st_mode) if target.exists() else None)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"cannot write {path}: {reason}; choose another file") from None
    return path


def write_atomically(target: Path, text: str) -> None:
    """Writes the whole file or nothing, even if the power fails.

    Raises `RunDirectoryError`, or `DiskError`, and leaves nothing behind if it cannot.
    """
    try:
        _replace(target, text.encode(), 0o644)
    except OSError as error:
        problem = f"cannot write {target}: {error.strerror}; check the disk"
        raise write_error(error)(problem) from None


def _replace(target: Path, content: bytes, mode: int | None) -> None:
    """Writes the whole file or nothing; the one before stays until this one is on the disk.

    `mode` says who may read it; None: whom the umask lets.
    """
    temporary = target.parent / f".tmp-{secrets.token_hex(4)}-{target.name}"[:72]
    try:
        with open(temporary, "xb", opener=owner_writes) as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
