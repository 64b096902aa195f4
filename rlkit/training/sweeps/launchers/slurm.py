"""`SlurmLauncher`: writes the batch scripts that train a sweep as an array of jobs."""

import dataclasses
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rlkit.errors import require
from rlkit.training.directories import make_directory, write_atomically
from rlkit.training.sweeps.directory import SweepFiles
from rlkit.training.sweeps.launchers.protocol import Say, Session, Watch
from rlkit.training.sweeps.plan import Plan, planned
from rlkit.training.sweeps.shapes import Group
from rlkit.validation import PlainData

NOTICE = 180  # seconds before its time limit in which a job saves; Slurm may be a minute late
_NAME = re.compile(r"[a-z][a-z0-9-]*")

# The shell waits in `wait`, which a signal ends, so that its trap runs. Shortly before the time
# limit of a job Slurm sends USR1: the group saves, and the job goes back into the queue. After
# TERM, by `scancel` or a preemption, it saves as well, and Slurm decides what follows.
GROUP = """
{cd}
trial=${{SLURM_ARRAY_TASK_ID:?submit this file with sbatch}}
again=
trap 'again=yes; kill -TERM "$process"' USR1
trap 'kill -TERM "$process"' TERM
{command} "$trial" &
process=$!
wait "$process"
code=$?
while kill -0 "$process" 2>/dev/null; do
    wait "$process"
    code=$?
done
if [ -n "$again" ] && [ "$code" -gt 128 ]; then
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
fi
exit "$code"
"""
COLLECT = """
{cd}
exec {command}
"""


def sbatch_options(texts: Sequence[str]) -> dict[str, str | None]:
    """`["partition=gpu", "exclusive"]` as values by name, None for one without."""
    found: dict[str, str | None] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        found[name.strip().lstrip("-")] = value.strip() if equals else None
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlurmLauncher:
    """Writes the scripts of an array of Slurm jobs, one for each group; starts nothing itself.

    `run_sweep` returns a sweep that is not finished, and says which commands submit it. What they
    leave is collected by `rlkit resume`, or `run_sweep` without a launcher. Raises `ConfigError`
    for a search by Optuna, whose groups are not known before others are trained.
    """

    options: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    """Options of sbatch by their long names, such as {"partition": "gpu", "time": "4:00:00"}; None:
    one without a value.
    """
    env: str | None = None
    """The environment of the runs again if it is your own class (module:Class)."""

    def __post_init__(self) -> None:
        for name, value in self.options.items():
            shown = name if value is None else f"{name}={value}"
            require(
                _NAME.fullmatch(name) is not None and "\n" not in (value or ""),
                f"{shown!r} is no option of sbatch",
                "use long names: --sbatch partition=gpu time=4:00:00 gpus=1",
            )
        require(
            "array" not in self.options,
            "the array of jobs is that of the sweep's groups",
            "leave out array; --group-size says how many trials a job trains",
        )

    @contextmanager
    def open(self, files: SweepFiles, watch: Watch, say: Say) -> Iterator[Session]:
        """See `Launcher`."""
        require(
            files.config.search != "optuna",
            "Optuna chooses trials by the results of others, but all Slurm jobs are planned first",
            "leave out --search optuna, or use --launcher ray",
        )
        require(
            files.store.is_shared,
            f"no other process sees {files.place}",
            "choose a --run-dir that all machines see",
        )
        yield _SlurmSession(self, files, say)

    def scripts(self, files: SweepFiles, groups: Sequence[Group]) -> dict[str, str]:
        """The scripts by name: one for the groups, one for the end."""
        folder = f"{folder_of(files)}".replace("%", "%%")  # Slurm fills in what begins with %
        name = f"rlkit-{files.store.name}"
        rlkit = [sys.executable, "-m", "rlkit.cli.main"]
        env = [] if self.env is None else ["--env", self.env]
        places = {
            "cd": shlex.join(["cd", os.getcwd()]),
            "command": shlex.join([*rlkit, "sweep-group", *env, str(files.place)]),
        }
        of_groups = {
            "job-name": name,
            "output": f"{folder}/group-%a.log",
            "open-mode": "append",
            "requeue": None,
            "signal": f"B:USR1@{NOTICE}",
            **self.options,
            "array": array_of([group.first for group in groups]),
        }
        # Nothing in the script of the end takes the notice, which would kill it.
        shared = {option: value for option, value in self.options.items() if option != "signal"}
        at_end = {"job-name": f"{name}-end", "output": f"{folder}/end.log", **shared}
        resume = shlex.join([*rlkit, "resume", str(files.place), *env])
        return {
            "groups.sbatch": _header(of_groups) + GROUP.format(**places),
            "end.sbatch": _header(at_end) + COLLECT.format(**places | {"command": resume}),
        }


@dataclasses.dataclass(frozen=True)
class _SlurmSession:
    launcher: SlurmLauncher
    files: SweepFiles
    say: Say

    def plan(self, changes: Sequence[PlainData], first: int) -> Plan:
        return planned(self.files, changes, first)

    def train(self, plan: Plan, rung: int, groups: Sequence[Group]) -> bool:
        """Writes the scripts, which train nothing before they are submitted."""
        rungs = len(plan.rungs) - rung
        # which of them go on after this rung is not known yet
        groups = groups if rungs == 1 else plan.groups
        folder = folder_of(self.files)
        make_directory(folder)
        for name, text in self.launcher.scripts(self.files, groups).items():
            write_atomically(folder / name, text)
        several = f", once for each of {rungs} rungs" if rungs > 1 else ""
        self.say(f"Slurm: {len(groups)} groups, a job each{several}; submit them with")
        for command in submitting(folder, rungs):
            self.say(f"  {command}")
        return False


def folder_of(files: SweepFiles) -> Path:
    """Where scripts are, and what jobs say: Slurm writes to no address."""
    if isinstance(files.place, Path):
        return files.place / "slurm"
    return Path.cwd() / f"{files.store.name}-slurm"


def submitting(folder: Path, rungs: int) -> list[str]:
    """The commands that submit the scripts in a folder, each job after those before."""
    groups, end = (shlex.quote(f"{folder}/{name}") for name in ("groups.sbatch", "end.sbatch"))
    after = '--dependency=afterany:"${job%%;*}"'
    return [
        f"job=$(sbatch --parsable {groups})",
        *[f"job=$(sbatch --parsable {after} {groups})"] * (rungs - 1),
        f"sbatch {after} {end}",
    ]


def array_of(numbers: Sequence[int]) -> str:
    """Numbers as Slurm writes them: "0-12:4" if they are equally far apart, else "0,3,8"."""
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    if len(numbers) > 1 and list(numbers) == list(range(numbers[0], numbers[-1] + 1, step)):
        return f"{numbers[0]}-{numbers[-1]}" + (f":{step}" if step > 1 else "")
    return ",".join(map(str, numbers))


def _header(options: Mapping[str, str | None]) -> str:
    rows = [f"--{name}" + ("" if value is None else f"={value}") for name, value in options.items()]
    return "\n".join(["#!/bin/bash", *(f"#SBATCH {shlex.quote(row)}" for row in rows), ""])
