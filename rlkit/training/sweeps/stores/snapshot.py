"""Run directories as they are at one moment, as tar files."""

import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from rlkit.errors import CheckpointError, require
from rlkit.training.files.checkpointer import steps_in
from rlkit.training.logs.loaded_run import LOCK

CHECKPOINTS = "checkpoints"


def newest_step(path: Path) -> int:
    """The newest checkpoint in a run directory; -1 without one."""
    found = path / CHECKPOINTS
    return max(steps_in(found), default=-1) if found.is_dir() else -1


def files_of(path: Path) -> list[str]:
    """The files in a run directory that are whole, by their paths below it, in order."""
    return sorted(_walk(path))


def _walk(path: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(path):
        folders[:] = [name for name in folders if not _is_passing(name)]
        for name in files:
            found = os.path.join(folder, name)
            if not _is_passing(name) and name != LOCK and not os.path.islink(found):
                yield os.path.relpath(found, path)


def _is_passing(name: str) -> bool:
    """Whether it is being written, or removed."""
    return name.startswith(".tmp-") or ".orbax-checkpoint-tmp" in name or name == "deleted"


def pack(path: Path, folder: Path) -> tuple[int, Path]:
    """A run directory as a tar file in an empty folder, with its newest checkpoint, while it grows.

    The files are linked first, which takes no time, so that none is removed meanwhile.
    """
    links = folder / "links"
    while True:
        step = newest_step(path)
        shutil.rmtree(links, ignore_errors=True)
        for file in files_of(path):
            (links / file).parent.mkdir(parents=True, exist_ok=True)
            try:
                _link(path / file, links / file)
            except FileNotFoundError:
                continue  # an older checkpoint is removed
        if step == newest_step(path):  # then none of its files was missing
            break
    target = folder / "kept.tar"
    with tarfile.open(target, "w") as tar:
        for file in files_of(links):
            tar.add(links / file, arcname=file)
    shutil.rmtree(links)
    return step, target


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # the disk knows no links
        shutil.copyfile(source, target)


def is_below(name: str) -> bool:
    """Whether a file's path, as an address or a tar has it, stays in the directory it is for."""
    return not {"", ".", ".."} & set(name.split("/"))


def unpack(tar: Path, target: Path) -> None:
    """Makes a directory of what `pack` wrote. Raises `CheckpointError` for anything else."""
    try:
        _unpack(tar, target)
    except tarfile.TarError as error:
        raise CheckpointError(
            f"{tar.name} is damaged ({error}); remove it from the sweep's address, which loses what"
            " was trained since the checkpoint before"
        ) from None


def unpack_all(folder: Path) -> None:
    """Replaces the tars in a copy of a sweep by the run directories that they hold."""
    found = (folder / "together").glob("*-at-*.tar")
    for tar in sorted(found, key=lambda path: int(path.stem.rpartition("-at-")[2])):
        name, _, step = tar.stem.rpartition("-at-")
        trial = name.removeprefix("trial-")
        target = tar.parent / name if trial == name else folder / "trials" / trial
        if int(step) > newest_step(target):
            shutil.rmtree(target, ignore_errors=True)
            unpack(tar, target)
        tar.unlink()


def _unpack(tar: Path, target: Path) -> None:
    with tarfile.open(tar) as members:
        for member in members:
            require(
                member.isfile() and is_below(member.name),
                f"{tar} holds {member.name}, which rlkit does not write",
                "remove it from the sweep's address",
                CheckpointError,
            )
            (target / member.name).parent.mkdir(parents=True, exist_ok=True)
            source = members.extractfile(member)
            assert source is not None
            with source, (target / member.name).open("wb") as file:
                shutil.copyfileobj(source, file)
