"""`rlkit check-env`: reports an environment's mistakes, why they matter and how to fix them."""

import dataclasses
import json
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import tyro

from rlkit.cli import flags, own_env
from rlkit.training.run_config import Seed
from rlkit.validation import PositiveInt

if TYPE_CHECKING:
    from rlkit.envs import CheckReport

COMMAND = "rlkit check-env"
NOTES = f"""Gymnasium environments also run through Gymnasium's checker.

Exit code 0: no errors (warnings may be intended); 1: errors, which break
training; 2: no such environment, or wrong arguments.

examples:
  {COMMAND} gymnasium/CartPole-v1
  {COMMAND} my_package.my_module:MyEnv --num-steps 2000
  {COMMAND} my_package.my_module:MyEnv --env-arguments '{{"size": 5}}'"""


PATIENCE = 5.0  # seconds after which the stages of a check are shown


class Stages:
    """Prints what a check is doing to stderr, once it takes longer than `PATIENCE`."""

    def __init__(self) -> None:
        self._start, self._stage, self._is_shown = time.monotonic(), "", False
        self._lock = threading.Lock()
        self._timer = threading.Timer(PATIENCE, self._begin)
        self._timer.daemon = True
        self._timer.start()

    def __call__(self, stage: str) -> None:
        """Notes a stage when it begins."""
        with self._lock:
            self._stage = stage
            self._is_shown |= time.monotonic() - self._start >= PATIENCE
            if self._is_shown:
                self._print()

    def end(self) -> None:
        """Shows nothing more."""
        self._timer.cancel()
        self._timer.join()

    def _begin(self) -> None:
        with self._lock:
            if self._stage and not self._is_shown:
                self._is_shown = True
                self._print()

    def _print(self) -> None:
        seconds = time.monotonic() - self._start
        print(f"rlkit: {seconds:.0f} s, {self._stage} ...", file=sys.stderr, flush=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckEnvFlags:
    """Runs ENV with random actions and reports its mistakes and how to fix them."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """Environment to check: an id (`rlkit list envs`), or your own class, module:Class."""
    num_steps: PositiveInt = 200
    """Number of random steps; more to reach a time limit of up to 1000 steps."""
    seed: Seed = 0
    """Seed of the episodes and actions; another seed may reveal a rare mistake."""
    env_arguments: str = "{}"
    """Keyword arguments of the environment as JSON, for example '{"max_episode_steps": 500}'."""
    json: bool = False
    """Print the report as a JSON object."""


def run(arguments: Sequence[str]) -> int:
    """Runs the check and returns the exit code."""
    chosen = flags.parse(CheckEnvFlags, arguments, command=COMMAND, epilogue=NOTES)
    flags.validate(chosen, CheckEnvFlags)
    kwargs = flags.json_object("--env-arguments", chosen.env_arguments)
    own_env.check_typed(chosen.env)
    own_env.register(chosen.env)
    from rlkit.envs import check_env

    stages = Stages()
    try:
        report = check_env(
            chosen.env,
            num_steps=chosen.num_steps,
            seed=chosen.seed,
            env_arguments=kwargs,
            raise_on_error=False,
            progress=stages,
        )
    finally:
        stages.end()
    print(_as_json(report) if chosen.json else report)
    return 0 if report.ok else 1


def _as_json(report: "CheckReport") -> str:
    findings = [dataclasses.asdict(finding) for finding in report.findings]
    return json.dumps(
        {"env": report.name, "ok": report.ok, "findings": findings, "measured": report.measured}
    )
