"""Training throughput of rlkit and its peers: same tasks, same machine, alternating runs.

    RLKIT_PEERS=<directory> python benchmarks/throughput.py [TASK ...] [--rounds 5]

Prints a Markdown table per task and writes the raw record to benchmarks/results/. README.md
explains how to set up the peers.
"""

import argparse
import contextlib
import dataclasses
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from records import HERE, add_output, add_rounds, in_turns, markdown, now, write
from tasks import GPU_TASKS, TASKS, OffPolicyTask

TIMEOUT_SECONDS = 900.0
# All others are peers
OURS = (
    "rlkit",
    "rlkit-before",
    "rlkit-trainer",
    "rlkit-overlap",
    "rlkit-overlap-before",
    "reference",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contender:
    name: str
    python: Path
    drivers: dict[tuple[str, ...], str]
    """The driver for each `kind` of task that the contender supports."""
    paths: dict[str, Path] = dataclasses.field(default_factory=dict)
    """Environment variables that must name existing paths."""
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    """Additional environment variables."""
    benchmarks: Path = HERE
    """The folder of its drivers, in the checkout of rlkit that they import."""

    def missing(self) -> str | None:
        """Why it cannot run here, or None."""
        for path in (self.python, *self.paths.values()):
            if not path.exists():
                return f"there is no {path}"
        return None


def contenders(before: Path | None = None) -> Iterator[Contender]:
    """rlkit in this interpreter, and the peers found through RLKIT_PEERS.

    `before` is another checkout of rlkit to compare with, which runs in this interpreter too.
    """
    own = {
        ("ppo", "gymnax"): "rlkit_fit.py",
        ("ppo", "gymnax", "seeds"): "rlkit_trainer.py",
        ("convolutional_ppo", "gymnax"): "rlkit_fit.py",
        ("recurrent_ppo", "gymnax"): "rlkit_fit.py",
        ("ppo", "gymnasium"): "rlkit_host_ppo.py",
        ("sac", "gymnax"): "rlkit_fit.py",
        ("dqn", "gymnax"): "rlkit_fit.py",
        ("sac", "gymnasium"): "rlkit_host_sac.py",
        ("ppo", "navix"): "rlkit_fit.py",
        ("ppo", "craftax"): "rlkit_fit.py",
        ("ppo", "pgx"): "rlkit_fit.py",
        ("recurrent_ppo", "xminigrid"): "rlkit_fit.py",
        ("a2c", "jumanji"): "rlkit_fit.py",
    }
    overlap = {("sac", "gymnasium"): "rlkit_host_sac_overlap.py"}
    yield Contender(name="rlkit", python=Path(sys.executable), drivers=own)
    if before is not None:
        earlier = Contender(
            name="rlkit-before",
            python=Path(sys.executable),
            drivers=own,
            benchmarks=before.resolve() / "benchmarks",
        )
        yield earlier
    single = dict.fromkeys(
        [("ppo", "gymnax"), ("sac", "gymnax"), ("dqn", "gymnax")], "rlkit_trainer.py"
    )
    yield Contender(name="rlkit-trainer", python=Path(sys.executable), drivers=single)
    yield Contender(name="rlkit-overlap", python=Path(sys.executable), drivers=overlap)
    if before is not None:
        yield dataclasses.replace(earlier, name="rlkit-overlap-before", drivers=overlap)
    yield Contender(
        name="reference",
        python=Path(sys.executable),
        drivers={("ppo", "gymnax"): "reference_ppo.py"},
    )
    yield Contender(
        name="navix", python=Path(sys.executable), drivers={("ppo", "navix"): "navix_ppo.py"}
    )
    if "RLKIT_PEERS" not in os.environ:
        print(
            "peers skipped: RLKIT_PEERS names no directory (benchmarks/README.md)", file=sys.stderr
        )
        return
    home = Path(os.environ["RLKIT_PEERS"])
    sb3 = Contender(
        name="sb3",
        python=home / "venv-sb3/bin/python",
        drivers={("ppo", "gymnasium"): "sb3_ppo.py", ("sac", "gymnasium"): "sb3_sac.py"},
    )
    peers = [
        Contender(
            name="craftax-baselines",
            python=Path(sys.executable),
            drivers={("ppo", "craftax"): "craftax_ppo.py"},
            paths={"CRAFTAX_BASELINES_PATH": home / "src/Craftax_Baselines"},
        ),
        Contender(
            name="xland-minigrid",
            python=Path(sys.executable),
            drivers={("recurrent_ppo", "xminigrid"): "xminigrid_ppo.py"},
            paths={"XLAND_MINIGRID_PATH": home / "src/xland-minigrid"},
        ),
        Contender(
            name="pgx",
            python=home / "venv-haiku/bin/python",
            drivers={("ppo", "pgx"): "pgx_ppo.py"},
            paths={"PGX_PATH": home / "src/pgx"},
        ),
        Contender(
            name="jumanji",
            python=home / "venv-haiku/bin/python",
            drivers={("a2c", "jumanji"): "jumanji_a2c.py"},
        ),
        Contender(
            name="purejaxrl",
            python=home / "venv-purejaxrl/bin/python",
            # Several parallel seeds of its PPO hang: batched QR factorizations in one program.
            drivers={
                ("ppo", "gymnax"): "purejaxrl_ppo.py",
                ("recurrent_ppo", "gymnax"): "purejaxrl_ppo_rnn.py",
                ("dqn", "gymnax"): "purejaxrl_dqn.py",
            },
            paths={"PUREJAXRL_PATH": home / "src/purejaxrl"},
        ),
        Contender(
            name="rejax",
            python=home / "venv-rejax/bin/python",
            drivers={
                ("ppo", "gymnax"): "rejax_ppo.py",
                ("ppo", "gymnax", "seeds"): "rejax_ppo.py",
                ("sac", "gymnax"): "rejax_sac.py",
                ("dqn", "gymnax"): "rejax_dqn.py",
            },
        ),
        Contender(
            name="brax",
            python=home / "venv-brax/bin/python",
            drivers={("sac", "gymnax"): "brax_sac.py"},
        ),
        sb3,
        dataclasses.replace(sb3, name="sb3-1thread", env={"OMP_NUM_THREADS": "1"}),
        Contender(
            name="sbx",
            python=home / "venv-sbx/bin/python",
            drivers={("ppo", "gymnasium"): "sbx_ppo.py", ("sac", "gymnasium"): "sbx_sac.py"},
        ),
    ]
    for peer in peers:
        if problem := peer.missing():
            print(f"{peer.name} skipped: {problem}", file=sys.stderr)
        else:
            yield peer


class Driver:
    """A contender's process on one task (see common.py). `error` holds why it stopped answering.

    It compiles in the background; `ready` waits for it. The directory `cache` keeps its compiled
    programs, if given. On GPUs, processes that wait for their turns share the memory, so JAX takes
    none in advance.
    """

    def __init__(
        self,
        contender: Contender,
        task: str,
        arguments: list[str],
        cache: str | None = None,
        platform: str = "cpu",
    ):
        self.name, self.platform = contender.name, platform
        self.error: str | None = None
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed by finish
        environment = (
            os.environ
            | {name: str(path) for name, path in contender.paths.items()}
            | contender.env
            | {
                "JAX_PLATFORMS": "cpu" if platform == "cpu" else f"{platform},cpu",
                "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
                "JAX_ENABLE_COMPILATION_CACHE": "false" if cache is None else "true",
                "JAX_COMPILATION_CACHE_DIR": cache or "",
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "PYTHONPATH": f"{contender.benchmarks}:{contender.benchmarks.parent}",
                "PYTHONWARNINGS": "ignore",
                "BENCHMARK_STARTED": str(time.time()),
            }
        )
        self._process = subprocess.Popen(
            [
                str(contender.python),
                str(contender.benchmarks / "drivers" / contender.drivers[TASKS[task].kind]),
                task,
                *arguments,
            ],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )

    def ready(self) -> None:
        """Waits until it has compiled and warmed up."""
        if not self.error:
            self._expect("READY")

    def profile(self) -> dict[str, Any] | None:
        """What the device did in one execution (`common.kernels_of`)."""
        if self.error:
            return None
        self._send("profile\n")
        return self._expect("PROFILE")

    def run(self) -> dict[str, float] | None:
        """One timed execution, with the share of the machine's CPU time used by other processes."""
        if self.error:
            return None
        before = _cpu_seconds(self._process.pid)
        self._send("run\n")
        wall = self._expect("WALL")
        if wall is None:
            return None
        busy, own = (
            now - then for now, then in zip(_cpu_seconds(self._process.pid), before, strict=True)
        )
        return {
            "wall_seconds": wall,
            "other_load": max(0.0, (busy - own) / (wall * (os.cpu_count() or 1))),
        }

    def finish(self) -> dict[str, Any] | None:
        """Ends the process and returns its result."""
        result = None
        if not self.error:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            result = self._expect("RESULT")
        self._process.kill()
        self._process.wait()
        self._stderr.close()
        return result

    def _send(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the missing answer reports it
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _expect(self, kind: str) -> Any:
        """The value of the next line that starts with `kind`; if there is none, None and an
        `error`.
        """
        watchdog = threading.Timer(TIMEOUT_SECONDS, self._process.kill)
        watchdog.start()
        try:
            for line in self._process.stdout:
                if line.startswith(kind + " "):
                    return json.loads(line.removeprefix(kind))
        finally:
            watchdog.cancel()
        self._process.wait()
        self._stderr.seek(0)
        last = (self._stderr.read().strip().splitlines() or ["no output"])[-1]
        self.error = f"exit status {self._process.returncode} before {kind}: {_without_paths(last)}"
        return None


def _without_paths(text: str) -> str:
    """`text` without local paths, for the record."""
    return text.replace(os.environ.get("RLKIT_PEERS") or "\0", "$RLKIT_PEERS").replace(
        str(HERE.parent), "."
    )


def _cpu_seconds(pid: int) -> tuple[float, float]:
    """CPU time used so far by the whole machine and by process `pid`."""
    machine = psutil.cpu_times()
    own = psutil.Process(pid).cpu_times()
    return (
        sum(machine)
        - machine.idle
        - getattr(machine, "iowait", 0.0)
        - getattr(machine, "guest", 0.0),
        own.user + own.system,
    )


def begin(task: str, runners: list[Contender], arguments: list[str], platform: str) -> list[Driver]:
    """The contenders' processes, which compile."""
    drivers = []
    for contender in runners:
        print(f"{task}: compiling {contender.name}", file=sys.stderr)
        drivers.append(Driver(contender, task, arguments, platform=platform))
        if platform == "cpu":  # one at a time: their compile times are reported
            drivers[-1].ready()
    return drivers


def measure(
    task: str, runners: list[Contender], rounds: int, arguments: list[str]
) -> list[dict[str, Any]]:
    """Compiles all contenders, then alternates them, starting with another one each round."""
    return alternate(task, begin(task, runners, arguments, "cpu"), rounds)


def alternate(task: str, drivers: list[Driver], rounds: int) -> list[dict[str, Any]]:
    """Rounds of all drivers in turns; on a GPU, an execution of each is profiled at the end."""
    repeats: dict[str, list[dict[str, float]]] = {driver.name: [] for driver in drivers}
    for number, driver in in_turns(drivers, rounds):
        if repeat := driver.run():
            repeats[driver.name].append(repeat)
            print(
                f"{task}: round {number}, {driver.name} {repeat['wall_seconds']:.3f} s",
                file=sys.stderr,
            )
    profiles = {driver.name: driver.profile() for driver in drivers if driver.platform != "cpu"}
    return [
        {
            "contender": driver.name,
            "result": driver.finish(),
            "repeats": repeats[driver.name],
            "profile": profiles.get(driver.name),
            "error": driver.error,
        }
        for driver in drivers
    ]


def speeds(record: dict[str, Any], counted: str) -> list[float]:
    """`counted` ("env_steps" or "gradient_steps") per second of each repeat; empty if it failed."""
    if record["error"]:
        return []
    return [
        record["result"]["task"][counted] / repeat["wall_seconds"] for repeat in record["repeats"]
    ]


def table(task: str, records: list[dict[str, Any]]) -> str:
    """Rates in environment steps; off policy in gradient steps, with the environment steps."""
    off_policy = isinstance(TASKS[task], OffPolicyTask)
    counted = "gradient_steps" if off_policy else "env_steps"
    medians = {
        record["contender"]: statistics.median(speeds(record, counted))
        for record in records
        if speeds(record, counted)
    }
    best_peer = max((speed for name, speed in medians.items() if name not in OURS), default=None)
    heads = [
        "",
        "updates/s, median" if off_policy else "env steps/s, median",
        "min–max",
        *(["env steps/s"] if off_policy else []),
        "× best peer",
        "trace + compile s",
        *(
            ["kernels per step", "GPU busy", "peak GPU MB"]
            if any(record["profile"] for record in records)
            else ["peak RSS MB"]
        ),
        "return",
        "other load",
    ]
    rows = [
        (
            _row(record, counted, best_peer, on_gpu="kernels per step" in heads)
            if record["contender"] in medians
            else [record["contender"], f"failed: {record['error']}", *[""] * (len(heads) - 2)]
        )
        for record in records
    ]
    return f"### {task}\n\n{markdown(heads, rows)}"


def _is_installed(task: str) -> bool:
    """Whether this interpreter has the task's suite; that of `make suites` has all of them."""
    return importlib.util.find_spec(TASKS[task].suite) is not None


def _on_gpu(record: dict[str, Any]) -> list[str]:
    """Kernels for each step of all environments together, updates included; and the rest."""
    result, profile = record["result"], record["profile"]
    memory = result["peak_device_mb"]
    if not profile:
        return ["", "", ""]
    steps = result["task"]["num_updates"] * result["task"].get("num_steps", 1)
    return [
        f"{profile['kernels'] / steps:,.1f}",
        f"{profile['busy_seconds'] / profile['span_seconds']:.0%}",
        "" if memory is None else f"{memory:,.0f}",
    ]


def _row(record: dict[str, Any], counted: str, best_peer: float | None, on_gpu: bool) -> list[str]:
    result, load = record["result"], max(repeat["other_load"] for repeat in record["repeats"])
    rates = speeds(record, counted)
    median = statistics.median(rates)
    return [
        record["contender"],
        f"{median:,.0f}",
        f"{min(rates):,.0f}–{max(rates):,.0f}",
        *(
            [f"{statistics.median(speeds(record, 'env_steps')):,.0f}"]
            if counted == "gradient_steps"
            else []
        ),
        f"{median / best_peer:.2f}" if best_peer else "",
        " + ".join(
            f"{result[name]:.1f}"
            for name in ("trace_seconds", "compile_seconds")
            if result[name] is not None
        ),
        *(_on_gpu(record) if on_gpu else [f"{result['peak_rss_mb']:,.0f}"]),
        "" if result["mean_return"] is None else f"{result['mean_return']:.1f}",
        f"{load:.0%}",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Training throughput of rlkit and its peers.")
    parser.add_argument(
        "tasks",
        nargs="*",
        metavar="TASK",
        help=f"{', '.join(TASKS)}; default: all of this platform whose suite is installed",
    )
    parser.add_argument(
        "--platform",
        default="cpu",
        metavar="NAME",
        help="what JAX computes on: cpu, or cuda, whose tasks are called gpu-...",
    )
    add_rounds(parser)
    names = "rlkit, rlkit-before, rlkit-trainer, rlkit-overlap, reference, or a peer"
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"contenders to run: {names}")
    parser.add_argument(
        "--before", type=Path, help="another checkout of rlkit to compare with: rlkit-before"
    )
    parser.add_argument("--num-updates", type=int, help="instead of the tasks' own settings")
    add_output(parser)
    args = parser.parse_args()
    if unknown := set(args.tasks) - TASKS.keys():
        parser.error(f"unknown task {', '.join(sorted(unknown))}; choose one of {', '.join(TASKS)}")
    default = [task for task in TASKS if (task in GPU_TASKS) == (args.platform != "cpu")]
    tasks = args.tasks or default
    absent = [task for task in tasks if not _is_installed(task)]
    for task in absent:
        cure = "run it with .venv-suites/bin/python, which `make .venv-suites/.installed` sets up"
        print(f"{task} skipped: needs {TASKS[task].suite}; {cure}", file=sys.stderr)
    chosen = [
        contender
        for contender in contenders(args.before)
        if not args.only or contender.name in args.only
    ]
    able = {
        task: [contender for contender in chosen if TASKS[task].kind in contender.drivers]
        for task in tasks
        if task not in absent
    }
    runners = {task: able[task] for task in able if able[task]}
    for task in (task for task in able if task not in runners):
        print(f"{task} skipped: no contender for {' on '.join(TASKS[task].kind)}", file=sys.stderr)
    if not runners:
        parser.error("nothing to run; see the lines above, and check --only")
    arguments = ["--num-updates", str(args.num_updates)] if args.num_updates else []

    when = now()
    begun = {}
    if args.platform != "cpu":  # compiling takes a CPU long, and executing takes a GPU little
        begun = {task: begin(task, runners[task], arguments, args.platform) for task in runners}
        for driver in itertools.chain(*begun.values()):
            driver.ready()
    records = {}
    for task in runners:
        drivers = begun.get(task) or begin(task, runners[task], arguments, args.platform)
        records[task] = alternate(task, drivers, args.rounds)
        print(table(task, records[task]), end="\n\n", flush=True)
    write("throughput", when, args.output, rounds=args.rounds, warmups=1, tasks=records)
    return 1 if any(item["error"] for items in records.values() for item in items) else 0


if __name__ == "__main__":
    sys.exit(main())
