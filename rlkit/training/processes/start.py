"""`start_processes`: makes this process one of several that train together."""

import math
import re

import jax
from jax._src import xla_bridge

from rlkit.errors import ConfigError, ProcessError, require
from rlkit.training.processes.channel import Channel
from rlkit.training.processes.group import PATIENCE, TIMEOUT, Processes, started

_LONGEST = 30 * 86_400  # seconds: JAX counts them in 32 bits
_MORE = 20.0  # seconds that JAX waits longer than rlkit, whose errors say more
_CURE = (
    "pass coordinator, num_processes and process_id (--coordinator HOST:PORT --num-processes P"
    " --process-id I)"
)


def start_processes(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    start_timeout: float = 300.0,
    timeout: float = TIMEOUT,
    patience: float = PATIENCE,
) -> None:
    """Makes this process one of several that train together; all of them call it.

    Call it first, before JAX computes anything or looks for devices. From then on every process
    makes the same calls: a `Trainer` trains on the devices of all, and process 0 alone writes files
    and calls callbacks.

    Args:
        coordinator: address and port of process 0, such as "10.0.0.1:1234", where it listens;
            neither encrypted nor authenticated, so keep it in a private network. None, as the
            next two: what Slurm, Open MPI, Kubernetes or a Cloud TPU say, as JAX finds it.
        num_processes: P, how many there are.
        process_id: which one this is, from 0 to P - 1.
        start_timeout: seconds in which all must have started.
        timeout: seconds of silence after which a process counts as lost. The others end seven
            seconds later at most, see docs/scaling.md.
        patience: seconds that processes which have come to a point where all must agree wait for
            the others.

    Raises `ConfigError` for arguments that cannot be, or if JAX was used before; `ProcessError` if
    the others do not come.
    """
    _check(coordinator, num_processes, process_id)
    for name, seconds in (
        ("start_timeout", start_timeout),
        ("timeout", timeout),
        ("patience", patience),
    ):
        problem = f"{name} must be from 1 to {_LONGEST:,} seconds, got {seconds}"
        fix = f"use for example {name}=300"
        require(1 <= seconds <= _LONGEST, problem, fix)
    require(
        not jax.distributed.is_initialized(),
        "the processes were started already",
        "call start_processes once",
    )
    require(
        not xla_bridge.backends_are_initialized(),
        "processes were started too late: JAX has looked for its devices already",
        "call start_processes at the top of the script, before anything computes",
    )
    if "jax_enable_preemption_service" in jax.config.values:
        jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM
    host = None if coordinator is None else coordinator.rpartition(":")[0]
    is_given = coordinator is not None
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            cluster_detection_method="deactivate" if is_given else None,
            coordinator_bind_address=coordinator if is_given and _is_loopback(host) else None,
            initialization_timeout=math.ceil(start_timeout),
            heartbeat_timeout_seconds=math.ceil(timeout + _MORE),
            shutdown_timeout_seconds=math.ceil(_MORE),
        )
    except ValueError as error:
        raise ConfigError(f"JAX found no cluster here ({_first_line(error)}); {_CURE}") from None
    except (RuntimeError, jax.errors.JaxRuntimeError) as error:
        raise ProcessError(
            f"process {process_id if is_given else ''} could not join the others"
            f" ({_first_line(error)}); start all of them within {start_timeout:g} s, with the same"
            " coordinator and as many as num_processes says"
        ) from None
    from jax._src import distributed  # its client has no public name

    client, index = distributed.global_state.client, distributed.global_state.process_id
    count = distributed.global_state.num_processes
    channel = Channel(client)
    started(Processes(channel, index=index, count=count, timeout=timeout, patience=patience))


def _check(coordinator: str | None, num_processes: int | None, process_id: int | None) -> None:
    given = [x is not None for x in (coordinator, num_processes, process_id)]
    require(
        all(given) or not any(given),
        "only some of coordinator, num_processes and process_id are set",
        f"{_CURE}, or none of them where JAX finds the cluster itself",
    )
    if coordinator is None or num_processes is None or process_id is None:
        return
    port = re.fullmatch(r".+:([0-9]{1,5})", coordinator)
    require(
        port is not None and 1 <= int(port[1]) <= 65_535,
        f"coordinator must be an address and a port, got {coordinator!r}",
        'use for example "10.0.0.1:1234"',
    )
    require(
        num_processes >= 1,
        f"num_processes must be positive, got {num_processes}",
        "say how many processes train",
    )
    require(
        0 <= process_id < num_processes,
        f"process_id must be from 0 to {num_processes - 1}, got {process_id}",
        "number the processes from 0",
    )


def _is_loopback(host: str | None) -> bool:
    return host is not None and (host == "localhost" or host.startswith("127."))


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
