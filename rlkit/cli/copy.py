"""`rlkit copy`: copies a sweep from an address to a directory."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Annotated

import tyro

from rlkit.cli import flags
from rlkit.errors import RunDirectoryError, require
from rlkit.training.directories import absolute_path, is_address

COMMAND = "rlkit copy"
EXAMPLES = f"""examples:
  {COMMAND} s3://bucket/my-sweep runs/my-sweep"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CopyFlags:
    """Copies what is at ADDRESS, such as a sweep, to a new DIRECTORY, where it can be read.

    `rlkit plot`, `evaluate` and the like read directories. `rlkit resume` goes on with the copy.
    """

    address: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ADDRESS")]
    """Address of a sweep, or of anything in it: s3://bucket/my-sweep/trials/003."""
    directory: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIRECTORY")]
    """New directory."""


def run(arguments: Sequence[str]) -> int:
    """Copies it and returns the exit code."""
    chosen = flags.parse(CopyFlags, arguments, command=COMMAND, epilogue=EXAMPLES)
    require(
        is_address(chosen.address) and not is_address(chosen.directory),
        f"it copies an address to a directory, got {chosen.address} and {chosen.directory}",
        f"use `{COMMAND} s3://bucket/my-sweep runs/my-sweep`",
    )
    target = absolute_path(chosen.directory)
    require(
        not os.path.lexists(target),
        f"{chosen.directory} already exists",
        "choose a new directory",
        RunDirectoryError,
    )
    from rlkit.training.sweeps.stores.address_store import AddressStore

    count = AddressStore(chosen.address).copy_to(target)
    require(count > 0, f"{chosen.address} holds nothing", "check the address", RunDirectoryError)
    print(f"{count} files in {chosen.directory}")
    return 0
