"""The `rlkit` command. Imports no JAX: each command does so once its arguments are checked."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from rlkit import __version__
from rlkit.cli.spelling import OTHER_COMMANDS
from rlkit.envs.host.watchdog import end_hanging_process
from rlkit.errors import (
    DiskError,
    EnvFailedError,
    NonFiniteError,
    ProcessError,
    RlkitError,
    did_you_mean,
)
from rlkit.xla_cpu.process import raise_gc_thresholds

COMMANDS = {
    "train": "train an algorithm on an environment",
    "sweep": "train many trials with other hyperparameters, as few programs",
    "sweep-group": "train one group of a sweep, for a launcher on several machines",
    "resume": "continue a run or sweep that was stopped, or extend a run",
    "evaluate": "evaluate a trained policy",
    "plot": "plot the learning curves of one or several runs",
    "report": "write one or several runs as one HTML page",
    "video": "record episodes of a trained policy",
    "export": "write a trained policy as ONNX and StableHLO",
    "check-env": "find mistakes in an environment and how to fix them",
    "copy": "copy a sweep from an address, such as s3://bucket/my-sweep",
    "list": "list environments, agents, algorithms, presets",
}

HELP = f"""usage: rlkit COMMAND [arguments]

Reinforcement learning in JAX: one training loop, compiled end to end where the
environment allows it.

commands:
{chr(10).join(f"  {name:<11} {summary}" for name, summary in COMMANDS.items())}

examples:
  rlkit train ppo gymnax/CartPole-v1             tuned settings, into runs/
  rlkit train ppo gymnax/CartPole-v1 --num-seeds 4 --run-dir runs/first
  rlkit train ppo gymnasium/Hopper-v5            any Gymnasium environment
  rlkit train ppo my_package.my_module:MyEnv --total-steps 100k
  rlkit train ppo gymnax/CartPole-v1 --help      its settings with their values
  rlkit sweep ppo gymnax/CartPole-v1 --grid learning_rate=1e-4,1e-3
  rlkit resume runs/first --total-steps 2M
  rlkit evaluate runs/first --episodes 100
  rlkit plot runs/first runs/second --output both.png
  rlkit report runs/first                        results as one HTML page
  rlkit video runs/first --episodes 3
  rlkit export runs/first --output policy
  rlkit check-env my_package.my_module:MyEnv     its mistakes, how to fix them
  rlkit list envs

`rlkit COMMAND --help` explains a command; `rlkit --version` prints the version.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command in `argv` (`None`: `sys.argv`) and returns its exit code.

    0: success. 1: training diverged, an environment failed (printed with its traceback), the disk
    is full or broken, another process was lost, or a bug. 2: invalid input; errors are reported in
    one line. 128 + n: stopped by signal n.
    """
    try:
        if argv is None:  # this process belongs to the command
            raise_gc_thresholds()
            end_hanging_process()
            os.umask(os.umask(0o022) | 0o022)  # nobody else may write what a run leaves
        return _dispatch(list(sys.argv[1:] if argv is None else argv))
    except RlkitError as error:
        lines = isinstance(error, EnvFailedError)  # printed with the environment's traceback
        print("rlkit: error:", error if lines else " ".join(str(error).split()), file=sys.stderr)
        failures = (DiskError, EnvFailedError, NonFiniteError, ProcessError)
        code = 1 if isinstance(error, failures) else 2
        _leave_other_processes(str(error), code)
        return code
    except KeyboardInterrupt:
        print("rlkit: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        # Otherwise the interpreter would raise again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as done:  # from `--help`, or from code of the user's
        if done.code is None or isinstance(done.code, int):
            return done.code or 0
        print(done.code, file=sys.stderr)
        return 1


def _leave_other_processes(error: str, code: int) -> None:
    """Tells them of an error, if there are any; ends this process then, with that exit code."""
    group = sys.modules.get("rlkit.training.processes.group")
    if group is not None:
        group.current().leave(error, code)


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] == ["help"]:  # of a command, perhaps
        arguments = [*arguments[1:2], "--help"]
    command = arguments[0] if arguments else "--help"
    if command in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if command in ("-V", "--version"):
        print(f"rlkit {__version__}")
        return 0
    if command not in COMMANDS:
        meant = OTHER_COMMANDS.get(command.lower())
        fix = f"did you mean '{meant}'?" if meant else did_you_mean(command, COMMANDS, cutoff=0.7)
        raise RlkitError(f"unknown command {command!r}; {fix}")
    return import_module(f"rlkit.cli.{command.replace('-', '_')}").run(arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
