"""A Ray cluster as sweeps need it: its nodes, and commands as its tasks. Imports Ray late."""

import contextlib
import importlib
import logging
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rlkit import __version__
from rlkit.errors import ConfigError, RlkitError, RunDirectoryError, require
from rlkit.training.sweeps.directory import TOGETHER
from rlkit.training.sweeps.stores.store import SweepStore
from rlkit.validation import PlainData

LOCAL = "local"  # Ray's name for a cluster that begins and ends with this process
SECONDS = 60.0  # for a node to answer, and 10 of them for a cluster to be there


def ray_module() -> Any:
    """Ray. Raises `ConfigError` if it is not installed."""
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise ConfigError(
            "the launcher ray needs Ray; install it: pip install 'rlkit-jax[ray]'"
        ) from None


@contextlib.contextmanager
def connected(ray: Any, address: str | None) -> Iterator[None]:
    """Connects to a cluster, or starts one on this machine (None) and ends it.

    A process that is connected to one already stays so. Raises `ConfigError` if there is none.
    """
    if ray.is_initialized():
        yield
        return
    if address is not None:
        _require_reachable(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else Ray reports what it is used for
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    small = {"include_dashboard": False} if address is None else {}
    try:
        ray.init(address=address or LOCAL, **quiet, **small)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise ConfigError(
            f"cannot use the Ray cluster at {address or LOCAL} ({reason}); start one with"
            " `ray start --head`, or leave out --address to start one on this machine"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _require_reachable(address: str) -> None:
    """Raises `ConfigError` at once where Ray would wait for minutes."""
    require(
        "://" not in address,
        f"{address} is an address of Ray's client, which is no part of the cluster",
        "start rlkit on a machine of the cluster, with --address auto",
    )
    host, colon, port = address.rpartition(":")
    if not (colon and port.isdecimal()):  # auto, or what Ray has to say something about
        return
    try:
        socket.create_connection((host, int(port)), SECONDS / 6).close()
    except OSError as error:
        reason = error.strerror or "it does not answer"
        raise ConfigError(
            f"there is no Ray cluster at {address} ({reason}); start one with `ray start --head`,"
            " which says its address, or use --address auto on one of its machines"
        ) from None


def alive_nodes(ray: Any) -> list[PlainData]:
    """The nodes of the cluster that are there."""
    return [node for node in ray.nodes() if node["Alive"]]


def require_room(nodes: Sequence[PlainData], num_cpus: int, num_gpus: int) -> None:
    """Raises `ConfigError` if no node can ever take a group: Ray would wait for one."""
    sizes = [(size_of(node, "CPU"), size_of(node, "GPU")) for node in nodes]
    cpus, gpus = max(sizes, key=lambda size: (size[1] >= num_gpus, size[0]))
    require(
        any(cpu >= num_cpus and gpu >= num_gpus for cpu, gpu in sizes),
        f"a group takes {num_cpus} CPUs and {num_gpus} GPUs, and no node of the Ray cluster has"
        f" as many: the largest has {cpus} and {gpus}",
        f"use --num-cpus {max(cpus, 1)} --num-gpus {min(num_gpus, gpus)}, or start larger nodes"
        " first",
    )


def size_of(node: PlainData, resource: str) -> int:
    """How many CPUs or GPUs a node has."""
    return int(node["Resources"].get(resource, 0))


def require_shared(ray: Any, nodes: Sequence[PlainData], store: SweepStore) -> None:
    """Raises `RlkitError` unless each node has this rlkit, and sees what is written here."""
    require(
        store.is_shared,
        f"no other process sees {store.place}",
        "choose a --run-dir that all nodes see",
    )
    token = secrets.token_hex(8)
    marker = f"{TOGETHER}/marker-{token}"  # a new name: shared disks remember what was not there
    store.write(marker, token)
    try:
        for node, (found, version) in zip(nodes, _looks(ray, nodes, store, marker), strict=True):
            require(
                version == __version__,
                f"{_name(node)} has {version}, and this process rlkit {__version__}",
                "install the same on all nodes",
                RlkitError,
            )
            require(
                found == token,
                f"{_name(node)} does not see what this process writes to {store.place}"
                + (f" ({found})" if found else ""),
                "choose a --run-dir that all nodes see: a disk that they share, under the same"
                " path, or an address that they may read and write",
                RunDirectoryError,
            )
    finally:
        store.remove(marker)


def _looks(
    ray: Any, nodes: Sequence[PlainData], store: SweepStore, marker: str
) -> Iterator[tuple[str | None, str]]:
    """What each node finds in a file (or why it cannot look), and the version of its rlkit."""
    look = ray.remote(_look())
    on_node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    places = [on_node(node["NodeID"], soft=False) for node in nodes]
    asked = str(store.place), marker
    answers = [
        look.options(num_cpus=0, max_retries=0, scheduling_strategy=place).remote(*asked)
        for place in places
    ]
    for node, answer in zip(nodes, answers, strict=True):
        try:
            yield ray.get(answer, timeout=SECONDS)
        except ray.exceptions.RayError as error:
            raise RlkitError(
                f"{_name(node)} does not answer: {reason_of(error)}; end or repair it"
            ) from None


def _name(node: PlainData) -> str:
    return f"the node {node['NodeManagerAddress']} ({node['NodeManagerHostname']})"


def reason_of(error: BaseException) -> str:
    """The first sentence of an error of Ray's, which has paragraphs."""
    return str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".") or repr(error)


def command_task(ray: Any) -> Any:
    """A task that runs `rlkit`: `.remote(arguments, directory, place, log, variables)` → exit code.

    See `run_command`. To cancel the task is to send the command SIGTERM, and it ends with the
    task's process, however that ends.
    """
    return ray.remote(_command())


# Functions within functions travel as code: a node without rlkit can run them, and say so.


def _look() -> Callable[[str, str], tuple[str | None, str]]:
    def look(place: str, marker: str) -> tuple[str | None, str]:
        try:
            from rlkit import __version__ as version
        except ImportError as error:
            return None, f"no rlkit ({error})"
        try:
            from rlkit.training.sweeps.stores.store import open_store

            return open_store(place).read(marker), version
        except Exception as error:  # of another rlkit, or of another's store
            return str(error), version

    return look


def _command() -> Callable[[Sequence[str], str, str, str, dict[str, str]], int]:
    def command(
        arguments: Sequence[str], directory: str, place: str, log: str, variables: dict[str, str]
    ) -> int:
        from rlkit.training.sweeps.launchers.command import run_command

        return run_command(arguments, directory, place, log, variables)

    return command
