"""The flags that make this process one of several that train a run."""

import dataclasses
from typing import Literal

from rlkit.errors import require


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessFlags:
    """Several processes that train one run together (docs/scaling.md)."""

    distributed: Literal["auto"] | None = None
    """auto: this is one of several processes that Slurm, Open MPI, Kubernetes or a Cloud TPU
    started; JAX finds which.
    """
    coordinator: str | None = None
    """Address and port of process 0, such as 10.0.0.1:1234, in place of --distributed."""
    num_processes: int | None = None
    """How many processes train, with --coordinator."""
    process_id: int | None = None
    """Which one this is, from 0, with --coordinator."""
    process_timeout: float | None = None
    """Seconds of silence after which a process counts as lost, and the others end; 30 if not given.
    """


def join_processes(chosen: ProcessFlags) -> bool:
    """Starts them, if flags ask for it; whether this is the process that writes files.

    Raises what `start_processes` raises.
    """
    numbers = (chosen.coordinator, chosen.num_processes, chosen.process_id)
    is_given = any(x is not None for x in numbers)
    if chosen.distributed is None and not is_given:
        require(
            chosen.process_timeout is None,
            "--process-timeout is how long other processes may be silent, but there are none",
            "leave it out, or say where they are by --coordinator or --distributed auto",
        )
        return True
    require(
        chosen.distributed is None or not is_given,
        "--distributed auto and --coordinator, --num-processes or --process-id both say where the"
        " other processes are",
        "leave out --distributed",
    )
    from rlkit.training.processes.group import TIMEOUT, current
    from rlkit.training.processes.start import start_processes

    timeout = TIMEOUT if chosen.process_timeout is None else chosen.process_timeout
    start_processes(*numbers, timeout=timeout)
    return current().is_main
