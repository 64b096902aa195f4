"""`RayLauncher`: places the groups of a sweep on the nodes of a Ray cluster."""

import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rlkit.errors import ConfigError, RlkitError, require, require_positive_integer
from rlkit.training.sweeps.directory import TOGETHER, SweepFiles
from rlkit.training.sweeps.launchers.fleet import Fleet
from rlkit.training.sweeps.launchers.log_reader import LogReader
from rlkit.training.sweeps.launchers.protocol import Say, Session, Watch
from rlkit.training.sweeps.launchers.ray_cluster import (
    alive_nodes,
    command_task,
    connected,
    ray_module,
    reason_of,
    require_room,
    require_shared,
    size_of,
)
from rlkit.training.sweeps.plan import Plan, plan_of
from rlkit.training.sweeps.shapes import Group
from rlkit.training.sweeps.standing import Standing
from rlkit.validation import PlainData

POLL = 0.5  # seconds between two looks at the groups
LATE = 30.0  # seconds in which a shared disk shows what another node wrote
MOST_TOLD = 3  # groups that an error tells about


@dataclasses.dataclass(frozen=True, kw_only=True)
class RayLauncher:
    """Places the groups of a sweep on the nodes of a Ray cluster, a process for each.

    A group whose process or node dies is placed again, and continues from its checkpoint. All
    nodes must see the sweep's directory under the same path. Raises `ConfigError` for settings that
    are not positive.
    """

    address: str | None = None
    """The cluster: "auto" for the one that this machine belongs to, or host:port; None: one on this
    machine, which begins and ends with the sweep.
    """
    num_cpus: int | None = None
    """CPUs that a group takes; None: beside GPUs one, else those of the smallest node."""
    num_gpus: int | None = None
    """GPUs that a group takes; None: as many as the run has devices, if the cluster has any."""
    tries: int = 3
    """How often a group is placed, if its process or node dies."""
    env: str | None = None
    """The environment of the runs again if it is your own class (module:Class)."""

    def __post_init__(self) -> None:
        require_positive_integer("tries", self.tries, example=3)
        require_positive_integer("num_cpus", self.num_cpus, example=4, none="the default")
        if self.num_gpus != 0:
            require_positive_integer("num_gpus", self.num_gpus, example=1, none="the default")

    @contextmanager
    def open(self, files: SweepFiles, watch: Watch, say: Say) -> Iterator[Session]:
        """See `Launcher`; raises `RlkitError` if a node does not see the sweep's directory."""
        ray = ray_module()
        with connected(ray, self.address):
            nodes = alive_nodes(ray)
            num_cpus, num_gpus = self._sizes(nodes, files.config.run.trainer.devices)
            require_room(nodes, num_cpus, num_gpus)
            require_shared(ray, nodes, files.store)
            count = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
            say(f"Ray: {count}; each group takes {num_cpus} CPUs and {num_gpus} GPUs")
            fleet = Fleet()
            watch(fleet)
            yield _RaySession(self, ray, files, fleet, say, num_cpus, num_gpus)

    def _sizes(self, nodes: Sequence[PlainData], devices: int) -> tuple[int, int]:
        """CPUs and GPUs of a group."""
        has_gpus = any(size_of(node, "GPU") for node in nodes)
        num_gpus = self.num_gpus
        if num_gpus is None:
            num_gpus = devices if has_gpus else 0
        cpus = [size_of(node, "CPU") for node in nodes if size_of(node, "CPU")]
        smallest = min(cpus, default=1)
        return self.num_cpus or (1 if num_gpus else smallest), num_gpus


@dataclasses.dataclass
class _Attempt:
    """A group that has been placed."""

    group: Group
    number: int  # from 1
    log: LogReader
    is_stopped: bool = False


@dataclasses.dataclass(frozen=True)
class _RaySession:
    launcher: RayLauncher
    ray: Any
    files: SweepFiles
    fleet: Fleet
    say: Say
    num_cpus: int
    num_gpus: int

    def plan(self, changes: Sequence[PlainData], first: int) -> Plan | None:
        """The plan, made by a node: groups have to fit into the memory of its devices.

        This process touches none, so that all of it is there for the groups.
        """
        if not self.files.has_plan(first):
            log = LogReader(self.files.store, f"{TOGETHER}/plan.log")
            task = self._start("--plan", log)
            while not self.ray.wait([task], timeout=POLL)[0]:
                if self.fleet.stop_reason is not None:
                    self.ray.cancel(task)
            code, reason = self._code(task)
            log.read()
            if self.fleet.stop_reason is not None:
                return None
            if code != 0:
                raise ConfigError(log.problem(f"no node could plan the trials, since {reason}"))
            _wait_for(lambda: self.files.has_plan(first))
        return plan_of(self.files, first)

    def train(self, plan: Plan, rung: int, groups: Sequence[Group]) -> bool:
        running = dict(self._place(group, 1) for group in groups)
        failures: list[str] = []
        while running:
            ended, _ = self.ray.wait(list(running), timeout=POLL)
            self._stop_if_asked(running)
            for attempt in running.values():
                self._show(attempt)
            for task in ended:
                attempt = running.pop(task)
                problem, may_go_on = self._outcome(task, attempt, plan, rung)
                if not problem:
                    self.files.collect()
                elif self.fleet.stop_reason is not None:
                    continue
                elif may_go_on and attempt.number < self.launcher.tries:
                    self._say_of(attempt.group, f"{problem}; placed again, from its checkpoint")
                    running |= [self._place(attempt.group, attempt.number + 1)]
                else:
                    failures.append(self._give_up(attempt, problem))
        self._require_all(failures, len(groups))
        return self.fleet.stop_reason is None or not Standing(self.files, plan).left(rung)

    def _stop_if_asked(self, running: Mapping[Any, _Attempt]) -> None:
        if self.fleet.stop_reason is None:
            return
        for task, attempt in running.items():
            if not attempt.is_stopped:  # a second signal would end it at once
                attempt.is_stopped = True
                self.ray.cancel(task)

    def _give_up(self, attempt: _Attempt, problem: str) -> str:
        """Says that a group is given up, and why; returns that for an error."""
        times = f", after {attempt.number} tries" if attempt.number > 1 else ""
        self._say_of(attempt.group, f"given up: {problem}{times}")
        return f"group {attempt.group.first:03d}: {problem}{times}"

    def _require_all(self, failures: Sequence[str], count: int) -> None:
        require(
            not failures,
            f"{len(failures)} of {count} groups were not trained:"
            f" {', '.join(failures[:MOST_TOLD])}",
            f"see {self.files.place}/{TOGETHER}/group-*.log, repair that, and go on with `rlkit"
            f" resume {self.files.place}`",
            RlkitError,
        )

    def _place(self, group: Group, number: int) -> tuple[Any, _Attempt]:
        attempt = _Attempt(group, number, LogReader(self.files.store, self.files.log(group.first)))
        return self._start(str(group.first), attempt.log), attempt

    def _start(self, what: str, log: LogReader) -> Any:
        """A task that trains a group, or plans."""
        env = [] if self.launcher.env is None else ["--env", self.launcher.env]
        # What it computes with is what Ray counts: XLA would take all cores of the node.
        variables = {} if self.num_gpus else {"NPROC": str(self.num_cpus)}
        options = {
            "num_cpus": self.num_cpus,
            "num_gpus": self.num_gpus,
            "max_retries": 0,  # they are counted here
            "scheduling_strategy": "SPREAD",
        }
        return (
            command_task(self.ray)
            .options(**options)
            .remote(
                ["sweep-group", str(self.files.place), what, *env, "--with-parent"],
                os.getcwd(),
                str(self.files.place),
                log.name,
                variables,
            )
        )

    def _outcome(self, task: Any, attempt: _Attempt, plan: Plan, rung: int) -> tuple[str, bool]:
        """What went wrong with a group ("": nothing), and whether its checkpoint is all it needs.

        Not if it ended with an error, since it would again.
        """
        code, reason = self._code(task)
        self._show(attempt)
        if code is None or code < 0 or code > 128:
            return reason, True
        if code > 0:
            return attempt.log.problem(reason), False
        is_there = _wait_for(lambda: attempt.group not in Standing(self.files, plan).left(rung))
        return "" if is_there else "its results are not in the sweep's directory", False

    def _code(self, task: Any) -> tuple[int | None, str]:
        """The exit code of a command, and what it says; None if it or its node died."""
        errors = self.ray.exceptions
        try:
            code = self.ray.get(task)
        except errors.TaskCancelledError:
            return None, "it was not begun"
        except errors.RayTaskError as error:
            return 1, f"its process could not be started ({error.cause})"
        except errors.RayError as error:
            return None, f"its process or node died ({reason_of(error)})"
        number = -code if code < 0 else code - 128
        ended = f"signal {number}" if number > 0 else f"exit code {code}"
        return code, f"its process ended with {ended}"

    def _show(self, attempt: _Attempt) -> None:
        for line in attempt.log.read():
            self._say_of(attempt.group, line)

    def _say_of(self, group: Group, text: str) -> None:
        self.say(f"group {group.first:03d}: {text}")


def _wait_for(is_there: Callable[[], bool]) -> bool:
    """Whether something is there on a shared disk, or soon is."""
    deadline = time.monotonic() + LATE
    while not is_there():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True
