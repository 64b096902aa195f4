"""The flags that say where the groups of a sweep are trained. Imports no launcher."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Ge

from rlkit.errors import require
from rlkit.validation import PositiveInt

if TYPE_CHECKING:
    from rlkit.training.sweeps.launchers.protocol import Launcher

LISTS = {"--sbatch": "partition=gpu time=4:00:00"}
OWNERS = {
    "address": "ray",
    "num_cpus": "ray",
    "num_gpus": "ray",
    "tries": "ray",
    "sbatch": "slurm",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LauncherFlags:
    """Where it is trained."""

    launcher: Literal["local", "ray", "slurm"] = "local"
    """Where the groups of a sweep are trained: in this process, one after the other; on the nodes
    of a Ray cluster; or as Slurm jobs, whose scripts are written and not submitted.
    """
    address: str | None = None
    """Ray cluster: auto (that of this machine) or host:port; None: one on this machine, which ends
    with the sweep.
    """
    num_cpus: PositiveInt | None = None
    """CPUs that a group takes on Ray; None: beside GPUs one, else those of the smallest node."""
    num_gpus: Annotated[int, Ge(0)] | None = None
    """GPUs that a group takes on Ray; None: one for each of --devices, if the cluster has any."""
    tries: PositiveInt = 3
    """How often Ray places a group whose process or node dies."""
    sbatch: tuple[str, ...] = ()
    """Options of sbatch by their long names, such as partition=gpu time=4:00:00 gpus=1."""


def check_launcher(asked: LauncherFlags) -> None:
    """Raises `ConfigError` for a flag of another launcher than the one that was chosen."""
    usual = LauncherFlags()
    for name, owner in OWNERS.items():
        flag = f"--{name.replace('_', '-')}"
        require(
            getattr(asked, name) == getattr(usual, name) or asked.launcher == owner,
            f"{flag} has no effect with --launcher {asked.launcher}",
            f"leave it out, or use --launcher {owner}",
        )


def make_launcher(asked: LauncherFlags, env: str | None) -> "Launcher | None":
    """The launcher of that name; None: the one that trains in this process.

    `env` is the environment that the user typed, if it is a class of their own. Raises
    `ConfigError` for options that it cannot have.
    """
    if asked.launcher == "ray":
        from rlkit.training.sweeps.launchers.ray import RayLauncher

        named = {name: getattr(asked, name) for name in ("address", "num_cpus", "num_gpus")}
        return RayLauncher(**named, tries=asked.tries, env=env)
    if asked.launcher == "slurm":
        from rlkit.training.sweeps.launchers.slurm import SlurmLauncher, sbatch_options

        return SlurmLauncher(options=sbatch_options(asked.sbatch), env=env)
    return None
